"""The output of recorders. If it fails, they say so once, and the app continues."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fedsim
from adversaries.errors import InputError
from fedsim.common.installation import installed
from fedsim.federation.transcripts.records import Facts, ObservedRound
from fedsim.federation.transcripts.writer import Writer

Sink = Callable[[ObservedRound], None]
RUN = "{run}"
log = logging.getLogger("flwr")


class RoundSink:
    """The output of a recorder's rounds. After one failure, logged, it ignores further rounds."""

    def __init__(
        self,
        to: str | Path | Sink,
        app: str,
        resume: bool,
        vantage: str = "server",
        recorder: str = "fedsim.recording.record",
        packages: Iterable[str] = (),
    ) -> None:
        self._to, self._app, self._resume = to, app, resume
        self._vantage, self._recorder, self._packages = vantage, recorder, tuple(packages)
        self._send: Sink | None = to if callable(to) else None
        self._writer: Writer | None = None
        self._reason = ""
        if self._send is None and RUN not in str(to):
            self._open(Path(str(to)), "")

    def begin(self, run: str) -> None:
        if self._send is None:
            self._open(Path(str(self._to).replace(RUN, run)), run)

    def __call__(self, observed: ObservedRound) -> None:
        if self._reason:
            return
        if self._send is None:
            raise RuntimeError(f"{self._to} needs its run, but a round came before Strategy.start")
        self._send(observed)

    def guarded(self) -> "_Guard":
        return _Guard(self)

    def fail(self, error: Exception) -> None:
        if self._reason:
            return
        self._reason = f"{type(error).__name__}: {error}"
        log.error(
            "fedsim: RECORDING STOPPED, the transcript is incomplete; the app goes on (%s)",
            self._reason,
        )
        self.end(self._reason)

    def end(self, reason: str, *, resumable: bool = False) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(Exception):  # a full disk: the missing last record shows the same
                writer.end(reason, resumable=resumable)

    def _open(self, path: Path, run: str) -> None:
        if path.exists() and not self._resume:
            raise InputError(
                f"'{path}' exists; name a new transcript, or continue it with resume=True"
            )
        facts = facts_of(self._vantage, self._recorder, self._app, run=run, packages=self._packages)
        self._writer = Writer(path, facts)
        self._send = self._writer.append


class _Guard:
    def __init__(self, sink: RoundSink) -> None:
        self._sink = sink

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._sink.fail(error)
        return True


def append(
    path: str | Path,
    node: Callable[[], int],
    run: str,
    app: str,
    recorder: str,
    observed: Callable[[], ObservedRound],
) -> None:
    """Append one round to the transcript of a client, which may be a new process each time."""
    try:
        mine = node()
        place = Path(str(path).replace("{node}", str(mine)).replace(RUN, run))
        facts = facts_of("participant", recorder, app, mine, run)
        with Writer(place, facts) as writer:
            writer.append(observed())
    except Exception as error:
        log_failure(str(path), error)


def facts_of(
    vantage: str,
    recorder: str,
    app: str,
    node: int | None = None,
    run: str = "",
    packages: Iterable[str] = (),
) -> Facts:
    """Return the first record of a transcript, with the versions of the packages that matter."""
    versions = {"fedsim": fedsim.__version__} | installed(("flwr", "numpy", *packages))
    return Facts(vantage, recorder, app, node, run, versions)


def safely(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function; None if it fails, which the transcript then shows."""
    try:
        return function(*arguments)
    except Exception as error:
        log_failure(function.__name__, error)
        return None


_LOGGED: set[str] = set()
"""Failures that this process has logged; each is logged once, or they would flood the log."""


def log_failure(subject: str, error: Exception) -> None:
    if subject not in _LOGGED:
        _LOGGED.add(subject)
        log.error(
            "fedsim: RECORDING FAILED, the transcript is incomplete; the app goes on (%s: %s: %s)",
            subject,
            type(error).__name__,
            error,
        )
