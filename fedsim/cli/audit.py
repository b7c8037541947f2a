"""`fedsim audit`: what a recorded transcript, or a run directory, says of an owner's privacy."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedsim.errors import InputError
from fedsim.run_directory import RunDirectory


def audit(
    recorded: Annotated[
        Path, typer.Argument(metavar="TRANSCRIPT", help="A transcript, or a run directory.")
    ],
    json_: Annotated[
        bool, typer.Option("--json", help="Print the report as one JSON document.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the report; default NAME-audit beside it.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta at which every epsilon is stated.", show_default="1e-5"),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence of every interval.", show_default="0.95")
    ] = None,
    claimed_epsilon: Annotated[
        float | None, typer.Option(help="An epsilon that somebody claims of all rounds.")
    ] = None,
) -> None:
    """Audit a federation that was recorded with fedsim.recording, offline.

    Measures the noise that was really added, what it makes of each owner's privacy, and what
    canaries found. A run directory of `fedsim run` gets its report anew.

    Example: fedsim audit server.fedt --claimed-epsilon 8
    """
    if recorded.is_dir():
        if out is not None or claimed_epsilon is not None:
            raise InputError("--out and --claimed-epsilon are for transcripts; leave them out")
        _audit_run(recorded, json_, delta, confidence)
    else:
        _audit_transcript(recorded, json_, out, delta, confidence, claimed_epsilon)


def _audit_transcript(
    path: Path,
    json_: bool,
    out: Path | None,
    delta: float | None,
    confidence: float | None,
    claimed_epsilon: float | None,
) -> None:
    from fedsim import transcript_audit, transcript_report  # noqa: PLC0415
    from fedsim.transcript import Reader  # noqa: PLC0415

    delta, confidence = 1e-5 if delta is None else delta, 0.95 if confidence is None else confidence
    with Reader(path) as reader:
        report = transcript_audit.audit(reader, delta, confidence, claimed_epsilon)
    directory = path.with_name(f"{path.stem}-audit") if out is None else out
    try:
        page = transcript_report.write(report, directory)
    except OSError as error:
        raise InputError(
            f"cannot write to '{directory}': {error.strerror}; name another directory with --out"
        ) from None
    if json_:
        _print_json(report)
        return
    console = Console(stderr=True)
    console.print(transcript_report.summary(report))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)


def _audit_run(path: Path, json_: bool, delta: float | None, confidence: float | None) -> None:
    from fedsim import audit as run_audit  # noqa: PLC0415
    from fedsim.report import summary  # noqa: PLC0415

    directory = RunDirectory.open(path)
    report = run_audit.write_report(directory, confidence=confidence, delta=delta)
    if json_:
        _print_json(report)
        return
    console = Console(stderr=True)
    console.print(summary(report))
    console.print(f"Report: {directory.path / 'report.html'}", soft_wrap=True, highlight=False)


def _print_json(report: dict[str, object]) -> None:
    from fedsim.cli.guarantees import print_json  # noqa: PLC0415

    print_json(report)
