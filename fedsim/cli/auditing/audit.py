"""`fedsim audit`: what a transcript or a Flower app says of an owner's privacy."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from adversaries.errors import InputError
from fedsim.app_audit.configuration import claim_given
from fedsim.audits.verdict import Verdict, exit_status
from fedsim.cli.auditing import following
from fedsim.cli.options import ReportAsJson
from fedsim.cli.terminal import Terminal
from fedsim.privacy.mechanism import Neighbouring
from fedsim.transcripts.reader import Reader, wait_for_header
from fedsim.transcripts.records import AUDITOR


def audit(
    recorded: Annotated[
        Path | None,
        typer.Argument(metavar="[TRANSCRIPT]", help="A transcript, or a folder of them."),
    ] = None,
    json_: ReportAsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the report; default NAME-audit beside a transcript."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta at which every epsilon is stated.", show_default="1e-5"),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence of every interval.", show_default="0.95")
    ] = None,
    claimed_epsilon: Annotated[
        float | None, typer.Option(help="An epsilon that somebody claims of the whole run.")
    ] = None,
    claimed_delta: Annotated[
        float | None, typer.Option(help="The delta of --claimed-epsilon.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 where nobody claims anything, too.")
    ] = False,
    app: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Instead of a transcript: a Flower app's directory, whose code is run.",
        ),
    ] = None,
    claimed_unit: Annotated[
        Literal["client", "record"] | None,
        typer.Option(
            help="Whom the claim protects: a client, with its whole update as training returns it, "
            "or a record of its data.",
            show_default="as it can be told",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="With --app: how often it is run under attack.", show_default="300"),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="With --app: its num-server-rounds.", show_default="its own")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="With --app: clients.", show_default="5")
    ] = None,
    run_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="With --app: its run config; may be repeated."),
    ] = None,
    neighbouring: Annotated[
        Neighbouring | None,
        typer.Option(
            help="With --app: a client sends its update or none, or another update.",
            show_default="add-remove",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="With --app: of every random number.", show_default="0"),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="With --app: that one run of it may take.", show_default="3600"
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Go on while a transcript is written; of a folder, with the next one, to Ctrl-C.",
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --follow: end after one run.")] = False,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --follow: without a sign of life, after which a run is taken for dead.",
            show_default="600",
        ),
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(help="Of an auditor's transcript: where this machine has the run's data."),
    ] = None,
    canary_seed_file: Annotated[
        Path | None,
        typer.Option(help="Of an auditor's transcript: a file with the canaries' seed."),
    ] = None,
    no_challenge: Annotated[
        bool,
        typer.Option("--no-challenge", help="Of an auditor's transcript: canaries only, no data."),
    ] = False,
    worlds: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Of an auditor's transcript: the run that tells who was right."
        ),
    ] = None,
) -> None:
    """Audit a federation that was or is being recorded, or a Flower app before it runs.

    Of a transcript of fedsim.recording, measures the noise that was really added, what it makes of
    each owner's privacy, and what canaries found. Of an auditor's node in a fedsim federation,
    works out its belief after every round; its folder of transcripts stands for the newest one. An
    app is run again and again, under attack, in a process of its own with your rights: only name
    code that you would run yourself. What a run of `fedsim run` proves, `fedsim report` says.

    Exit status: 0 the claim is supported, or there is none; 3 the audit cannot tell; 4 the claim is
    not supported, or refuted; 1 the audit failed; 2 bad input.

    Examples:

    fedsim audit server.fedt --claimed-epsilon 8 --claimed-delta 1e-5 --strict

    fedsim audit --follow auditor/transcripts --data-root /data/mnist

    fedsim audit --app my-app --claimed-epsilon 2 --claimed-delta 1e-5
    """
    claim = claim_given(claimed_epsilon, claimed_delta, claimed_unit)
    of_auditors = (data_root, canary_seed_file, worlds, no_challenge or None)
    if app is not None:
        from fedsim.cli.auditing.app_audit import audit_app  # noqa: PLC0415

        if recorded is not None or delta is not None:
            raise InputError("--app takes neither a transcript nor --delta, but --claimed-delta")
        if follow or once or any(option is not None for option in (*of_auditors, patience)):
            raise InputError("--app takes no option of transcripts (see fedsim audit --help)")
        status = audit_app(
            app,
            trials=300 if trials is None else trials,
            rounds=rounds,
            nodes=5 if nodes is None else nodes,
            run_config=run_config or [],
            claim=claim,
            neighbouring=neighbouring or Neighbouring.ADD_REMOVE,
            confidence=0.95 if confidence is None else confidence,
            seed=seed or 0,
            out=out,
            as_json=json_,
            strict=strict,
            time_limit=3600.0 if time_limit is None else time_limit,
        )
        raise typer.Exit(status)
    of_apps = (trials, rounds, nodes, run_config, neighbouring, seed, time_limit)
    if any(option is not None for option in of_apps):
        raise InputError("some of these options are for a Flower app; name it with --app PATH")
    if recorded is None:
        raise InputError("audit what? Give a transcript, or --app PATH")
    if recorded.is_dir() and (recorded / "config.toml").exists():
        raise InputError(f"'{recorded}' is a run; its report is made by fedsim report {recorded}")
    from fedsim.cli.auditing import live_audit, transcript_audit  # noqa: PLC0415  (torch is slow to import)

    if not follow and (once or patience is not None):
        raise InputError("--once and --patience are for --follow; leave them out, or add it")
    if follow and recorded.is_dir() and not once and (out is not None or worlds is not None):
        raise InputError(
            "--out and --worlds are for one run, and --follow goes on to the next; add --once"
        )
    if claim is not None and delta is not None:
        raise InputError("with a claim every epsilon is stated at its delta; leave --delta out")
    level = 0.95 if confidence is None else confidence
    live = live_audit.Options(
        data_root=data_root,
        canary_seed_file=canary_seed_file,
        challenge=not no_challenge,
        worlds=worlds,
        claim=claim,
        out=out,
        confidence=level,
        as_json=json_,
    )
    foreign = transcript_audit.Options(
        delta=next((each for each in (claimed_delta, delta) if each is not None), 1e-5),
        confidence=level,
        claimed_epsilon=claimed_epsilon,
        claimed_unit=claimed_unit,
        out=out,
        as_json=json_,
    )

    def audit_one(path: Path, stop: Callable[[], bool] | None = None) -> int:
        if _is_auditors(path, stop):
            if delta is not None:
                raise InputError(
                    "--delta is part of the run that an auditor recorded; leave it out"
                )
            return exit_status(live_audit.audit_live(path, live, stop), strict)
        if any(option is not None for option in of_auditors):
            raise InputError(
                "--data-root, --canary-seed-file and --worlds are for the transcript of an "
                "auditor's node; leave them out"
            )
        return exit_status(transcript_audit.audit_transcript(path, foreign, stop), strict)

    if not follow:
        path = following.newest(recorded) if recorded.is_dir() else recorded
        raise typer.Exit(audit_one(path))
    # Here, where no run has begun yet: one that cannot be audited does not end the following.
    live_audit.check(live)
    transcript_audit.check(foreign)
    console = Terminal(stderr=True)
    waits = following.PATIENCE if patience is None else patience
    unaudited = exit_status(Verdict.NO_CLAIM if claim is None else Verdict.NOT_JUDGED, strict)
    raise typer.Exit(following.follow(recorded, once, waits, audit_one, console, unaudited))


def _is_auditors(path: Path, stop: Callable[[], bool] | None) -> bool:
    """Whether an auditor's node recorded a transcript. Raises InputError if it cannot be read.

    stop: of waiting until the transcript has a header, None for not waiting.
    """
    if stop is not None:
        wait_for_header(path, stop=stop)
    with Reader(path) as reader:
        return reader.facts.recorder == AUDITOR
