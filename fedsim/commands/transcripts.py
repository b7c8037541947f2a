"""Audits of transcripts, of a recorder or of an auditor's node, after or during the run."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError
from fedsim import auditors_transcript
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.live.live_rounds import Look
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.commands import following
from fedsim.commands.answer import Answer, of_audit
from fedsim.commands.settings import Progress, console
from fedsim.common import private_files, report_directory
from fedsim.common.report_directory import SUMS
from fedsim.common.strict_json import report_json
from fedsim.federation.transcripts.folder import holds_several
from fedsim.federation.transcripts.reader import Reader, follow, has_ended, wait_for_facts
from fedsim.federation.transcripts.records import AUDITOR, ObservedRound

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedsim.commands.terminal import Terminal

INTERIM = 60.0
"""Seconds between two reports of a live audit that goes on."""

Stop = Callable[[], bool] | None


def audited(path: Path, options: AuditOptions, out: Path | None, strict: bool) -> Answer:
    """Audit a transcript, or the newest of a folder.

    Args:
        path: of the transcript or the folder.
        options: of the audit.
        out: directory of the report; None for the default, where the command saves it.
        strict: whether an audit without a claim ends with exit status 3.
    """
    _check(path)
    file = following.newest(path) if holds_several(path) else path
    place = _beside(file) if out is None else out
    report_directory.check_writable(place)
    saved: dict[str, Any] = {"place": place, "replaces": True}
    if not _is_auditors(file, None):
        options.taken("a recorded transcript")
        _check_unsealed(place)
        with Reader(file) as reader:
            report = transcript_audit.audit(reader, options)
        saved["_write"] = partial(_write_recorded, report)
        answer = of_audit(report, strict, **saved)
    else:
        live, course = _begun(file, options, None)
        beliefs = list(course)
        found = live.report()
        saved["_write"] = partial(_write_live, found, beliefs)
        answer = of_audit(found, strict, **saved)
    return answer if out is None else answer.save(out)


def followed(
    path: Path,
    options: AuditOptions,
    out: Path | None,
    patience: float,
    strict: bool,
    progress: Progress,
) -> Answer:
    """Audit a transcript while it is written, and write its report.

    SIGINT or SIGTERM ends it; the report then covers the rounds so far.

    Args:
        path: of the transcript, or of a folder, for the newest that has not ended or the next one.
        options: of the audit.
        out: directory of the report; None for one beside the transcript.
        patience: seconds without new data after which the run counts as stopped.
        strict: whether an audit without a claim ends with exit status 3.
        progress: whether to show the rounds so far.
    """
    _check(path)
    if not patience > 0:
        raise InputError(f"--patience is {patience:g}; give a number of seconds above 0")
    auditors_transcript.check_options(options)  # before a run begins
    shown = console(progress)
    shown.print(f"Following {path}; Ctrl-C ends it", soft_wrap=True, highlight=False)
    with following.interrupted() as stopping:
        file = following.growing(path, stopping) if holds_several(path) else path
        watch = following.Watch(file, patience, stopping)
        place = _beside(file) if out is None else out
        answer = _while_written(file, options, place, strict, watch, shown)
    if watch.left and not has_ended(file):  # it may have ended at the last moment
        return replace(answer, warnings=(*answer.warnings, f"{file.name}: {watch.left}"))
    return answer


def _while_written(
    path: Path,
    options: AuditOptions,
    directory: Path,
    strict: bool,
    stop: Callable[[], bool],
    shown: "Terminal",
) -> Answer:
    """Audit a transcript while it is written, and write its report."""
    from fedsim.reports.document import terminal  # noqa: PLC0415
    from fedsim.reports.kinds import audited as pages  # noqa: PLC0415
    from fedsim.reports.kinds.course import view  # noqa: PLC0415  (matplotlib)

    report_directory.check_writable(directory)  # before hours of following
    if not _is_auditors(path, stop):
        options.taken("a recorded transcript")
        _check_unsealed(directory)
        with _view(shown) as show:
            with Reader(path) as reader:
                auditor = transcript_audit.Auditor(reader.facts)
            for observed in follow(path, stop=stop):
                auditor.observe(observed)
                if shown.is_terminal:  # an interim report costs as much as all rounds before it
                    show(terminal.told(pages.told(auditor.report(options))))
        with Reader(path) as reader:
            report = transcript_audit.audit(reader, options)
        page = _write_recorded(report, directory)
        return of_audit(report, strict, path=directory, page=page)
    live, course = _begun(path, options, stop)
    report_directory.create(directory)
    with report_directory.refusing(directory):
        with private_files.opened_new(directory / "beliefs.jsonl") as file, _view(shown) as show:
            beliefs, written = list[Look](), -INTERIM
            for belief in course:
                file.write(_line(belief))
                file.flush()
                beliefs.append(belief)
                show(view(beliefs))
                # A run has its worlds when it has ended.
                if options.worlds is None and time.monotonic() - written > INTERIM:
                    pages.write(live.report(), directory, beliefs)
                    written = time.monotonic()
        found = live.report()
        page = pages.write(found, directory, beliefs)
    return of_audit(found, strict, path=directory, page=page)


def _line(belief: Look) -> bytes:
    return f"{json.dumps(report_json(belief.as_json()), allow_nan=False)}\n".encode()


def _write_recorded(report: Any, directory: Path) -> Path:
    from fedsim.reports.kinds import audited as pages  # noqa: PLC0415

    _check_unsealed(directory)
    return pages.write(report, directory)


def _write_live(report: Any, beliefs: list[Look], directory: Path) -> Path:
    """Write a live audit's report, and every belief as a line of beliefs.jsonl."""
    from fedsim.reports.kinds import audited as pages  # noqa: PLC0415

    _check_unsealed(directory)
    report_directory.create(directory)
    with report_directory.refusing(directory):
        with private_files.opened_new(directory / "beliefs.jsonl") as file:
            file.writelines(map(_line, beliefs))
        return pages.write(report, directory, beliefs)


def _check(path: Path) -> None:
    """Raise InputError for a run directory, which holds no transcript."""
    if (path / "config.toml").exists():
        raise InputError(f"'{path}' is a run directory; run fedsim report {path}")


def _beside(transcript: Path) -> Path:
    """Return the default directory of a transcript's report."""
    return transcript.with_name(f"{transcript.stem}-audit")


def _is_auditors(path: Path, stop: Stop) -> bool:
    """Return whether an auditor's node recorded a transcript; `stop`: wait for its header first."""
    if stop is not None:
        wait_for_facts(path, stop=stop)
    with Reader(path) as reader:
        return reader.facts.recorder == AUDITOR


def _begun(
    path: Path, options: AuditOptions, stop: Stop
) -> tuple[auditors_transcript.AuditorsTranscript, Iterator[Look]]:
    """Begin the audit of an auditor's transcript; return it, and its beliefs round by round."""
    live, rounds = auditors_transcript.opened(path, options), _rounds(path, stop)
    for observed in itertools.islice(rounds, 1):
        live.begin(observed)
    return live, (each for each in map(live.audit.observe, rounds) if each is not None)


def _rounds(path: Path, stop: Stop) -> Iterator[ObservedRound]:
    if stop is not None:
        yield from follow(path, stop=stop)
        return
    with Reader(path) as reader:
        yield from reader.rounds()


@contextmanager
def _view(shown: "Terminal") -> "Iterator[Callable[[RenderableType], None]]":
    """Yield a function that shows a table in place of the last one; it needs a terminal."""
    from rich.live import Live  # noqa: PLC0415

    if not shown.is_terminal or shown.quiet:
        yield lambda _: None
        return
    with Live(console=shown, transient=True, refresh_per_second=4) as live:
        yield live.update


def _check_unsealed(directory: Path) -> None:
    """Raise InputError if the report would replace one whose sums are listed."""
    if (directory / SUMS).exists() and (directory / "report.json").exists():
        raise InputError(
            f"'{directory / SUMS}' lists the report in '{directory}', and a new report would no "
            f"longer match it; name another directory with --out, or delete {SUMS}"
        )
