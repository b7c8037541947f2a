"""`fedsim audit`: what a transcript or a Flower app says of a client's privacy."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

from adversaries.errors import InputError
from fedsim.app_audit.configuration import claim_given
from fedsim.audits.verdict import Verdict, exit_status
from fedsim.cli.auditing import following, options
from fedsim.cli.auditing.options import OfApps, OfAuditors, OfEvery, OfFollowing, given
from fedsim.cli.options import ReportAsJson
from fedsim.cli.terminal import Terminal
from fedsim.transcripts.reader import Reader, wait_for_header
from fedsim.transcripts.records import AUDITOR


def audit(
    recorded: options.Recorded = None,
    json_: ReportAsJson = False,
    out: options.Out = None,
    delta: options.Delta = None,
    confidence: options.Confidence = None,
    claimed_epsilon: options.ClaimedEpsilon = None,
    claimed_delta: options.ClaimedDelta = None,
    strict: options.Strict = False,
    app: options.App = None,
    claimed_unit: options.ClaimedUnit = None,
    trials: options.Trials = None,
    rounds: options.Rounds = None,
    clients: options.Clients = None,
    run_config: options.RunConfig = None,
    neighbouring: options.NeighbouringOfApp = None,
    seed: options.Seed = None,
    time_limit: options.TimeLimit = None,
    follow: options.Follow = False,
    once: options.Once = False,
    patience: options.Patience = None,
    data_root: options.DataRoot = None,
    canary_seed_file: options.CanarySeedFile = None,
    no_challenge: options.NoChallenge = False,
    worlds: options.Worlds = None,
) -> None:
    """Audit a federation that was or is being recorded, or a Flower app before it runs.

    From a transcript of fedsim.recording it measures the noise that was really added, each client's
    privacy under that noise, and what canaries show. From the transcript of an auditor's node in a
    fedsim federation it computes the auditor's belief after every round; given the node's folder of
    transcripts, it takes the newest. It runs an app again and again, under attack, in a process of
    its own with your rights: only name code that you would run yourself. To audit a run of `fedsim
    run`, use `fedsim report`.

    Exit status: 0 the claim is supported, or there is none; 3 the audit cannot tell; 4 the claim is
    not supported, or refuted; 1 the audit failed; 2 bad input.

    Examples:

    fedsim audit server.fedt --claimed-epsilon 8 --claimed-delta 1e-5 --strict

    fedsim audit --follow auditor/transcripts --data-root /data/mnist

    fedsim audit --app my-app --claimed-epsilon 2 --claimed-delta 1e-5
    """
    claim = claim_given(claimed_epsilon, claimed_delta, claimed_unit)
    every = OfEvery(claim, delta, confidence, out, json_, strict)
    of_app = OfApps(trials, rounds, clients, run_config, neighbouring, seed, time_limit)
    of_auditor = OfAuditors(data_root, canary_seed_file, no_challenge or None, worlds)
    of_following = OfFollowing(follow or None, once or None, patience)
    if app is None:
        status = _audit_transcripts(recorded, every, of_app, of_auditor, of_following)
    else:
        foreign = bool(given(of_auditor) or given(of_following))
        status = _audit_app(app, recorded, every, of_app, foreign)
    raise typer.Exit(status)


def _audit_app(
    app: Path, recorded: Path | None, every: OfEvery, of_app: OfApps, foreign: bool
) -> int:
    """Audit a Flower app and return the exit status.

    Raises InputError where there is a transcript too; foreign: whether there are its options.
    """
    if recorded is not None or every.delta is not None:
        raise InputError("--app takes neither a transcript nor --delta, but --claimed-delta")
    if foreign:
        raise InputError("--app takes no option of transcripts (see fedsim audit --help)")
    from fedsim.cli.auditing.app_audit import audit_app  # noqa: PLC0415

    return exit_status(audit_app(app, every, of_app), every.strict)


def _audit_transcripts(
    recorded: Path | None,
    every: OfEvery,
    of_app: OfApps,
    of_auditor: OfAuditors,
    of_following: OfFollowing,
) -> int:
    """Audit one transcript, or one after another while they are written; return the exit status.

    Raises InputError for options that do not go together.
    """
    if given(of_app):
        raise InputError("some of these options are for a Flower app; name it with --app PATH")
    if recorded is None:
        raise InputError("audit what? Give a transcript, or --app PATH")
    if recorded.is_dir() and (recorded / "config.toml").exists():
        raise InputError(f"'{recorded}' is a run; its report is made by fedsim report {recorded}")
    if every.claim is not None and every.delta is not None:
        raise InputError("with a claim every epsilon is stated at its delta; leave --delta out")
    if of_following.follow:
        return _follow(recorded, every, of_auditor, of_following)
    if given(of_following):
        raise InputError("--once and --patience are for --follow; leave them out, or add it")
    path = following.newest(recorded) if recorded.is_dir() else recorded
    return _audit_one(path, None, every, of_auditor)


def _follow(
    recorded: Path, every: OfEvery, of_auditor: OfAuditors, of_following: OfFollowing
) -> int:
    """Audit what is being written, and return the exit status."""
    once, patience = bool(of_following.once), of_following.patience
    of_one_run = every.out is not None or of_auditor.worlds is not None
    if recorded.is_dir() and not once and of_one_run:
        raise InputError(
            "--out and --worlds are for one run, and --follow goes on to the next; add --once"
        )
    from fedsim.cli.auditing import live_audit, transcript_audit  # noqa: PLC0415  (torch is slow)

    # Here, where no run has begun yet: one that cannot be audited does not end the following.
    live_audit.check(every, of_auditor)
    transcript_audit.check(every)
    unclaimed = Verdict.NO_CLAIM if every.claim is None else Verdict.NOT_JUDGED
    return following.follow(
        recorded,
        once,
        following.PATIENCE if patience is None else patience,
        partial(_audit_one, every=every, of_auditor=of_auditor),
        Terminal(stderr=True),
        unaudited=exit_status(unclaimed, every.strict),
    )


def _audit_one(
    path: Path, stop: Callable[[], bool] | None, every: OfEvery, of_auditor: OfAuditors
) -> int:
    """Audit a transcript, whoever recorded it, and return the exit status.

    stop: of following it, None for one that is audited as it is. Raises InputError for options
    that do not fit it.
    """
    from fedsim.cli.auditing import live_audit, transcript_audit  # noqa: PLC0415  (torch is slow)

    if _is_auditors(path, stop):
        if every.delta is not None:
            raise InputError("--delta is part of the run that an auditor recorded; leave it out")
        return exit_status(live_audit.audit_live(path, every, of_auditor, stop), every.strict)
    if given(of_auditor):
        raise InputError(
            "--data-root, --canary-seed-file and --worlds are for the transcript of an auditor's "
            "node; leave them out"
        )
    return exit_status(transcript_audit.audit_transcript(path, every, stop), every.strict)


def _is_auditors(path: Path, stop: Callable[[], bool] | None) -> bool:
    """Whether an auditor's node recorded a transcript. Raises InputError if it cannot be read.

    stop: of waiting until the transcript has a header, None for not waiting.
    """
    if stop is not None:
        wait_for_header(path, stop=stop)
    with Reader(path) as reader:
        return reader.facts.recorder == AUDITOR
