"""Audits of transcripts, of a recorder or of an auditor's node, after or during the run."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError
from fedsim import auditors_transcript
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.live.live_audit import Look
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

    from fedsim.audits.judgement.report import AuditReport
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
    answer = _audited(file, options, out, strict, None, None)
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
        answer = _audited(file, options, out, strict, watch, shown)
    if answer.place is not None:
        answer = answer.save(answer.place)
    if watch.left and not has_ended(file):  # it may have ended at the last moment
        return replace(answer, warnings=(*answer.warnings, f"{file.name}: {watch.left}"))
    return answer


def _audited(
    file: Path,
    options: AuditOptions,
    out: Path | None,
    strict: bool,
    stop: Stop,
    shown: "Terminal | None",
) -> Answer:
    """Audit one transcript; with `stop` and `shown`, while it is written."""
    place = file.with_name(f"{file.stem}-audit") if out is None else out
    report_directory.check_writable(place)  # before hours of following
    looks: list[Look] | None = None
    if _is_auditors(file, stop):
        report, looks = _live(file, options, stop, shown, place)
    else:
        options.taken("a recorded transcript")
        _check_unsealed(place)
        if stop is not None and shown is not None:
            _watched(file, options, stop, shown)
        with Reader(file) as reader:
            report = transcript_audit.audit(reader, options)
    write = partial(_write, report, looks)
    return of_audit(report, strict, place=place, replaces=True, _write=write)


def _watched(
    file: Path, options: AuditOptions, stop: Callable[[], bool], shown: "Terminal"
) -> None:
    """Show the audit of a recorded transcript so far, until it has ended."""
    from fedsim.reports.document import terminal  # noqa: PLC0415
    from fedsim.reports.kinds import audited as pages  # noqa: PLC0415

    with Reader(file) as reader:
        auditor = transcript_audit.Auditor(reader.facts)
    with _view(shown) as show:
        for observed in follow(file, stop=stop):
            auditor.observe(observed)
            if shown.is_terminal:  # an interim report costs as much as all rounds before it
                show(terminal.told(pages.told(auditor.report(options))))


def _live(
    file: Path, options: AuditOptions, stop: Stop, shown: "Terminal | None", place: Path
) -> "tuple[AuditReport[Any], list[Look]]":
    """Audit what an auditor's node recorded, and keep each belief while it is written."""
    live, rounds = auditors_transcript.opened(file, options), _rounds(file, stop)
    for observed in itertools.islice(rounds, 1):
        live.begin(observed)
    found = (each for each in map(live.audit.observe, rounds) if each is not None)
    if shown is None:
        looks = list(found)
        return live.report(), looks
    from fedsim.reports.kinds import audited as pages  # noqa: PLC0415
    from fedsim.reports.kinds.course import view  # noqa: PLC0415  (matplotlib)

    looks, written = list[Look](), -INTERIM
    report_directory.create(place)
    with (
        report_directory.refusing(place),
        _view(shown) as show,
        private_files.opened_new(place / BELIEFS) as kept,
    ):
        for look in found:
            kept.write(_line(look))
            kept.flush()
            looks.append(look)
            show(view(looks))
            if time.monotonic() - written > INTERIM:
                pages.write(live.report(), place, looks)
                written = time.monotonic()
    return live.report(), looks


BELIEFS = "beliefs.jsonl"


def _line(look: Look) -> bytes:
    return f"{json.dumps(report_json(look.as_json()), allow_nan=False)}\n".encode()


def _write(report: "AuditReport[Any]", looks: Sequence[Look] | None, directory: Path) -> Path:
    """Write the report of an audit, and every belief of a live one as a line of a file."""
    from fedsim.reports.kinds import audited as pages  # noqa: PLC0415

    _check_unsealed(directory)
    if looks is not None:
        report_directory.create(directory)
        kept = directory / BELIEFS
        with report_directory.refusing(directory), private_files.opened_new(kept) as file:
            file.writelines(map(_line, looks))
    return pages.write(report, directory, looks or ())


def _check(path: Path) -> None:
    """Raise InputError for a run directory, which holds no transcript."""
    if (path / "config.toml").exists():
        raise InputError(f"'{path}' is a run directory; run fedsim report {path}")


def _is_auditors(path: Path, stop: Stop) -> bool:
    """Return whether an auditor's node recorded a transcript; `stop`: wait for its header first."""
    if stop is not None:
        wait_for_facts(path, stop=stop)
    with Reader(path) as reader:
        return reader.facts.recorder == AUDITOR


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
