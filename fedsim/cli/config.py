"""`fedsim config`: the keys, their explanations and the bundled files."""

from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json

if TYPE_CHECKING:  # pydantic
    from fedsim.config.needs import Need


NAMED = {
    "audit.attacks": ("adversaries.attacks.membership_attacks", "ATTACKS"),
    "challenge.dissimilarity": ("adversaries.neighbours.dissimilarity", "MEASURES"),
    "challenge.kind": ("fedsim.game.crafting", "KINDS"),
    "data.name": ("fedsim.learning.data", "DATASETS"),
    "federation.partition": ("fedsim.learning.data.partition", "PARTITIONS"),
    "model.batch-norm": ("fedsim.learning.training.models", "BATCH_NORM"),
    "model.name": ("fedsim.learning.training.models", "MODELS"),
    "privacy.accountant": ("fedsim.privacy.accounting", "ACCOUNTANTS"),
    "training.optimizer": ("fedsim.learning.training.optimizers", "OPTIMIZERS"),
    "training.schedule": ("fedsim.learning.training.schedules", "SCHEDULES"),
}
"""Registry with the names that a key accepts: module and attribute."""

COLUMNS = 100


def list_(json_: AsJson = False) -> None:
    """List all configuration keys by task, each with its default and a short description.

    The keys that most users change come first.

    Example: fedsim config list
    """
    from fedsim.config import documentation  # noqa: PLC0415
    from fedsim.config.needs import as_toml  # noqa: PLC0415

    every = documentation.every_key()
    if json_:
        print_json({"keys": [asdict(key) for key in every.values()]})
        return
    groups = documentation.by_task()
    settings = {name: f"{name} = {as_toml(key.default)}" for name, key in every.items()}
    width = max(map(len, settings.values())) + 2
    console = Terminal(highlight=False)
    for heading, keys in groups.items():
        console.print(Text(heading, "bold"))
        for key in keys:
            # Without wrapping, so that each key stays one line for grep.
            line = f"{settings[key.key]:<{width}}{key.summary}"
            choices = f" {key.allowed}." if key.type == "text" and key.allowed else ""
            fits = len(line) + len(choices) <= COLUMNS
            console.print(line + choices if fits else line, soft_wrap=True)
        console.print()
    console.print("All about one key: fedsim config explain KEY")


def explain(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Name of the key, such as privacy.delta.")
    ],
    json_: AsJson = False,
) -> None:
    """Explain one configuration key: meaning, type, values, default and requirements.

    Example: fedsim config explain privacy.delta
    """
    from fedsim.config import documentation  # noqa: PLC0415
    from fedsim.config.needs import as_toml  # noqa: PLC0415

    entry = documentation.key(key)
    key = entry.key
    names = registered_names(key)
    rows = documentation.rows_of(key)
    if json_:
        print_json({**asdict(entry), "names": names, "goes_with": [_row(need) for need in rows]})
        return
    console = Terminal(highlight=False)
    console.print(Text(entry.key, "bold"))
    facts = {
        "Meaning": entry.meaning,
        "Type": entry.type,
        "Values": entry.allowed or ", ".join(names) or f"any {entry.type}",
        "Default": as_toml(entry.default),
        "Change": f"--set {key}=VALUE",
    }
    grid = Table(show_header=False, box=None, pad_edge=False)
    for name, words in facts.items():
        grid.add_row(name, Text(words))
    console.print(grid)
    if rows:
        console.print("Requirements with other keys:")
    for row in map(_row, rows):
        console.print(
            f"- If {row['where']}, then {_required(row['needs'])}. {row['because']} Otherwise, "
            f"{row['instead']}."
        )


def examples(json_: AsJson = False) -> None:
    """List the example configurations that come with fedsim.

    Every command that takes CONFIG accepts their names.

    Example: fedsim config examples
    """
    from fedsim.common import configurations  # noqa: PLC0415

    listing = configurations.listing()
    if json_:
        print_json({"examples": [{"name": name, "what": what} for name, what in listing.items()]})
        return
    table = Table("name", "what", box=None, pad_edge=False)
    for name, what in listing.items():
        table.add_row(name, what)
    console = Terminal(highlight=False)
    console.print(table)
    console.print(f"Folder: {configurations.folder()}", soft_wrap=True)


def registered_names(key: str) -> list[str]:
    """Return the registered names that a key accepts; [] for a key without a registry."""
    module, registry = NAMED.get(key, ("", ""))
    return [*getattr(import_module(module), registry)] if module else []


def _required(words: str) -> str:
    """Return statements "KEY is VALUE" as requirements "KEY must be VALUE"."""
    return words.replace(" is not ", " must not be ").replace(" is ", " must be ")


def _row(need: "Need") -> dict[str, str]:
    return {
        "where": " and ".join(setting.words for setting in need.what),
        "needs": " and ".join(setting.words for setting in need.needs),
        "because": need.why,
        "instead": need.instead,
    }
