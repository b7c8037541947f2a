"""The Python API: run and audit, with results as values for a notebook.

`import fedsim` exports these names, and loads this module when one is used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval
from fedsim import config as configuration
from fedsim.audits.judgement.claim import claim_given
from fedsim.audits.judgement.options import CONFIDENCE, AuditOptions
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.results import report as results
from fedsim.audits.results.report import Report
from fedsim.audits.results.rows import RunRow as Row
from fedsim.config import Config, Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.privacy.mechanism import Neighbouring

if TYPE_CHECKING:  # slow to import
    from matplotlib.figure import Figure
    from rich.console import Console
    from torch.nn import Module

    from adversaries.attacks.membership_attacks import Attack, Score

Audit = AuditReport
Builder = Callable[..., "Module"]


@dataclass(frozen=True)
class Advantage:
    """The adversary's advantage over guessing; 0 is a coin, 1 is certainty.

    Attributes:
        point: true positive rate minus false positive rate.
        interval: confidence interval; None if all trials were of one world.
    """

    point: float
    interval: Interval | None


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon from the trials.

    Attributes:
        epsilon: the bound, at the run's delta.
        estimator: name of the bound. A rule that is fixed in advance selects it.
        confidence: level at which it holds, in (0, 1).
    """

    epsilon: float
    estimator: str
    confidence: float


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: T trials of k rounds.

    Attributes:
        path: run directory, which has all files; a run needs no saving.
        config: the resolved configuration.
        report: content of report.json, as values; None stands for a number that was not measured.
        transcript: arrays of transcript.npz by name.
    """

    path: Path
    config: Config = field(repr=False)
    report: Report = field(repr=False)
    transcript: Mapping[str, npt.NDArray[Any]] = field(repr=False)

    @property
    def epsilon(self) -> float:
        """Epsilon of one training at `delta` towards the configured vantage; may be infinite."""
        return self.report.accounted.epsilon

    @property
    def delta(self) -> float:
        """Probability that the guarantee fails."""
        return self.report.bounds.delta

    @property
    def rho_beta(self) -> float:
        """Upper bound on the adversary's belief, except in a tail of trainings."""
        return self.report.accounted.rho_beta

    @property
    def rho_alpha(self) -> float:
        """Upper bound on the adversary's advantage."""
        return self.report.here.limit.rho_alpha

    @property
    def advantage(self) -> Advantage | None:
        """The adversary's measured advantage; None for a single training."""
        measured = self.report.attack
        if measured.advantage is None:
            return None
        ends = measured.interval
        interval = None if ends is None else Interval(*ends, measured.confidence)
        return Advantage(measured.advantage, interval)

    @property
    def lower_bound(self) -> LowerBound:
        """The headline lower bound on epsilon."""
        measured = self.report.empirical
        bound = measured.lower_bounds[measured.leading]
        return LowerBound(bound.epsilon, measured.leading, bound.confidence)

    @property
    def rows(self) -> Mapping[str, Row]:
        """A row for each observer, with its limit, measurement and state, the worst first."""
        return self.report.rows

    @property
    def worlds(self) -> Bools:
        """Trials that trained with the target: bool [T]."""
        return self.transcript["worlds"]

    @property
    def log_odds(self) -> Floats:
        """The adversary's log-odds that the target was used, after each round: float64 [T, k]."""
        return self.transcript["log_odds"]

    @property
    def beliefs(self) -> Floats:
        """The adversary's belief that the target was used, after each round: float64 [T, k]."""
        return np.asarray(expit(self.log_odds), np.float64)

    def figures(self) -> dict[str, "Figure"]:
        """Return the report's figures by name, the same objects at each call.

        Raises:
            InputError: the transcript is damaged.
        """
        return dict(self._drawn)

    def figure(self, name: str) -> "Figure":
        """Return one figure of the report.

        Args:
            name: a key of `figures()`.

        Raises:
            InputError: the run has no such figure.
        """
        if name not in self._drawn:
            names = ", ".join(self._drawn)
            raise InputError(f"this run has no figure '{name}'; its figures are {names}")
        return self._drawn[name]

    def _repr_html_(self) -> str:
        from fedsim.report.document import first_screen, html  # noqa: PLC0415
        from fedsim.report.sections import first  # noqa: PLC0415

        return html.fragment(first_screen.in_short(first.first(self.report, first.About())))

    @cached_property
    def _drawn(self) -> dict[str, "Figure"]:
        from fedsim.report import page  # noqa: PLC0415

        drawn = page.Pictures(self.report, self.transcript).drawn
        return {name: figure.drawing.figure for name, figure in drawn.items()}


def run(
    config: Path | str | Config | Mapping[str, Any] = MappingProxyType({}),
    *,
    model: "Builder | None" = None,
    data: "tuple[npt.ArrayLike, npt.ArrayLike] | None" = None,
    attacks: "Sequence[Score | Attack | str] | None" = None,
    trials: int | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Run:
    """Run a federation with the adversary inside it, in this process, as `fedsim run` does.

    With the same configuration and directory, continues an interrupted run and reads a finished
    one. So a cell of a notebook can be evaluated again.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults,
            such as {"training.rounds": 10}.
        model: class of a network, or a function that builds one, in place of "model.name". It
            takes no arguments, or (shape of a record, classes, hidden width).
        data: (features, labels), in place of "data.name": numbers [N, F] or images [N, H, W] or
            [N, C, H, W], and labels [N].
        attacks: functions (targets, shadows or None) -> scores [N, n], `Attack`s of
            `adversaries.attacks.membership_attacks` or their names, in place of "audit.attacks".
        trials: number of trials T ("trials.count").
        rounds: number of rounds k ("training.rounds").
        seed: seed of all random numbers ("run.seed").
        device: device that computes ("run.device").
        out: run directory ("run.out"); None for fedsim-runs/NAME-TIME.
        overrides: other dotted keys.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The finished run.

    Raises:
        InputError: the configuration cannot be run. Raised before anything is written.
    """
    from fedsim import experiment  # noqa: PLC0415  (torch and Flower are slow to import)

    values = {
        "model.name": model,
        "data.name": data,
        "audit.attacks": attacks,
        "trials.count": trials,
        "training.rounds": rounds,
        "run.seed": seed,
        "run.device": device,
        "run.out": out,
    }
    plan = experiment.prepare(configured(config, combined(overrides, values)))
    return load(experiment.in_process(plan, console(progress)).path)


def load(path: Path | str) -> Run:
    """Return a finished run from its directory.

    Args:
        path: run directory.

    Raises:
        InputError: the path is not a run directory, or a file is damaged.
    """
    from fedsim.federation.runs import run_transcript  # noqa: PLC0415  (torch is slow to import)

    directory = RunDirectory.open(Path(path))
    return Run(
        directory.path, directory.config, results.read(directory), run_transcript.read(directory)
    )


def audit(
    path: Path | str,
    *,
    claimed_epsilon: float | None = None,
    claimed_delta: float | None = None,
    claimed_unit: Literal["client", "record"] | None = None,
    delta: float | None = None,
    confidence: float = CONFIDENCE,
    trials: int | None = None,
    neighbouring: Literal["add-remove", "replace"] | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    run_config: Mapping[str, Scalar] | None = None,
    data: str | None = None,
    records: int | None = None,
    target: Literal["crafted", "real"] | None = None,
    workers: int | None = None,
    data_root: Path | str | None = None,
    weights: Path | str | None = None,
    canary_seed_file: Path | str | None = None,
    no_challenge: bool = False,
    worlds: Path | str | None = None,
) -> Audit:
    """Audit a transcript, a Flower app by its directory, or a training loop by its function.

    `fedsim.recording` or an auditor's node writes a transcript. An app or a loop is run many times,
    in a separate process with your rights. Only name code that you would run yourself.

    Args:
        path: file of a transcript, directory of an app, "file.py:function" or "module:function".
        claimed_epsilon: epsilon of the whole run; needs claimed_delta.
        claimed_delta: delta of claimed_epsilon.
        claimed_unit: unit that the claim protects; needed for a claim about an app.
        delta: delta of a recorded transcript's epsilons, if there is no claim; None for 1e-5.
        confidence: confidence of every interval, in (0, 1).
        trials: app or loop: number of runs under attack; None for the default.
        neighbouring: app or loop: difference between the two worlds.
        seed: app or loop: seed of all random numbers.
        time_limit: app or loop: time limit of each run, in seconds.
        rounds: app: num-server-rounds; None for the app's own. Participant's transcript: number of
            its rounds, without which a claim is not judged.
        clients: app: number of clients.
        run_config: app: keys of its run config to override.
        data: loop: training data.
        records: loop: number of records in D.
        target: loop: the worst of three crafted pairs, or a record of the data.
        workers: loop: number of processes that run it at once; None for one.
        data_root: auditor's transcript: the run's data on this machine.
        weights: auditor's transcript: local copy of the run's model.weights.
        canary_seed_file: auditor's transcript: seeds of the clients' canaries.
        no_challenge: auditor's transcript: skip the beliefs, which need the data.
        worlds: auditor's transcript: run directory with the true worlds.

    Returns:
        The verdict, with the whole report.

    Raises:
        InputError: the path cannot be audited, or the options do not fit it.
    """
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
        run_config=run_config,
        data=data,
        records=records,
        target=target,
        workers=workers,
        data_root=None if data_root is None else Path(data_root),
        weights=None if weights is None else Path(weights),
        canary_seed_file=None if canary_seed_file is None else Path(canary_seed_file),
        no_challenge=no_challenge,
        worlds=None if worlds is None else Path(worlds),
    )
    if Path(path).is_dir():
        return _of_app(Path(path), options)
    if ":" in Path(path).name and not Path(path).exists():
        return _of_loop(str(path), options)
    return _of_transcript(Path(path), options)


def _of_app(path: Path, options: AuditOptions) -> Audit:
    from fedsim.audits.app.audit import audit_directory  # noqa: PLC0415

    if RunDirectory(path).has("config.toml"):
        raise InputError(f"'{path}' is a run directory; read it with fedsim.load")
    taken = options.taken("a Flower app")
    return audit_directory(path, **taken, claim=options.claim, confidence=options.level)


def _of_loop(function: str, options: AuditOptions) -> Audit:
    from fedsim.audits.loop.audit import audit_loop  # noqa: PLC0415

    taken = options.taken("a training loop")
    if options.claim is not None and options.claim.unit == "client":
        raise InputError("a training loop protects records; leave claimed_unit out")
    return audit_loop(function, **taken, claim=options.claim, confidence=options.level)


def _of_transcript(path: Path, options: AuditOptions) -> Audit:
    from fedsim import auditors_transcript  # noqa: PLC0415
    from fedsim.audits.recorded import audit as transcript_audit  # noqa: PLC0415
    from fedsim.federation.transcripts.reader import Reader  # noqa: PLC0415
    from fedsim.federation.transcripts.records import AUDITOR  # noqa: PLC0415

    with Reader(path) as reader:
        if reader.facts.recorder != AUDITOR:
            options.taken("a recorded transcript")
            return transcript_audit.audit(reader, options)
    return auditors_transcript.audited(path, options)


def configured(
    config: Path | str | Config | Mapping[str, Any],
    overrides: Mapping[str, Any],
    job: str | None = "experiment",
) -> Config:
    """Return the configuration for a function of the API.

    Args:
        config: path of a file, a configuration, or dotted keys over the defaults.
        overrides: dotted keys with scalars or with objects that `fedsim.game.given` registers.
        job: purpose, a key of `fedsim.config.JOBS`; None for the configuration's own.

    Raises:
        InputError: the configuration is invalid.
    """
    from fedsim.game import given  # noqa: PLC0415  (the attacks are slow to import)

    overrides = given.values(overrides)
    if isinstance(config, Path | str):
        return configuration.load(Path(config), overrides, job)
    if isinstance(config, Config):
        config = configuration.to_run_config(config)
    values = given.values(dict(configuration.flatten(config)))
    values = configuration.overlaid(values, overrides)
    return configuration.from_run_config(values if job is None else configuration.JOBS[job](values))


def combined(overrides: Mapping[str, Any] | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides and the values that are not None, with paths as text.

    Args:
        overrides: dotted keys, or None.
        values: by dotted key; they take precedence.
    """
    given = {key: each for key, each in values.items() if each is not None}
    paths = {key: str(each) for key, each in given.items() if isinstance(each, Path)}
    return dict(overrides or {}) | given | paths


def console(progress: bool | None) -> "Console":
    """Return the console for progress.

    Args:
        progress: whether to show it; None: only in a terminal or a notebook.
    """
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, quiet=progress is False, force_terminal=progress or None)
