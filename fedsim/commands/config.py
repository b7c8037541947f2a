"""`fedsim config`: the configuration keys, or the explanation of one."""

from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING

from fedsim.commands.answer import Answer

if TYPE_CHECKING:  # pydantic
    from fedsim.configuration.needs import Need

NAMED = {
    "audit.attacks": ("adversaries.attacks.membership_attacks", "ATTACKS"),
    "challenge.dissimilarity": ("adversaries.neighbours.dissimilarity", "MEASURES"),
    "challenge.kind": ("fedsim.game.crafting", "KINDS"),
    "data.name": ("fedsim.learning.data", "DATASETS"),
    "federation.partition": ("fedsim.learning.data.partition", "PARTITIONS"),
    "model.batch-norm": ("fedsim.learning.training.torchvision_networks", "BATCH_NORM"),
    "model.name": ("fedsim.learning.training.models", "MODELS"),
    "privacy.accountant": ("fedsim.privacy.accounting", "ACCOUNTANTS"),
    "training.optimizer": ("fedsim.learning.training.optimizers", "OPTIMIZERS"),
    "training.schedule": ("fedsim.learning.training.schedules", "SCHEDULES"),
}
"""Registry with the names that a key accepts: module and attribute."""

COLUMNS = 100


def config(key: str | None = None, /) -> Answer:
    """List all configuration keys by task, or explain one.

    Without KEY, each key stands with its default and a short description; those that most users
    change come first.

    Examples: fedsim config

    fedsim config privacy.delta

    Args:
        key: name of a key, such as privacy.delta, or its last part, if only one key has it.

    Returns:
        The answer, with a line of its table for each key.

    Raises:
        InputError: there is no such key.
    """
    return _listing() if key is None else _explained(key)


def _listing() -> Answer:
    from rich.console import Group, RenderableType  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from fedsim.configuration import documentation  # noqa: PLC0415
    from fedsim.configuration.needs import as_toml  # noqa: PLC0415

    every = documentation.every_key()
    settings = {name: f"{name} = {as_toml(key.default)}" for name, key in every.items()}
    width = max(map(len, settings.values())) + 2

    def listed() -> RenderableType:
        lines: list[Text] = []
        for heading, keys in documentation.by_task().items():
            lines.append(Text(heading, "bold"))
            for key in keys:
                # Without wrapping, so that each key stays one line for grep.
                line = f"{settings[key.key]:<{width}}{key.summary}"
                choices = f" {key.allowed}." if key.type == "text" and key.allowed else ""
                fits = len(line) + len(choices) <= COLUMNS
                lines.append(
                    Text(line + choices if fits else line, no_wrap=True, overflow="ignore")
                )
            lines.append(Text())
        return Group(*lines, Text("All about one key: fedsim config KEY"))

    keys = [asdict(each) for each in every.values()]
    return Answer(report={"keys": keys}, table=keys, _terminal=listed)


def _explained(name: str) -> Answer:
    from fedsim.configuration import documentation  # noqa: PLC0415
    from fedsim.configuration.needs import as_toml  # noqa: PLC0415
    from fedsim.reports.document.blocks import Heading, Listing, Prose  # noqa: PLC0415

    entry = documentation.key(name)
    key, names = entry.key, registered_names(entry.key)
    goes_with = [_row(need) for need in documentation.rows_of(key)]
    facts = [
        ("Meaning", entry.meaning),
        ("Type", entry.type),
        ("Values", entry.allowed or ", ".join(names) or f"any {entry.type}"),
        ("Default", as_toml(entry.default)),
        ("Change", f"{key}=VALUE behind a command"),
    ]
    required = [
        f"- If {row['where']}, then {_required(row['needs'])}. {row['because']} Otherwise, "
        f"{row['instead']}."
        for row in goes_with
    ]
    return Answer(
        report={**asdict(entry), "names": names, "goes_with": goes_with},
        table=[dict(facts)],
        details=entry,
        _blocks=lambda: [
            Heading(key),
            Listing(facts),
            *map(Prose, ["Requirements with other keys:", *required] if required else []),
        ],
    )


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
