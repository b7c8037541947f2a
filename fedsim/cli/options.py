"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any key; may be repeated."),
]
AcceptEpsilon = Annotated[
    float | None,
    typer.Option(
        metavar="E",
        help="Accept that an interrupted run, continued, releases this epsilon in total.",
    ),
]
Rehearsal = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN_DIR", help="A fedsim rehearse of this file, whose findings the card tells."
    ),
]
ReportAsJson = Annotated[
    bool, typer.Option("--json", help="Print the report as one JSON document.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
