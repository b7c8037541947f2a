"""`fedsim verify`: whether a result is unchanged and its report follows from its files."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json

WORDS = {
    0: ("verified", "bold green"),
    3: ("cannot tell", "bold yellow"),
    4: ("refuted", "bold red"),
}


def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a finished run or audit.")
    ],
    json_: AsJson = False,
) -> None:
    """Compare a result with its SHA256SUMS, and its report and pages with those made again.

    Writes SHA256SUMS where there is none: the result is then sealed. Sign that file, for example
    with ssh-keygen. Exit status: 0 sealed or verified; 3 cannot tell, as for the audit of an app or
    loop, whose report cannot be made again; 4 refuted; 2 bad input.

    Example: fedsim verify fedsim-runs/digits
    """
    from fedsim.report.kinds import verification  # noqa: PLC0415  (torch is slow)

    found = verification.verify(directory)
    word, style = WORDS[found.outcome]
    if found.sealed and not found.outcome:
        word = "sealed"  # what no file allows to make again, such as a model, is believed
    if json_:
        checks = [
            {"of": check.of, "outcome": WORDS[check.outcome][0], "why": check.words}
            for check in found.checks
        ]
        print_json({"outcome": word, "checks": checks})
    else:
        console = Terminal(highlight=False)
        console.print(Text(word.upper(), style))
        for check in found.checks:
            word, style = WORDS[check.outcome]
            line = Text.assemble((f"{word:<13}", style), f"{check.of}: {check.words}")
            console.print(line, soft_wrap=True)
    raise typer.Exit(int(found.outcome))
