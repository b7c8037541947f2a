"""Whether an auditor's measurements could have contradicted the noise that the server states.

A measurement supports nothing if it could not have contradicted it. Worlds could, if winning all
trials would have raised the alarm; sums and canaries could, if half of the noise would have.
"""

import math

import numpy as np

from adversaries.arrays import Bools
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE, significance
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.run import detectable
from fedsim.game.observers.noise_watch import SUM
from fedsim.privacy import identifiability

HALF = 0.5
"""Share of the claimed noise that must be detectable, with `detectable.POWER`."""

UNABLE = (
    "no measurement could have refuted the noise that the server states. Enough trials with known "
    "worlds (--worlds) could, or canaries of consenting clients (--canary-seed-file)"
)


def able(audit: LiveAudit, observed: Bools | None, bound: float | None) -> bool:
    """Return whether some measurement could have contradicted the noise.

    observed: worlds of the observed trials; None where they are unknown or all the same.
    """
    if audit.config is None or bound is None:
        return False
    won = False
    if audit.run.trials.count > 1 and observed is not None:
        scores = np.where(observed, 1.0, -1.0)  # of an auditor that wins all trials
        won = estimators.advantage(observed, scores, ALARM_CONFIDENCE).interval.low > bound
    told = audit.noise is not None and audit.noise.telling
    return won or told or _share_by_canaries(audit)[0] >= HALF


def seen_below(audit: LiveAudit, observed: Bools | None) -> float | None:
    """Return the share of the claimed noise below which the auditor would have raised an alarm.

    It holds with `detectable.POWER`, for the best of sums, canaries and worlds. It is None where no
    round was observed, and 0 where no shortfall can be named.
    """
    if audit.config is None or not audit.mechanisms():
        return None
    share, beside = _share_by_canaries(audit)
    shares = [0.0, math.sqrt(max(0.0, share**2 - beside))]
    if audit.noise is not None:
        limit = audit.noise.limits(ALARM_CONFIDENCE).get(SUM, math.inf)
        shares.append(detectable.by_limit(limit))
    if observed is not None:
        shares.append(_by_worlds(audit, observed.size))
    return max(shares)


def _share_by_canaries(audit: LiveAudit) -> tuple[float, float]:
    """Return the detectable share of all that hides a canary, and the records' part in it.

    That part is the largest variance of other records in this run, over the noise's variance; inf
    where the canaries show no signal.
    """
    watch = audit.canaries
    effect = None if watch is None else watch.effect(ALARM_CONFIDENCE)
    claimed = None if watch is None else watch.prediction()
    if watch is None or effect is None or not claimed or effect.reason is not None:
        return 0.0, math.inf
    low = effect.interval.low
    beside = math.inf if low <= 0 else max(0.0, (claimed / low) ** 2 - 1)
    tail = significance(ALARM_CONFIDENCE) / 2
    share = detectable.by_separation(claimed, claimed, *watch.sides, tail, checked=False)
    return share, beside


def _by_worlds(audit: LiveAudit, observed: int) -> float:
    mechanisms = audit.mechanisms()
    if audit.missed or any(each.sampled for each in mechanisms):
        return 0.0
    courses = [course for course in audit.beliefs.values() if course]
    signals = [
        np.sqrt(sum((each.sensitivities / each.noise_stds) ** 2 for each in course)).min()
        for course in courses
    ]
    bound = max(map(identifiability.rho_alpha, mechanisms))
    tail = significance(ALARM_CONFIDENCE) / 2
    return detectable.by_wins(float(min(signals)), bound, observed, tail)
