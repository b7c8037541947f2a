"""Audits of a transcript, of an auditor's node or of a recorder, during or after the run."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from adversaries.errors import InputError
from fedsim import auditors_transcript
from fedsim.audits.live.live_rounds import Belief, LiveLook
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.cli.auditing.options import OfEvery
from fedsim.cli.terminal import Terminal, print_json, results
from fedsim.common import private_files, report_directory
from fedsim.common.report_directory import SUMS
from fedsim.common.strict_json import report_json
from fedsim.federation.transcripts.reader import Reader, follow
from fedsim.federation.transcripts.records import ObservedRound
from fedsim.report.kinds import audited


def audit_live(path: Path, every: OfEvery, stop: Callable[[], bool] | None = None) -> int:
    """Compute and show the beliefs of an auditor, write a report, and return the exit status.

    Every belief becomes a line of beliefs.jsonl in the report's directory. With `stop`, which tells
    when to stop following, and --json, it is also a line on standard output, and the report is
    last.
    """
    from fedsim.report.kinds import course  # noqa: PLC0415  (matplotlib is slow to import)

    # Refuse bad options before the run, not after it.
    live, directory = auditors_transcript.opened(path, every.options), every.directory(path)
    streaming = every.as_json and stop is not None
    console = Terminal(stderr=True)
    report_directory.check_writable(directory)
    rounds = _rounds(path, stop)
    for observed in itertools.islice(rounds, 1):
        live.begin(observed)
    report_directory.create(directory)
    with report_directory.refusing(directory):
        with private_files.opened_new(directory / "beliefs.jsonl") as file, view(console) as show:
            beliefs: list[Belief | LiveLook] = []
            for belief in map(live.audit.observe, rounds):
                if belief is None:
                    continue
                line = json.dumps(report_json(belief.as_json()), allow_nan=False)
                file.write(f"{line}\n".encode())
                file.flush()
                if streaming:
                    print(line, flush=True)
                beliefs.append(belief)
                show(course.view(beliefs))
        report = live.report()
        page = audited.write(report, directory, beliefs)
    if streaming:
        print(json.dumps(report.report, allow_nan=False), flush=True)
    elif every.as_json:
        print_json(report.report)
    result = results(as_json=every.as_json)
    result.print(audited.summary(report))
    result.print(f"Report: {page}", soft_wrap=True)
    return every.exit_status(report)


def _rounds(path: Path, stop: Callable[[], bool] | None) -> Iterator[ObservedRound]:
    if stop is not None:
        yield from follow(path, stop=stop)
        return
    with Reader(path) as reader:
        yield from reader.rounds()


@contextmanager
def view(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield a function that shows a table in place of the last one; it needs a terminal."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield live.update


def audit_transcript(path: Path, every: OfEvery, stop: Callable[[], bool] | None = None) -> int:
    """Audit a transcript, write a report, and return the exit status."""
    directory = every.directory(path)
    report_directory.check_writable(directory)  # before hours of following
    _check_unsealed(directory)
    console = Terminal(stderr=True)
    if stop is not None:
        with view(console) as show:
            with Reader(path) as reader:
                auditor = transcript_audit.Auditor(reader.facts)
            for observed in follow(path, stop=stop):
                auditor.observe(observed)
                if console.is_terminal:  # an interim report costs as much as all rounds before it
                    show(audited.summary(auditor.report(every.options)))
    with Reader(path) as reader:
        report = transcript_audit.audit(reader, every.options)
    page = audited.write(report, directory)
    if every.as_json:
        print_json(report.report)
    else:
        results().print(audited.summary(report))
        results().print(f"Report: {page}", soft_wrap=True)
    return every.exit_status(report)


def _check_unsealed(directory: Path) -> None:
    """Raise InputError if the report would replace one whose sums are listed."""
    if (directory / SUMS).exists() and (directory / "report.json").exists():
        raise InputError(
            f"'{directory / SUMS}' lists the report in '{directory}', and a new report would no "
            f"longer match it; name another directory with --out, or delete {SUMS}"
        )
