"""`fedsim deploy report`: what a client's own machine knows of its own records."""

from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import reading
from fedsim.common.strict_json import report_json


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of this client.")],
    others: Annotated[
        str,
        typer.Option(metavar="PATH", help="Records that took no part, for an attack on the model."),
    ] = "",
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The last training's released model; else the last one that was sent here.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the report; default report in DIR."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Say what this client released, when, at what epsilon, and how exposed its own records are.

    On the client's machine, for its owner; nothing of it leaves.

    Example: fedsim deploy report /etc/fedsim/client-0 --others public.csv
    """
    from fedsim.report.client import page  # noqa: PLC0415  (torch and matplotlib are slow)
    from fedsim.report.client.report import Node, assemble  # noqa: PLC0415

    path = directory / "node.toml"
    try:
        values = reading.toml(path)
    except FileNotFoundError:
        raise InputError(f"'{directory}' is no client's folder: it has no node.toml") from None
    except reading.DAMAGE as error:
        raise InputError(f"cannot read '{path}': {reading.reason(error)}; mend it") from None
    node = Node.of(values, directory.resolve() / "work")
    found = assemble(node, others, model)
    written = page.write(found, directory / "report" if out is None else out)
    if json_:
        print_json(report_json(found))
    console = Terminal(stderr=True)
    console.print(page.summary(found))
    console.print(f"Report: {written}", soft_wrap=True, highlight=False)
