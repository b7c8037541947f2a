"""`fedsim audit app`, `transcript` and `live`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Verdict, exit_status
from fedsim.audits.judgement.options import AuditOptions
from fedsim.cli.auditing import following, options
from fedsim.cli.auditing.options import Claimed, OfEvery, TranscriptOptions
from fedsim.cli.options import AsJson, Confidence, Seed
from fedsim.cli.terminal import Terminal
from fedsim.config import parse_overrides
from fedsim.federation.transcripts.reader import Reader, wait_for_header
from fedsim.federation.transcripts.records import AUDITOR

RECORDED = "transcript audit", "live audit"


def app(
    path: options.App,
    claimed: Claimed,
    trials: options.Trials = None,
    rounds: options.Rounds = None,
    clients: options.Clients = None,
    run_config: options.RunConfig = None,
    neighbouring: options.NeighbouringOfApp = None,
    time_limit: options.TimeLimit = None,
    confidence: Confidence = None,
    seed: Seed = None,
    out: options.OutOfApp = None,
    json_: AsJson = False,
) -> None:
    """Audit a Flower app before it runs: what its configuration guarantees and an attack shows.

    Runs the app many times, under attack, in a separate process with your rights. Only name code
    that you would run yourself.

    Example: fedsim audit app my-app --claimed-epsilon 2 --claimed-delta 1e-5 --claimed-unit client
    """
    from fedsim.cli.auditing.code_audit import audit_app  # noqa: PLC0415

    of_app = AuditOptions(
        confidence=confidence,
        trials=trials,
        rounds=rounds,
        clients=clients,
        run_config=parse_overrides(run_config),
        neighbouring=neighbouring,
        seed=seed,
        time_limit=time_limit,
    )
    raise typer.Exit(audit_app(path, claimed.judging(of_app, out, json_, "app audit")))


def transcript(
    recorded: options.Recorded,
    claimed: Claimed,
    of_transcript: TranscriptOptions,
    out: options.Out = None,
    json_: AsJson = False,
) -> None:
    """Audit a recorded federation: the noise that was really added, and what canaries show.

    For a transcript of fedsim.recording, it measures the noise and states each client's privacy
    under it. For a transcript of an auditor's node in a fedsim federation, it computes the
    auditor's belief after every round. For a folder of transcripts, it takes the newest.

    Example: fedsim audit transcript server.fedt --claimed-epsilon 8 --claimed-delta 1e-5
    """
    _check(recorded)
    every = claimed.judging(AuditOptions(**vars(of_transcript)), out, json_, *RECORDED)
    path = following.newest(recorded) if recorded.is_dir() else recorded
    raise typer.Exit(_audit_one(path, None, every))


def live(
    *,
    recorded: options.Recorded,
    claimed: Claimed,
    once: options.Once = False,
    patience: options.Patience = following.PATIENCE,
    of_transcript: TranscriptOptions,
    out: options.Out = None,
    json_: AsJson = False,
) -> None:
    """Audit a federation while it is recorded, round by round.

    Does the same as `fedsim audit transcript`, for a transcript that is still being written. For a
    folder, it continues with the next transcript until Ctrl-C.

    Example: fedsim audit live auditor/transcripts --data-root /data/mnist
    """
    _check(recorded)
    every = claimed.judging(AuditOptions(**vars(of_transcript)), out, json_, *RECORDED)
    raise typer.Exit(_follow(recorded, every, once, patience))


def _check(recorded: Path) -> None:
    """Raise InputError for a run directory, which holds no transcript."""
    if recorded.is_dir() and (recorded / "config.toml").exists():
        raise InputError(f"'{recorded}' is a run directory; run fedsim report {recorded}")


def _follow(recorded: Path, every: OfEvery, once: bool, patience: float) -> int:
    """Audit a transcript, or those of a folder, while it is written; return the exit status."""
    for_one_run = every.out is not None or every.options.worlds is not None
    if recorded.is_dir() and not once and for_one_run:
        raise InputError(
            "--out and --worlds are for one run, but more may arrive in a folder that is followed; "
            "add --once, or name one transcript"
        )
    from fedsim import auditors_transcript  # noqa: PLC0415  (torch is slow)

    # Refuse bad options now. Later, an InputError only skips one transcript of a folder.
    auditors_transcript.check_options(every.options)
    unclaimed = Verdict.NO_CLAIM if every.options.claim is None else Verdict.NOT_JUDGED
    return following.follow(
        recorded,
        once,
        patience,
        partial(_audit_one, every=every),
        Terminal(stderr=True),
        unaudited=max(exit_status(unclaimed, every.strict), every.gate.unseen),
    )


def _audit_one(path: Path, stop: Callable[[], bool] | None, every: OfEvery) -> int:
    """Audit a transcript of a recorder or of an auditor's node, and return the exit status.

    Args:
        stop: returns whether to stop following; None to audit the transcript as it is.

    Raises:
        InputError: the options do not fit the transcript.
    """
    from fedsim.cli.auditing import live_audit  # noqa: PLC0415  (torch is slow)

    if _is_auditors(path, stop):
        return live_audit.audit_live(path, every, stop)
    every.options.taken("a recorded transcript")
    return live_audit.audit_transcript(path, every, stop)


def _is_auditors(path: Path, stop: Callable[[], bool] | None) -> bool:
    """Return whether an auditor's node recorded a transcript; `stop`: wait for its header first."""
    if stop is not None:
        wait_for_header(path, stop=stop)
    with Reader(path) as reader:
        return reader.facts.recorder == AUDITOR
