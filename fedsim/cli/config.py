"""`fedsim config`: the keys, their explanations, the bundled files; and `fedsim plugins`."""

import shlex
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from adversaries import plugins as installed_plugins
from adversaries import registry
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
    rows, value = documentation.rows_of(key), documentation.example(entry, names)
    if json_:
        more = {"names": names, "example": value, "goes_with": [_row(need) for need in rows]}
        print_json({**asdict(entry), **more})
        return
    console = Terminal(highlight=False)
    console.print(Text(entry.key, "bold"))
    table, last = key.rsplit(".", 1)
    written = value if isinstance(value, str) else as_toml(value)
    facts = {
        "Meaning": entry.meaning,
        "Type": entry.type,
        "Values": entry.allowed or ", ".join(names) or f"any {entry.type}",
        "Default": as_toml(entry.default),
        "Example": f"--set {shlex.quote(f'{key}={written}')}",
        "": f"or in the file, below [{table}]: {last} = {as_toml(value)}",
    }
    grid = Table(show_header=False, box=None, pad_edge=False)
    for name, words in facts.items():
        grid.add_row(name, Text(words))
    console.print(grid)
    if which := documentation.choice_of_noise(key):
        console.print(which)
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


def plugins(json_: AsJson = False) -> None:
    """List the plug-ins of installed packages, and whether this machine allows them.

    Their code is not imported. To use one, allow its code and name it:
    fedsim --allow-code CODE run CONFIG --set KEY=plugin:NAME

    Example: fedsim plugins
    """
    found = installed_plugins.installed()
    allowed = [registry.is_allowed(each.code) for each in found]
    if json_:
        rows = zip(found, allowed, strict=True)
        print_json({"plugins": [{**asdict(each), "allowed": may} for each, may in rows]})
        return
    console = Terminal(highlight=False)
    if not found:
        groups = ", ".join(installed_plugins.GROUPS.values())
        console.print(f"No installed package has an entry point in {groups}.")
        return
    table = Table("name", "for", "code", "package", "allowed", box=None, pad_edge=False)
    for each, may in zip(found, allowed, strict=True):
        name = f"{installed_plugins.PREFIX}{each.name}"
        package = f"{each.package} {each.version}"
        table.add_row(name, each.key, each.code, package, "yes" if may else "no")
    console.print(table)
    console.print(
        "To allow a plug-in, name its code: fedsim --allow-code CODE COMMAND ... Plug-ins for "
        "reports need no setting: each one that you allow is on the page."
    )
