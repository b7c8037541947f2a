"""One row for each observer: what it may learn, what its adversary achieved, and its state.

Every kind of audit has the same rows. A number that a kind of audit cannot know is None.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results import verdicts
from fedsim.audits.results.measured import Predicted
from fedsim.audits.results.numbers import Ends, Real
from fedsim.audits.results.verdicts import State, StateWords
from fedsim.privacy.identifiability import rho_beta_of_epsilon

Source = Literal["theory", "claim", "measured"]


@dataclass(frozen=True)
class WorstOff:
    """What theory allows about the client that takes part in most rounds."""

    epsilon: Real
    rho_alpha: Real


@dataclass(frozen=True)
class Limit:
    """What an observer is allowed about the target's client or record, in one training."""

    epsilon: Real
    """Tight epsilon, at the delta of the report; infinite where no noise hides the target."""
    rho_beta: Real
    """Belief that is passed only rarely."""
    exceeded: Real
    """Upper bound on the share of trainings on D in which any pair passes rho_beta; 1 for none."""
    rho_alpha: Real
    """Advantage that no adversary exceeds, in [0, 1]; 1 for no limit."""
    noise_multiplier: Real | None
    """Multiplier of the noise that the observer cannot remove; None where rounds differ."""
    worst: WorstOff | None
    """Bounds of the worst-off client; None where the target's client is as badly off."""
    risks: list[tuple[Real, Real]]
    """Success of an attack without the release, and its largest with it."""
    note: str
    """Caution about these numbers; "" for none."""
    source: Source = "theory"
    """Where the noise of these numbers comes from: the configuration ("theory"), the server's
    statement ("claim"), or a measurement ("measured")."""

    @classmethod
    def of_epsilon(cls, epsilon: float, rho_alpha: float, source: Source) -> "Limit":
        """Return the limit of a mechanism of which epsilon and rho_alpha alone are known."""
        belief = rho_beta_of_epsilon(epsilon)
        return cls(epsilon, belief, 1.0, rho_alpha, None, None, [], "", source)

    @property
    def largest(self) -> WorstOff:
        """What theory allows about any client."""
        return self.worst or WorstOff(self.epsilon, self.rho_alpha)


@dataclass(frozen=True)
class Attack:
    """What an adversary achieved over the trials, from even odds."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]; None without trials of both worlds."""
    interval: Ends | None
    """Interval of the advantage; None where all trials are of one world."""
    standard_error: Real | None
    confidence: Real
    """Confidence of every interval and bound here, in (0, 1)."""
    trials: int
    log_odds: Real | None
    """Log-odds of the most extreme trial; infinite for certainty. None for an attack that counts
    right answers alone."""
    belief: Real | None
    """Largest belief in D of any trial on D, of an auditor's node of any trial; None like
    log_odds."""
    delta_prime: Real | None
    """Share of trials on D whose belief passed rho_beta; None for a single training."""
    delta_prime_interval: Ends | None
    epsilon_at_least: Real | None
    """Lower bound on epsilon; 0 proves nothing, and None says that nothing could prove any."""
    estimator: str
    """Estimator of the lower bound; "" where nothing could prove any. Of a run, chosen in advance:
    "one_run" for canaries, else its name in `empirical.lower_bounds`. Of other audits, the one with
    the largest of several bounds that hold together, such as "worlds", "canaries" or "noise"."""
    best: bool
    """Whether the adversary decides by the exact posterior, so that none does better."""
    near_prediction: bool | None
    """Whether the advantage agrees with its prediction, at the confidence of an alarm; None where
    the trials cannot tell."""
    proven: Real | None = None
    """Lower bound on epsilon at the confidence of an alarm, which alone refutes a claim; None in
    the report of a run."""


@dataclass(frozen=True)
class Noise:
    """The size of the noise that was measured, over the noise that was configured or stated."""

    low: Real
    """Lower end of its interval; 0 where only an upper end was measured."""
    high: Real
    """Upper end of its interval; infinite where only a lower end was measured."""
    confidence: Real


@dataclass(frozen=True)
class Row:
    """One observer: its limit, its measurement, and how the two agree."""

    observer: str
    """"server", "participant" or "released-model"; "loop" for an observer of all that a training
    loop releases, "auditor" for an auditor's node, and for scores of canaries."""
    standing: State
    limit: Limit | None
    """What the observer is allowed; None where the audit cannot tell."""
    attack: Attack | None
    """None where nothing was measured; the note says why."""
    predicted: Predicted | None
    """Theory's prediction for these trials; None where nothing was measured."""
    detects: Real | None
    """Share of the claimed noise below which the audit would have raised an alarm with probability
    95 %. 0: it could detect no shortfall. None: nothing was measured, or nothing is claimed."""
    note: str
    """Why nothing was measured, or what the log-odds are; "" for neither."""
    noise: Noise | None = None
    """None where the noise was not measured by itself, and in the report of a run, which has it
    under `residuals`."""

    @property
    def allowed(self) -> Limit:
        """The limit. Raises ValueError where the audit cannot tell it; a run always can."""
        if self.limit is None:
            raise ValueError(f"the observer '{self.observer}' has no limit")
        return self.limit

    @property
    def epsilon(self) -> float | None:
        """Epsilon that the observer is allowed; None where the audit cannot tell."""
        return None if self.limit is None else self.limit.epsilon

    @property
    def rho_alpha(self) -> float | None:
        """Advantage that no adversary exceeds; None where the audit cannot tell."""
        return None if self.limit is None else self.limit.rho_alpha

    @property
    def rho_beta(self) -> float | None:
        """Belief that is passed only rarely; None where the audit cannot tell."""
        return None if self.limit is None else self.limit.rho_beta

    @property
    def advantage(self) -> float | None:
        """The adversary's measured advantage; None where nothing was measured."""
        return None if self.attack is None else self.attack.advantage

    @property
    def interval(self) -> Ends | None:
        """Interval of the advantage; None where there is none."""
        return None if self.attack is None else self.attack.interval

    def words(self, unlimited: StateWords) -> StateWords:
        """Return the words of the state; `unlimited` says why there is no limit."""
        return verdicts.words_of(
            self.standing,
            interval=self.interval,
            measured=self.attack is not None,
            unlimited=unlimited,
        )


def standing(row: Row, *, alarmed: bool) -> State:
    """Return the state of an observer's measurement; no other code decides it.

    Args:
        alarmed: whether a check about this observer raised an alarm.
    """
    limit, attack, noise = row.limit, row.attack, row.noise
    found = verdicts.standing(
        None if attack is None else attack.interval,
        None if limit is None else limit.rho_alpha,
        exact=attack is not None and attack.best,
        alarmed=alarmed,
        noise=None if noise is None else (noise.low, noise.high),
    )
    if limit is None or found == "contradicted":
        return found
    # Sampling alone limits how often an observer is right; no noise hides a sampled record from it.
    if math.isinf(limit.epsilon):
        return "no-limit"
    if found == "not-measured" and limit.source == "measured":
        return "cannot-tell"  # a limit that was measured needs a claim to be compared with
    return found


def judged(rows: Iterable[Row], alarmed: Collection[str]) -> dict[str, Row]:
    """Return rows by observer, with their states; `alarmed` names observers with an alarm."""
    return {
        row.observer: replace(row, standing=standing(row, alarmed=row.observer in alarmed))
        for row in rows
    }


Bounds = Callable[[float], Mapping[str, float]]
"""Lower bounds on epsilon by name, which hold together with a confidence."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One observer, as a source of an audit shows it.

    Attributes:
        limit: what the observer is allowed; None where the source cannot tell.
        worlds: bool [T], whether each trial was on D; None unless trials of both worlds are known.
        scores: float64 [T], above 0 for a decision for D.
        passed: epsilon whose belief is the limit of every trial; None if scores are no log-odds.
        trials: number of trials that were observed.
        log_odds: largest log-odds of any trial; None for an attack that counts decisions alone.
        bounds: lower bounds on epsilon; None where the observer made no attack.
        exact: whether the scores are the exact posterior, so that no adversary does better.
        detects: for each check that was made, the share of the claimed noise below which it would
            have raised an alarm; None where no noise is claimed or nothing was measured.
        note: why nothing was measured, or what the log-odds are; "" for neither.
    """

    observer: str
    limit: Limit | None = None
    worlds: Bools | None = None
    scores: Floats | None = None
    passed: float | Floats | None = None
    trials: int = 0
    log_odds: float | None = None
    bounds: Bounds | None = None
    exact: bool = False
    noise: Noise | None = None
    detects: Sequence[float] | None = field(default=())
    predicted: Predicted | None = None
    note: str = ""


def audit_view(view: View, confidence: float, alarm: float | None = ALARM_CONFIDENCE) -> Row:
    """Return the row of an observer, still without its state.

    Args:
        confidence: of every interval and bound, in (0, 1).
        alarm: confidence of the bound that refutes a claim; None for a run, which has no claim.
    """
    return Row(
        observer=view.observer,
        standing="not-measured",
        limit=view.limit,
        attack=None if view.bounds is None else _attack(view, view.bounds, confidence, alarm),
        predicted=view.predicted,
        detects=None if view.detects is None else max(view.detects, default=0.0),
        note=view.note,
        noise=view.noise,
    )


def _attack(view: View, bounds: Bounds, confidence: float, alarm: float | None) -> Attack:
    advantage = exceeded = None
    if view.worlds is not None and view.scores is not None:
        advantage = estimators.advantage(view.worlds, view.scores, confidence)
        if view.passed is not None:
            scored = view.worlds, view.scores, view.passed
            exceeded = estimators.delta_prime(*scored, confidence)
    shown, sure = bounds(confidence), {} if alarm is None else bounds(alarm)
    return Attack(
        advantage=None if advantage is None else advantage.point,
        interval=None if advantage is None else advantage.interval.ends,
        standard_error=None if advantage is None else advantage.standard_error,
        confidence=confidence,
        trials=view.trials,
        log_odds=view.log_odds,
        belief=None if view.log_odds is None else float(expit(view.log_odds)),
        delta_prime=None if exceeded is None else exceeded.point,
        delta_prime_interval=None if exceeded is None else exceeded.interval.ends,
        epsilon_at_least=max(shown.values(), default=None),
        estimator=max(shown, key=lambda name: shown[name], default=""),
        best=view.exact,
        near_prediction=None,
        proven=max(sure.values(), default=None),
    )
