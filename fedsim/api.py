"""The Python API: a run, what it left, and audits of others' federations, as values for a notebook.

`import fedsim` exports what is here by name, and loads it with the first use.
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

from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval
from fedsim import config as configuration
from fedsim.audits.judgement.claim import claim_given
from fedsim.audits.judgement.options import CONFIDENCE, AuditOptions
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.results import report as results
from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import VantageVerdict
from fedsim.config import Config, Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.privacy.mechanism import Neighbouring

if TYPE_CHECKING:  # slow to import
    from matplotlib.figure import Figure
    from rich.console import Console
    from torch.nn import Module

    from adversaries.attacks.membership_attacks import Attack, Score

Floats = npt.NDArray[np.float64]
Audit = AuditReport
Builder = Callable[..., "Module"]


@dataclass(frozen=True)
class Advantage:
    """How much better than guessing the adversary was; 0 is a coin, 1 is certainty.

    In short: the estimate with its counts is `adversaries.statistics.estimators.Advantage`.

    Attributes:
        point: true positive rate minus false positive rate.
        interval: around it; None where all trials were of one world.
    """

    point: float
    interval: Interval | None


@dataclass(frozen=True)
class LowerBound:
    """What the trials prove of epsilon.

    In short: what a single estimator returns, with its assumptions, is
    `adversaries.statistics.intervals.LowerBound`, and a report's row of it
    `fedsim.audits.results.measured.LowerBound`.

    Attributes:
        epsilon: at least so much, at the run's delta.
        estimator: which bound leads, by a rule fixed in advance.
        confidence: with which it holds.
    """

    epsilon: float
    estimator: str
    confidence: float


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: T trials of k rounds.

    Attributes:
        path: its directory, where everything lies; a run needs no saving.
        config: the resolved configuration.
        report: what report.json holds, as values; a number that is None was not measured.
        transcript: the arrays of transcript.npz by name.
    """

    path: Path
    config: Config = field(repr=False)
    report: Report = field(repr=False)
    transcript: Mapping[str, npt.NDArray[Any]] = field(repr=False)

    @property
    def epsilon(self) -> float:
        """Epsilon of one training at `delta` towards the configured vantage; may be infinite."""
        return self.report.bounds.epsilon

    @property
    def delta(self) -> float:
        """The probability with which the guarantee may fail."""
        return self.report.bounds.delta

    @property
    def rho_beta(self) -> float:
        """The bound on the adversary's belief."""
        return self.report.bounds.rho_beta

    @property
    def rho_alpha(self) -> float:
        """The bound on the adversary's advantage."""
        return self.report.bounds.rho_alpha

    @property
    def advantage(self) -> Advantage | None:
        """What the adversary achieved; None for a single training, which has no statistics."""
        measured = self.report.empirical
        if measured.advantage is None:
            return None
        ends = measured.advantage_interval
        interval = None if ends is None else Interval(*ends, measured.confidence)
        return Advantage(measured.advantage, interval)

    @property
    def lower_bound(self) -> LowerBound:
        """The lower bound on epsilon that the report leads with."""
        leads = self.report.empirical.headline
        return LowerBound(leads.epsilon, leads.name, leads.confidence)

    @property
    def verdicts(self) -> Sequence[VantageVerdict]:
        """What was measured and what theory allows at every vantage, the worst first."""
        return self.report.verdicts

    @property
    def worlds(self) -> npt.NDArray[np.bool_]:
        """Whether each trial trained with the target: bool [T]."""
        return self.transcript["worlds"]

    @property
    def log_odds(self) -> Floats:
        """The adversary's log-odds that the target was used, after each round: float64 [T, k]."""
        return self.transcript["log_odds"]

    @property
    def beliefs(self) -> Floats:
        """The same as probabilities: float64 [T, k]."""
        return np.asarray(expit(self.log_odds), np.float64)

    def figures(self) -> dict[str, "Figure"]:
        """Return the report's figures by name, the same ones at each call.

        Raises:
            InputError: arrays of the transcript that no run leaves.
        """
        return dict(self._drawn)

    def figure(self, name: str) -> "Figure":
        """Return one figure of the report.

        Args:
            name: as of `figures`.

        Raises:
            InputError: the run has no such figure.
        """
        if name not in self._drawn:
            raise InputError(f"no figure '{name}' in this run; there are {', '.join(self._drawn)}")
        return self._drawn[name]

    def _repr_html_(self) -> str:
        """Return the answer, every vantage, the checks and the next steps for a notebook."""
        from fedsim.report.document import first_screen, html  # noqa: PLC0415
        from fedsim.report.sections import first  # noqa: PLC0415

        return html.fragment(first_screen.in_short(first.first(self.report, first.About())))

    @cached_property
    def _drawn(self) -> dict[str, "Figure"]:
        from fedsim.report import page  # noqa: PLC0415

        drawn = page.Pictures(self.report, self.transcript).figures
        return {name: figure.drawing for name, figure in drawn.items()}


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

    The same configuration in the same directory is continued where it was interrupted, and is read
    where it has finished: a cell of a notebook can be evaluated again.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults, such as
            {"training.rounds": 10}.
        model: in place of "model.name", a network's class or a function that builds the network;
            it takes nothing, or (shape of a record, classes, hidden width).
        data: in place of "data.name", (features, labels): numbers [N, F] or images [N, H, W] or
            [N, C, H, W], and [N].
        attacks: in place of "audit.attacks", functions (targets, shadows or None) -> scores [N, n],
            or an `Attack` of `adversaries.attacks.membership_attacks`, or its name.
        trials: repetitions T ("trials.count").
        rounds: k ("training.rounds").
        seed: of every random number ("run.seed").
        device: where the tensors live ("run.device").
        out: the run directory ("run.out"); None for fedsim-runs/NAME-TIME, as the command has it.
        overrides: any other dotted keys.
        progress: whether a bar is shown; None where there is a terminal or a notebook.

    Returns:
        The finished run.

    Raises:
        InputError: a configuration that cannot be run, before anything is written.
    """
    from fedsim import experiment  # noqa: PLC0415  (torch and Flower are slow to import)

    given: dict[str, Any] = {
        "model.name": model,
        "data.name": data,
        "audit.attacks": attacks,
        "trials.count": trials,
        "training.rounds": rounds,
        "run.seed": seed,
        "run.device": device,
        "run.out": None if out is None else str(out),
    }
    asked = dict(overrides or {}) | {key: each for key, each in given.items() if each is not None}
    plan = experiment.prepare(configured(config, asked))
    return load(experiment.in_process(plan, console(progress)).path)


def train(
    config: Path | str | Config | Mapping[str, Any] = MappingProxyType({}),
    *,
    model: "Builder | None" = None,
    data: "tuple[npt.ArrayLike, npt.ArrayLike] | None" = None,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Path:
    """Train a model with differential privacy, once, in this process, as `fedsim train` does.

    The same configuration in the same directory goes on where it was interrupted.

    Args:
        config: a training's file, a configuration, or dotted keys over the defaults.
        model: in place of "model.name", as `run` takes it.
        data: in place of "data.name", as `run` takes it.
        out: the run directory ("run.out"); None for fedsim-runs/NAME-TIME.
        overrides: any other dotted keys.
        progress: whether a bar is shown; None where there is a terminal or a notebook.

    Returns:
        The run directory, which holds the model and its card: `load_model` reads it.

    Raises:
        InputError: a configuration that cannot be trained, before anything is written.
    """
    from fedsim import experiment  # noqa: PLC0415  (torch and Flower are slow to import)

    given = {
        "model.name": model,
        "data.name": data,
        "run.out": None if out is None else str(out),
    }
    asked = dict(overrides or {}) | {key: each for key, each in given.items() if each is not None}
    plan = experiment.prepare(configured(config, asked, "training"))
    return experiment.in_process(plan, console(progress)).path


def load_model(path: Path | str, *, model: "Builder | None" = None) -> "Module":
    """Return a trained model, which maps records [N, *shape] to logits and is ready to predict.

    Args:
        path: the run directory of a finished training.
        model: the class or function that was given to `train`, in another process than that.

    Raises:
        InputError: it holds no model, or a damaged one, or one that another network has.
    """
    from fedsim.learning.training import saved_model  # noqa: PLC0415  (torch is slow to import)

    return saved_model.load(Path(path), built_by(model))


def built_by(model: "Builder | None") -> str:
    """Return the name of a given network, "" for none."""
    from fedsim.game import given  # noqa: PLC0415

    return "" if model is None else given.model(model)


def load(path: Path | str) -> Run:
    """Return a finished run from its directory.

    Args:
        path: the run directory.

    Raises:
        InputError: it is none, or damaged.
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
    data_root: Path | str | None = None,
    weights: Path | str | None = None,
    canary_seed_file: Path | str | None = None,
    no_challenge: bool = False,
    worlds: Path | str | None = None,
) -> Audit:
    """Audit a transcript, a Flower app by its directory, or a training loop by its function.

    A transcript is one of `fedsim.recording`, or of an auditor's node. An app or a loop is run
    again and again, in a process of its own with your rights: only name code that you would run
    yourself.

    Args:
        path: a transcript's file, an app's directory, or "file.py:function" or "module:function".
        claimed_epsilon: an epsilon of the whole run; needs claimed_delta.
        claimed_delta: the delta of claimed_epsilon.
        claimed_unit: whom the claim protects; None as it can be told.
        delta: at which a recorded transcript's epsilons are stated without a claim; None for 1e-5.
        confidence: of every interval, in (0, 1).
        trials: of an app or a loop, runs under attack; None for the default, as for what follows.
        neighbouring: of an app or a loop, how the other world differs.
        seed: of an app or a loop, of every random number.
        time_limit: of an app or a loop, seconds that one answer may take.
        rounds: of an app, its num-server-rounds; None for its own.
        clients: of an app, how many.
        run_config: of an app, keys of its run configuration that change.
        data: of a loop, what it trains on.
        records: of a loop, the number of records in D.
        target: of a loop, the worst of three crafted pairs, or a record of the data.
        data_root: of an auditor's transcript, where this machine has the run's dataset.
        weights: of an auditor's transcript, this machine's copy of the run's model.weights.
        canary_seed_file: of an auditor's transcript, the seeds of clients' canaries.
        no_challenge: of an auditor's transcript, whether beliefs, which need the data, are left
            out.
        worlds: of an auditor's transcript, the run directory that tells the worlds.

    Returns:
        The conclusion, with the whole report.

    Raises:
        InputError: a path to nothing that can be audited; options that do not fit what is there.
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
    from fedsim.report.evidence import digests  # noqa: PLC0415

    if RunDirectory(path).has("config.toml"):
        raise InputError(f"'{path}' is a run directory; read it with fedsim.load")
    asked = options.taken("a Flower app")
    code = digests.of_app(path)  # as it is now: it is run from now on
    found = audit_directory(path, **asked, claim=options.claim, confidence=options.level)
    return found.report(code)


def _of_loop(function: str, options: AuditOptions) -> Audit:
    from fedsim.audits.loop.audit import audit_loop  # noqa: PLC0415
    from fedsim.report.evidence import digests  # noqa: PLC0415

    asked = options.taken("a training loop")
    if options.claim is not None and options.claim.unit == "client":
        raise InputError("a training loop protects records; leave claimed_unit out")
    code = digests.of_function(function)
    found = audit_loop(function, **asked, claim=options.claim, confidence=options.level)
    return found.report(code)


def _of_transcript(path: Path, options: AuditOptions) -> Audit:
    from fedsim.audits.live import from_transcript  # noqa: PLC0415
    from fedsim.audits.recorded import audit as transcript_audit  # noqa: PLC0415
    from fedsim.federation.transcripts.reader import Reader  # noqa: PLC0415
    from fedsim.federation.transcripts.records import AUDITOR  # noqa: PLC0415

    with Reader(path) as reader:
        if reader.facts.recorder != AUDITOR:
            options.taken("a recorded transcript")
            return transcript_audit.concluded(transcript_audit.audit(reader, options))
    return from_transcript.audited(path, options)


def configured(
    config: Path | str | Config | Mapping[str, Any],
    overrides: Mapping[str, Any],
    job: str | None = "experiment",
) -> Config:
    """Return the configuration that a function of the API was given.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults.
        overrides: dotted keys that are otherwise, with scalars or what `fedsim.game.given` takes.
        job: what it is for, a key of `fedsim.config.JOBS`; None for what it says itself.

    Raises:
        InputError: what does not do.
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


def console(progress: bool | None) -> "Console":
    """Return where progress is shown.

    Args:
        progress: whether it is; None where there is a terminal or a notebook.
    """
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, quiet=progress is False, force_terminal=progress or None)
