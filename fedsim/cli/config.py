"""`fedsim config`: every key of a configuration, what one means, and the bundled files."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json

if TYPE_CHECKING:  # pydantic
    from fedsim.config.documentation import Key
    from fedsim.config.needs import Need


def list_(json_: AsJson = False) -> None:
    """List every key of a configuration: its type, its default, what it means.

    Example: fedsim config list
    """
    from fedsim.config import documentation  # noqa: PLC0415
    from fedsim.config.needs import as_toml  # noqa: PLC0415

    found = documentation.every_key()
    if json_:
        print_json({"keys": [asdict(key) for key in found.values()]})
        return
    console = Terminal(highlight=False)
    for key in found.values():
        console.print(Text.assemble((f"{key.key} = {as_toml(key.default)}", "bold")))
        console.print(Padding(f"{key.meaning} ({_value(key)})", (0, 0, 0, 4)))


def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Such as privacy.delta.")],
    json_: AsJson = False,
) -> None:
    """Say what a key of a configuration means, which values it may have, and what it goes with.

    Example: fedsim config explain privacy.delta
    """
    from fedsim.config import documentation  # noqa: PLC0415
    from fedsim.config.needs import as_toml  # noqa: PLC0415

    found = documentation.key(key)
    rows = documentation.rows_of(key)
    if json_:
        print_json({**asdict(found), "goes_with": [_row(need) for need in rows]})
        return
    console = Terminal(highlight=False)
    console.print(Text(found.key, "bold"))
    console.print(found.meaning)
    console.print(f"Value: {_value(found)}; default {as_toml(found.default)}")
    if which := documentation.choice_of_noise(key):
        console.print(which)
    if rows:
        console.print("What it goes with:")
    for row in map(_row, rows):
        console.print(
            f"- where {row['where']}, {row['needs']} ({row['because']}); or {row['instead']}"
        )


def examples(json_: AsJson = False) -> None:
    """List the configurations that come with fedsim, which every command takes by their names.

    Example: fedsim config examples
    """
    from fedsim.common import configurations  # noqa: PLC0415

    found = configurations.listing()
    if json_:
        print_json({"examples": [{"name": name, "what": what} for name, what in found.items()]})
        return
    table = Table("name", "what", box=None, pad_edge=False)
    for name, what in found.items():
        table.add_row(name, what)
    console = Terminal(highlight=False)
    console.print(table)
    console.print(f"They lie in {configurations.folder()}", soft_wrap=True)


def _value(key: "Key") -> str:
    """Return the type of a key's value, and which it may have."""
    return f"{key.type}: {key.allowed}" if key.allowed else key.type


def _row(need: "Need") -> dict[str, str]:
    """Return a row of the table of refused combinations, in words."""
    return {
        "where": " and ".join(setting.words for setting in need.what),
        "needs": " and ".join(setting.words for setting in need.needs),
        "because": need.why,
        "instead": need.instead,
    }
