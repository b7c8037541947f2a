"""What a source of an audit shows of one observer, and the row that follows from it.

Runs, apps, loops, transcripts and auditors' nodes are sources. Every number of a row comes about
here, so that all kinds of audits mean the same by it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results.rows import Attack, Limit, Noise, Row
from fedsim.audits.results.theory import Predicted

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
