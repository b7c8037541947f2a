"""`fedsim.audit`: a claim about an app, a loop, a recording or a running federation."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import claim_given
from fedsim.audits.judgement.options import AuditOptions
from fedsim.commands import own_loop
from fedsim.commands.answer import Answer, of_audit
from fedsim.commands.settings import Progress, changed, console
from fedsim.common import report_directory
from fedsim.privacy.mechanism import Neighbouring

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedsim.audits.judgement.report import AuditReport
    from fedsim.commands.terminal import Terminal

    Target = Path | str | Callable[..., Any] | tuple[npt.ArrayLike, npt.ArrayLike]
    Change = str | Mapping[str, Any]
    Records = str | tuple[npt.ArrayLike, npt.ArrayLike] | None
else:
    Target = Change = str
    Records = str | None

PATIENCE = 600.0
"""Default time, in seconds, without new data after which a run counts as stopped."""


def audit(
    target: Target,
    /,
    *changes: Change,
    claimed_epsilon: float | None = None,
    claimed_delta: float | None = None,
    claimed_unit: Literal["client", "record"] | None = None,
    strict: bool = False,
    delta: float | None = None,
    confidence: float | None = None,
    trials: int | None = None,
    neighbouring: Literal["add-remove", "replace"] | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    data: Records = None,
    records: int | None = None,
    pair: Literal["crafted", "real"] | None = None,
    follow: bool = False,
    patience: float = PATIENCE,
    data_root: Path | None = None,
    weights: Path | None = None,
    canary_seed_file: Path | None = None,
    no_challenge: bool = False,
    guesses: int = 0,
    out: Path | None = None,
    progress: Progress = None,
) -> Answer:
    """Check a privacy claim of a Flower app, a training loop, a recording or a running federation.

    App (a directory): what its configuration guarantees, and what an attack shows over many runs.

    Loop (file.py:function): a training function, with or without Opacus, that takes features,
    labels and a seed, and returns the model or every released step.

    Transcript (NAME.fedt, or the newest of a folder): the noise that was really added, what
    canaries show, and the privacy of each client; for an auditor's node, its belief after every
    round. With --follow, while it is written.

    Scores (.csv, with columns included and score): bounds on ε from canaries that a coin included.
    They may refute a claim, and support none.

    An app or a loop is run in a separate process with your rights: only name code that you would
    run yourself. Exit status: 0 the claim is supported, or nothing is claimed (3 with --strict);
    3 the audit cannot tell; 4 the claim is not supported or is refuted, or without a claim an
    alarm contradicts what was configured.

    Examples: fedsim audit my-app --claimed-epsilon 2 --claimed-delta 1e-5 --claimed-unit client

    fedsim audit mine.py:train --claimed-epsilon 2 --claimed-delta 1e-5

    fedsim audit server.fedt --claimed-epsilon 8 --claimed-delta 1e-5 --claimed-unit record

    fedsim audit auditor/transcripts --follow --data-root /data/mnist

    Args:
        target: directory of an app, file.py:function or module:function, transcript or folder of
            transcripts, or scores (.csv). In Python also a training function, or
            (included [m], scores [m]).
        changes: run config of an app, as KEY=VALUE.
        claimed_epsilon: epsilon claimed for the whole run.
        claimed_delta: delta of --claimed-epsilon.
        claimed_unit: unit that the claim protects: a client (its whole update) or a record of its
            data. A claim about an app or a federation needs it.
        strict: exit with status 3 if nothing is claimed.
        delta: δ of the epsilons, for a transcript or scores. Default: the claim's, else 1e-5.
        confidence: confidence level of every interval and bound. Default: 0.95.
        trials: number of runs under attack. Default: 300 for an app, 400 for a loop.
        neighbouring: difference between the two worlds of an app or a loop: the client or record is
            missing (add-remove) or replaced (replace). Default: add-remove.
        seed: seed of all random numbers, for an app or a loop.
        time_limit: seconds of each run of an app or a loop. Default: 3600.
        rounds: number of rounds (k) of an app.
        clients: number of clients of an app. Default: 5.
        data: training data of a loop: digits, breast-cancer, an .npz file of features and labels,
            or MODULE:NAME of your own; in Python also (features, labels). Default: digits.
        records: number of records in D of a loop, including the target. Default: 59.
        pair: target of a loop: the worst of three crafted pairs, or a record of the data (real).
            Default: crafted.
        follow: audit a transcript while it is written; in a folder, the newest that has not ended,
            or the next one.
        patience: with --follow, seconds without new data after which a run counts as stopped.
        data_root: folder or file of the data on this machine, for an auditor's transcript.
        weights: local copy of the run's model.weights, for an auditor's transcript.
        canary_seed_file: file with a line for each client that plants canaries, its canary-seed and
            canary-count, for an auditor's transcript.
        no_challenge: skip everything that needs data, for an auditor's transcript.
        guesses: number of canaries of scores to guess, chosen before you see them. 0: one in eight.
        out: directory of the report. Default: NAME-audit beside a transcript; none for others.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The answer; its details are the report of this kind of audit.

    Raises:
        InputError: the target cannot be audited, or the options do not fit it.
    """
    if not (isinstance(target, Path | str | tuple) or callable(target)):
        raise InputError(f"the target is a {type(target).__name__}; give a path or a function")
    options = AuditOptions(
        claim=claim_given(claimed_epsilon, claimed_delta, claimed_unit),
        delta=delta,
        confidence=confidence,
        trials=trials,
        neighbouring=None if neighbouring is None else Neighbouring(neighbouring),
        seed=seed,
        time_limit=time_limit,
        rounds=rounds,
        clients=clients,
        run_config=changed(changes) or None,
        records=records,
        target=pair,
        data_root=_path(data_root),
        weights=_path(weights),
        canary_seed_file=_path(canary_seed_file),
        no_challenge=no_challenge or None,
        guesses=guesses or None,
    )
    place = _path(out)
    if follow and (isinstance(target, tuple) or callable(target)):
        raise InputError("--follow is for transcripts; leave it out")
    if patience != PATIENCE and not follow:
        raise InputError("--patience needs --follow; add it, or leave it out")
    if isinstance(target, tuple) or str(target).endswith(".csv"):
        return _of_scores(target, replace(options, data=_own(data)), strict, place)
    if guesses:
        raise InputError("--guesses is for scores (.csv); leave it out")
    path = Path() if callable(target) else Path(target)
    if path.suffix == ".py":
        raise InputError(f"'{path}' needs a training function; name it, as in {path}:train")
    is_loop = callable(target) or (":" in path.name and not path.exists())
    if is_loop or (path / "pyproject.toml").exists():
        if follow:
            raise InputError("--follow is for transcripts; leave it out")
        with (
            own_loop.named(target if callable(target) else str(target)) as name,
            own_loop.stored(data) as file,
        ):
            order = replace(options, data=file)
            # In place of temporary files.
            shown = target.__name__ if callable(target) else None
            own_data = "(features, labels)" if file != data else None
            return _of_code(name, is_loop, order, strict, place, progress, shown, own_data)
    if not isinstance(data, str | None):
        raise InputError("data is for a training loop; leave it out")
    from fedsim.commands import transcripts  # noqa: PLC0415  (torch)

    if follow:
        return transcripts.followed(path, options, place, patience, strict, progress)
    return transcripts.audited(path, options, place, strict)


def _path(value: Path | str | None) -> Path | None:
    return None if value is None else Path(value)


def _own(data: Records) -> str | None:
    return data if isinstance(data, str | None) else "(features, labels)"


def _of_scores(scores: Any, options: AuditOptions, strict: bool, out: Path | None) -> Answer:
    """Audit the canaries of one training: a CSV file, or arrays (included [m], scores [m])."""
    from fedsim.audits.judgement import canary_scores  # noqa: PLC0415

    options.taken("a table of canary scores")
    if not isinstance(scores, tuple):
        found, name = canary_scores.read_scores(Path(scores)), Path(scores).name
    else:
        found, name = canary_scores.of_arrays(scores), "(included, scores)"
    if out is not None:
        report_directory.check_new(out)
    answer = of_audit(canary_scores.audit(found, name, options), strict)
    return answer if out is None else answer.save(out)


def _of_code(
    target: str,
    is_loop: bool,
    options: AuditOptions,
    strict: bool,
    out: Path | None,
    progress: Progress,
    function: str | None,
    data: str | None,
) -> Answer:
    """Audit an app or a loop, in processes of their own; function, data: names that a report has.

    None stands for the names of the target and of the options.
    """
    if out is not None:
        report_directory.check_new(out)
    claim, level = options.claim, options.level
    if is_loop:
        from fedsim.audits.loop.audit import TRIALS, audit_loop  # noqa: PLC0415

        taken = options.taken("a training loop")
        if claim is not None and claim.unit == "client":
            raise InputError("a training loop protects records; leave --claimed-unit out")
        with _running("loop", taken.get("trials", TRIALS), "pilots", progress) as shown:
            found = audit_loop(target, **taken, claim=claim, confidence=level, **shown)
        details = replace(found.details, data=data or found.details.data)
        outcome: AuditReport[Any] = replace(found, name=function or found.name, details=details)
    else:
        from fedsim.audits.app.audit import TRIALS as APP_TRIALS  # noqa: PLC0415
        from fedsim.audits.app.audit import audit_directory  # noqa: PLC0415

        taken = options.taken("a Flower app")
        with _running("app", taken.get("trials", APP_TRIALS), "honest run", progress) as shown:
            outcome = audit_directory(Path(target), **taken, claim=claim, confidence=level, **shown)
    answer = of_audit(outcome, strict)
    return answer if out is None else answer.save(out)


@contextmanager
def _running(name: str, trials: int, first: str, progress: Progress) -> Iterator[dict[str, Any]]:
    """Yield a file for the code's output, and a function that shows the number of trials."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    from fedsim.reports.tracking.progress import ProgressSteps  # noqa: PLC0415  (Flower)

    shown = console(progress)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with ProgressSteps(*columns, console=shown) as bar, _logged(name, shown) as log:
        task = bar.add_task(first, total=trials)
        yield {
            "log": log,
            "progress": lambda done: bar.update(task, completed=done, description="attacking"),
        }


@contextmanager
def _logged(name: str, shown: "Terminal") -> Iterator[IO[bytes]]:
    """Yield a temporary file, which is kept and named if the code prints anything."""
    with NamedTemporaryFile(prefix=f"fedsim-{name}-", suffix=".log", delete=False) as log:
        try:
            yield log
        finally:
            path = Path(log.name)
            if path.stat().st_size:
                shown.print(f"Output of the {name}: {path}", soft_wrap=True, highlight=False)
            else:
                path.unlink()
