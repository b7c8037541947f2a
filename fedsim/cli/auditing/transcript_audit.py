"""Audits what a recorder in somebody else's app wrote, after the run or meanwhile."""

from collections.abc import Callable
from pathlib import Path

from adversaries.errors import InputError
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.cli.auditing.live_audit import view
from fedsim.cli.auditing.options import OfEvery
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory
from fedsim.common.report_directory import EVIDENCE
from fedsim.common.strict_json import report_json
from fedsim.federation.transcripts.reader import Reader, follow
from fedsim.report.kinds import recorded as transcript_report


def check(every: OfEvery) -> None:
    """Raise InputError for options that no transcript can be audited with."""
    transcript_audit.check(*_values(every))


def audit_transcript(path: Path, every: OfEvery, stop: Callable[[], bool] | None = None) -> int:
    """Audit a transcript, leave a report, and return the exit status."""
    check(every)
    values, directory = _values(every), every.directory(path)
    report_directory.check(directory)  # before hours of following
    _check_unsigned(path, directory)
    console = Terminal(stderr=True)
    if stop is not None:
        with view(console) as show:
            with Reader(path) as reader:
                auditor = transcript_audit.Auditor(reader.facts)
            for observed in follow(path, stop=stop):
                auditor.observe(observed)
                if console.is_terminal:  # a report so far costs as much as all rounds so far
                    show(transcript_report.summary(auditor.report(*values)))
    with Reader(path) as reader:
        report = transcript_audit.audit(reader, *values)
    with report_directory.refusing(directory):
        page = transcript_report.write(report, directory)
    if every.as_json:
        print_json(report_json(report))
    else:
        console.print(transcript_report.summary(report))
        console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    return every.exit_status(transcript_audit.concluded(report))


def _check_unsigned(path: Path, directory: Path) -> None:
    """Raise InputError if there is evidence of a report that another one would replace."""
    beside = path.with_name(f"{path.stem}-{EVIDENCE}")
    found = [place for place in (directory / EVIDENCE, beside) if place.exists()]
    if found and (directory / "report.json").exists():
        raise InputError(
            f"'{found[0]}' is signed evidence of the report in '{directory}', and another in its "
            "place would refute it; name another directory with --out, or move the evidence"
        )


def _values(every: OfEvery) -> tuple[float, float, float | None, str | None]:
    """Return delta, confidence and the claim, as functions of `transcript_audit` take them."""
    options, claim = every.options, every.options.claim
    epsilon, unit = (None, None) if claim is None else (claim.epsilon, claim.unit)
    return options.stated_at, options.level, epsilon, unit
