"""Audits what an auditor's node recorded, after the run or while it goes on."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from fedsim.audits.live import from_transcript
from fedsim.audits.live.live_rounds import Belief, Look
from fedsim.cli.auditing.options import OfEvery
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import private_files, report_directory
from fedsim.common.strict_json import report_json
from fedsim.federation.transcripts.reader import Reader, follow
from fedsim.federation.transcripts.records import ObservedRound


def audit_live(path: Path, every: OfEvery, stop: Callable[[], bool] | None = None) -> int:
    """Work out the beliefs of an auditor, show them as they come, and leave a report.

    Every belief is a line of beliefs.jsonl in the report's directory; of a transcript that is
    followed, with --json, it is one on standard output as well, and the report the last.

    Args:
        stop: as of `transcript.follow`, to follow it until then; None for one as it is.
    """
    from fedsim.report.kinds import live as live_words  # noqa: PLC0415  (matplotlib is slow to import)

    # What is wrong with the options shows before the run, not after.
    found, directory = from_transcript.opened(path, every.options), every.directory(path)
    streaming = every.as_json and stop is not None
    console = Terminal(stderr=True)
    report_directory.check(directory)
    rounds = _rounds(path, stop)
    for observed in itertools.islice(rounds, 1):
        found.begin(observed)
    report_directory.create(directory)
    with report_directory.refusing(directory):
        with private_files.opened_new(directory / "beliefs.jsonl") as file, view(console) as show:
            seen: list[Belief | Look] = []
            for belief in map(found.audit.observe, rounds):
                if belief is None:
                    continue
                line = json.dumps(report_json(belief.as_json()), allow_nan=False)
                file.write(f"{line}\n".encode())
                file.flush()
                if streaming:
                    print(line, flush=True)
                seen.append(belief)
                show(live_words.table(seen))
        concluded = found.report()
        report = concluded.report
        page = live_words.write(report, directory, found.audit.looks)
    if streaming:
        print(json.dumps(report_json(report), allow_nan=False), flush=True)
    elif every.as_json:
        print_json(report_json(report))
    console.print(live_words.summary(report))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    return every.exit_status(concluded)


def _rounds(path: Path, stop: Callable[[], bool] | None) -> Iterator[ObservedRound]:
    if stop is not None:
        yield from follow(path, stop=stop)
        return
    with Reader(path) as reader:
        yield from reader.rounds()


@contextmanager
def view(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield what shows a table in place of the one before; nothing without a terminal."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield live.update
