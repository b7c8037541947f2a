"""`fedsim audit` of what a recorder in somebody else's app wrote, after the run or meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsim.audits.verdict import Verdict, verdict_of
from fedsim.cli.auditing.live_audit import view
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory
from fedsim.transcript_audit import audit as transcript_audit
from fedsim.transcript_audit import transcript_report
from fedsim.transcripts.reader import Reader, follow


@dataclass(frozen=True)
class Options:
    """How a transcript is audited; out: where the report goes, None for beside the transcript."""

    delta: float
    confidence: float
    claimed_epsilon: float | None
    claimed_unit: str | None
    out: Path | None
    as_json: bool

    @property
    def values(self) -> tuple[float, float, float | None, str | None]:
        """Delta, confidence and the claim, as functions of `transcript_audit` take them."""
        return self.delta, self.confidence, self.claimed_epsilon, self.claimed_unit


def check(options: Options) -> None:
    """Raise InputError for options that no transcript can be audited with."""
    transcript_audit.check(*options.values)


def audit_transcript(
    path: Path, options: Options, stop: Callable[[], bool] | None = None
) -> Verdict:
    """Audit a transcript, leave a report, and return the verdict on the claim.

    stop: as of `transcript.follow`, to follow the transcript until then; None for one as it is.
    Raises InputError.
    """
    check(options)
    values = options.values
    directory = path.with_name(f"{path.stem}-audit") if options.out is None else options.out
    report_directory.check(directory)  # before hours of following
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
    if options.as_json:
        print_json(report)
    else:
        console.print(transcript_report.summary(report))
        console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    return verdict_of(report)
