"""Whether an auditor's measurements could have contradicted the noise that the server states.

A measurement supports nothing if it could not have contradicted it. Worlds could, if winning all
trials would have raised the alarm. The noise of the sums could, if half of it would have raised the
alarm. Canaries have no largest outcome: without noise, only others' messages bound their signal.
They could, if half of the noise, which doubles their signal, would have raised the alarm with
probability 95 %.
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

SURE = f"with confidence {ALARM_CONFIDENCE:g}"


def lacking(
    audit: LiveAudit, worlds: Bools | None, observed: Bools | None, bound: float | None
) -> list[str]:
    """Return why no measurement could have contradicted the noise; [] where one could."""
    if audit.config is None or bound is None:
        return ["no round was observed from its beginning to its end"]
    reasons = [_of_worlds(audit, worlds, observed, bound), _of_canaries(audit), _of_noise(audit)]
    stated = [reason for reason in reasons if reason]
    if len(stated) < len(reasons):
        return []
    return ["no measurement could have refuted the noise that the server states", *stated]


def seen_below(audit: LiveAudit, worlds: Bools | None, observed: Bools | None) -> float | None:
    """Return the share of the claimed noise below which the auditor would have raised an alarm.

    It holds with `detectable.POWER`, for the best of sums, canaries and worlds. It is None where no
    round was observed, and 0 where no shortfall can be named.
    """
    if audit.config is None or not audit.mechanisms():
        return None
    shares = [0.0, _by_canaries(audit)]
    if audit.noise is not None:
        limit = audit.noise.limits(ALARM_CONFIDENCE).get(SUM, math.inf)
        shares.append(detectable.by_limit(limit))
    if worlds is not None and observed is not None:
        shares.append(_by_worlds(audit, observed.size))
    return max(shares)


def _by_canaries(audit: LiveAudit) -> float:
    """Return the share by the canaries' signal, assuming that records hide it as in this run."""
    watch = audit.canaries
    effect = None if watch is None else watch.effect(ALARM_CONFIDENCE)
    claimed = None if watch is None else watch.prediction()
    if watch is None or effect is None or not claimed or effect.reason is not None:
        return 0.0
    if effect.interval.low <= 0:
        return 0.0
    # Largest variance of other records beside the noise, over the noise's variance.
    beside = max(0.0, (claimed / effect.interval.low) ** 2 - 1)
    tail = significance(ALARM_CONFIDENCE) / 2
    share = detectable.by_separation(claimed, claimed, *watch.sides, tail, checked=False)
    return math.sqrt(max(0.0, share**2 - beside))


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


def _of_worlds(audit: LiveAudit, worlds: Bools | None, observed: Bools | None, bound: float) -> str:
    config = audit.run
    if config.trials.count == 1:
        return "winning trials cannot refute it, since the run has a single training"
    if worlds is None:
        return "to count the won trials, give --worlds after the run"
    if observed is None:
        return "all trials with a belief are in one world"
    if _all_won(observed) > bound:
        return ""
    return f"winning all {observed.size} trials would not refute it {SURE}"


def _of_canaries(audit: LiveAudit) -> str:
    watch = audit.canaries
    effect = None if watch is None else watch.effect(ALARM_CONFIDENCE)
    claimed = None if watch is None else watch.prediction()
    if watch is None or effect is None or claimed is None:
        return "to audit canaries, give the --canary-seed-file of a client that plants them"
    if effect.reason is not None:
        return f"canaries measured nothing: {effect.reason}"
    loud, quiet = watch.sides
    if _tells(loud, quiet, claimed):
        return ""
    return f"{loud + quiet} canaries could not distinguish half of the noise from all of it {SURE}"


def _of_noise(audit: LiveAudit) -> str:
    if audit.noise is None:
        return "the noise of the sums is judged only if the run has one training"
    if audit.noise.telling:
        return ""
    return (
        f"half of the noise would not be detected in the sums {SURE}, since the records "
        "contribute too much to them"
    )


def _all_won(worlds: Bools) -> float:
    won = np.where(worlds, 1.0, -1.0)
    return estimators.advantage(worlds, won, ALARM_CONFIDENCE).interval.low


def _tells(loud: int, quiet: int, claimed: float) -> bool:
    """Return whether twice the claimed signal would raise an alarm with this many canaries."""
    tail = significance(ALARM_CONFIDENCE) / 2
    share = detectable.by_separation(claimed, claimed, loud, quiet, tail, checked=False)
    return share >= HALF
