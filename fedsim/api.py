"""The Python API: a run, what it left, and audits of others' federations, as values for a notebook.

`import fedsim` exports what is here by name, and loads it with the first use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval
from fedsim import config as configuration
from fedsim.audits.judgement.verdict import Verdict, verdict_of
from fedsim.audits.results import report as results
from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import VantageVerdict
from fedsim.config import Config, Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.privacy.delta import ASSUMED

if TYPE_CHECKING:  # slow to import
    from matplotlib.figure import Figure
    from rich.console import Console
    from torch.nn import Module

Floats = npt.NDArray[np.float64]


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

    @cached_property
    def _drawn(self) -> dict[str, "Figure"]:
        from fedsim.report import page  # noqa: PLC0415

        drawn = page.Pictures(self.report, self.transcript).figures
        return {name: figure.drawing for name, figure in drawn.items()}


def run(
    config: Path | str | Config | Mapping[str, Any],
    *,
    trials: int | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    out: Path | str | None = None,
    overrides: Mapping[str, Scalar] | None = None,
    progress: bool | None = None,
) -> Run:
    """Run a federation with the adversary inside it, in this process, as `fedsim run` does.

    The same configuration in the same directory is continued where it was interrupted, and is read
    where it has finished: a cell of a notebook can be evaluated again.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults, such as
            {"training.rounds": 10}.
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

    given: dict[str, Scalar | None] = {
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
    config: Path | str | Config | Mapping[str, Any],
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Scalar] | None = None,
    progress: bool | None = None,
) -> Path:
    """Train a model with differential privacy, once, in this process, as `fedsim train` does.

    The same configuration in the same directory goes on where it was interrupted.

    Args:
        config: a training's file, a configuration, or dotted keys over the defaults.
        out: the run directory ("run.out"); None for fedsim-runs/NAME-TIME.
        overrides: any other dotted keys.
        progress: whether a bar is shown; None where there is a terminal or a notebook.

    Returns:
        The run directory, which holds the model and its card: `load_model` reads it.

    Raises:
        InputError: a configuration that cannot be trained, before anything is written.
    """
    from fedsim import experiment  # noqa: PLC0415  (torch and Flower are slow to import)

    asked = dict(overrides or {}) | ({} if out is None else {"run.out": str(out)})
    plan = experiment.prepare(configured(config, asked, "training"))
    return experiment.in_process(plan, console(progress)).path


def load_model(path: Path | str) -> "Module":
    """Return a trained model, which maps records [N, *shape] to logits and is ready to predict.

    Args:
        path: the run directory of a finished training.

    Raises:
        InputError: it holds no model, or a damaged one.
    """
    from fedsim.learning.training import saved_model  # noqa: PLC0415  (torch is slow to import)

    return saved_model.load(Path(path))


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


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit of a federation concludes.

    Attributes:
        verdict: on the claim.
        reasons: why, or why it cannot tell.
        epsilon: what the noise that was measured (of a transcript) or configured (of an app) gives
            the least protected client at delta; infinite without noise, None where unknown.
        proven: an epsilon that is exceeded as surely as a conviction takes; None where unmeasured.
        delta: at which both are stated.
        report: what `fedsim audit … --json` prints; of a transcript, infinity is a number here.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    epsilon: float | None
    proven: float | None
    delta: float
    report: Mapping[str, Any] = field(repr=False)


def audit(
    path: Path | str,
    *,
    claimed_epsilon: float | None = None,
    claimed_delta: float | None = None,
    claimed_unit: Literal["client", "record"] | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    trials: int | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    run_config: Mapping[str, Scalar] | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
) -> Audit:
    """Audit a transcript of `fedsim.recording`, or a Flower app by its directory.

    An app is run again and again under attack, in a process of its own with your rights: only name
    code that you would run yourself.

    Args:
        path: a transcript's file, or an app's directory.
        claimed_epsilon: what somebody claims of the whole run; together with claimed_delta or not
            at all.
        claimed_delta: at which epsilon is claimed.
        claimed_unit: whom the claim protects; None as it can be told.
        delta: at which a transcript's epsilons are stated without a claim; None for 1e-5.
        confidence: of every interval, in (0, 1).
        trials: of an app, how often it is run under attack; None for the default of
            `audit_directory`, as of what follows.
        rounds: of an app, its num-server-rounds; None for its own.
        clients: of an app, how many.
        run_config: of an app, keys of its run configuration that are to be otherwise.
        seed: of an app, of every random number.
        time_limit: of an app, seconds that one run of it may take.

    Returns:
        The conclusion, with the whole report.

    Raises:
        InputError: a path to neither; options that do not fit what is there.
    """
    from fedsim.audits.app.configuration import claim_given  # noqa: PLC0415

    path, claim = Path(path), claim_given(claimed_epsilon, claimed_delta, claimed_unit)
    of_apps = {
        "trials": trials,
        "rounds": rounds,
        "clients": clients,
        "run_config": run_config,
        "seed": seed,
        "time_limit": time_limit,
    }
    given = {name: value for name, value in of_apps.items() if value is not None}
    if claim is not None and delta is not None:
        raise InputError("with a claim every epsilon is stated at its delta; leave delta out")
    if path.is_dir():
        if RunDirectory(path).has("config.toml"):
            raise InputError(f"'{path}' is a run directory; read it with fedsim.load")
        if delta is not None:
            raise InputError("delta is for transcripts; of an app, give claimed_delta")
        return _of_app(path, {**given, "claim": claim, "confidence": confidence})
    if given:
        raise InputError(f"{', '.join(given)}: for a Flower app's directory; '{path}' is none")
    at = ASSUMED if delta is None else delta
    at = at if claim is None else claim.delta
    return _of_transcript(path, at, confidence, claimed_epsilon, claimed_unit)


def _of_app(path: Path, options: Mapping[str, Any]) -> Audit:
    from fedsim.audits.app.directory import audit_directory  # noqa: PLC0415
    from fedsim.report.evidence import digests  # noqa: PLC0415

    code = digests.of_app(path)  # as it is now: it is run from now on
    found = audit_directory(path, **options)
    return Audit(
        verdict=found.verdict,
        reasons=found.reasons,
        epsilon=found.epsilon,
        proven=found.proven.epsilon,
        delta=found.delta,
        report=found.as_json() | {"code": code},
    )


def _of_transcript(
    path: Path, delta: float, confidence: float, epsilon: float | None, unit: str | None
) -> Audit:
    from fedsim.audits.recorded import audit as transcript_audit  # noqa: PLC0415
    from fedsim.federation.transcripts.reader import Reader  # noqa: PLC0415
    from fedsim.federation.transcripts.records import AUDITOR  # noqa: PLC0415
    from fedsim.report.kinds.recorded import worst  # noqa: PLC0415

    with Reader(path) as reader:
        if reader.facts.recorder == AUDITOR:
            raise InputError(
                f"'{path}' is of an auditor's node, whose beliefs take the run's data; audit it "
                f"with fedsim audit transcript {path} --data-root DIRECTORY"
            )
        report = transcript_audit.audit(reader, delta, confidence, epsilon, unit)
    release, canary, claim = report["release"], report["canary"], report["claim"]
    reasons = () if claim is None else tuple(claim["reasons"])
    least = proven = None
    if release is not None:
        least = worst(release)["epsilon"]["point"]
        proven = release["proven"]["epsilon"]
    elif canary is not None:
        proven = canary["proven"]["epsilon_all_rounds"]
    return Audit(
        verdict=verdict_of(report),
        reasons=reasons,
        epsilon=least,
        proven=proven,
        delta=delta,
        report=report,
    )


def configured(
    config: Path | str | Config | Mapping[str, Any],
    overrides: Mapping[str, Scalar],
    job: str = "experiment",
) -> Config:
    """Return the configuration that a function of the API was given.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults.
        overrides: dotted keys that are otherwise.
        job: what it is for, a key of `fedsim.config.JOBS`.

    Raises:
        InputError: what does not do.
    """
    if isinstance(config, Path | str):
        return configuration.load(Path(config), overrides, job)
    if isinstance(config, Config):
        config = configuration.to_run_config(config)
    values = configuration.overlaid(dict(configuration.flatten(config)), overrides)
    return configuration.from_run_config(configuration.JOBS[job](values))


def console(progress: bool | None) -> "Console":
    """Return where progress is shown.

    Args:
        progress: whether it is; None where there is a terminal or a notebook.
    """
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, quiet=progress is False, force_terminal=progress or None)
