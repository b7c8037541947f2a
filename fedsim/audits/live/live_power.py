"""Whether what an auditor's node measured could have contradicted the noise that the server says.

A measurement supports nothing that it had no chance to contradict. Told worlds had one if all
trials won would have raised the alarm; the noise of the sums, if half of it would have been seen.
Canaries have no largest outcome, since without noise their signal is as large as what others send
is small; they had one if half of the noise, which shows as twice the signal, would have raised the
alarm with 95 %.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from adversaries.statistics import estimators
from adversaries.statistics.design import Design
from adversaries.statistics.intervals import ALARM_CONFIDENCE, significance
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.run import detectable
from fedsim.federation.runs import precision
from fedsim.game.observers.noise_watch import SUM
from fedsim.privacy import identifiability

Bools = npt.NDArray[np.bool_]

MOST = 1 << 20
"""More trials or canaries than this are not asked for."""

HALF = 0.5
"""Of the claimed noise: what must be seen, with `detectable.POWER`, to support anything."""

SURE = f"with confidence {ALARM_CONFIDENCE:g}"


def lacking(
    audit: LiveAudit, worlds: Bools | None, seen: Bools | None, bound: float | None
) -> list[str]:
    """Return why nothing could have contradicted the noise; [] where something could have.

    Args:
        worlds: bool [T], as told; None before that.
        seen: bool, those of the trials that were seen; None unless some were in either.
        bound: what the noise lets the advantage be; None where no round was seen.
    """
    if audit.config is None or bound is None:
        return ["no round was seen from its beginning to its end"]
    reasons = [
        _of_worlds(audit, worlds, seen, bound),
        _of_canaries(audit),
        _of_noise(audit),
    ]
    found = [reason for reason in reasons if reason]
    if len(found) < len(reasons):
        return []
    return ["nothing was held against the noise that the server says which could refute it", *found]


def seen_below(audit: LiveAudit, worlds: Bools | None, seen: Bools | None) -> float | None:
    """Return the share of the claimed noise below which the auditor would have seen a shortfall.

    With `detectable.POWER`, by whatever of sums, canaries and told worlds would have seen the most;
    None where no round was seen, and 0 where no shortfall can be named.

    Args:
        worlds: bool [T], as told; None before that.
        seen: bool, those of the trials that were seen; None unless some were in either.
    """
    if audit.config is None or not audit.mechanisms():
        return None
    found = [0.0, _by_canaries(audit)]
    if audit.noise is not None:
        limit = audit.noise.limits(ALARM_CONFIDENCE).get(SUM, math.inf)
        found.append(detectable.by_limit(limit))
    if worlds is not None and seen is not None:
        found.append(_by_worlds(audit, len(worlds), seen.size))
    return max(found)


def _by_canaries(audit: LiveAudit) -> float:
    """Return the share by the signal of canaries, which other records hide as they hid it here."""
    watch = audit.canaries
    effect = None if watch is None else watch.effect(ALARM_CONFIDENCE)
    claimed = None if watch is None else watch.prediction()
    if watch is None or effect is None or not claimed or effect.reason is not None:
        return 0.0
    if effect.interval.low <= 0:
        return 0.0
    # What hides a canary beside the noise, over the noise's variance, is at most so much.
    beside = max(0.0, (claimed / effect.interval.low) ** 2 - 1)
    tail = significance(ALARM_CONFIDENCE) / 2
    share = detectable.by_separation(claimed, claimed, *watch.sides, tail, checked=False)
    return math.sqrt(max(0.0, share**2 - beside))


def _by_worlds(audit: LiveAudit, told: int, seen: int) -> float:
    """Return the share by the number of beliefs that were right."""
    config, mechanisms = audit.run, audit.mechanisms()
    played = precision.design(config.trials, config.audit.confidence, told)
    if played.common or audit.missed or any(each.sampled for each in mechanisms):
        return 0.0
    courses = [course for course in audit.beliefs.values() if course]
    signals = [
        np.sqrt(sum((each.sensitivities / each.noise_stds) ** 2 for each in course)).min()
        for course in courses
    ]
    bound = max(map(identifiability.rho_alpha, mechanisms))
    tail = (1 - played.level(ALARM_CONFIDENCE)) / 2
    return detectable.by_wins(float(min(signals)), bound, seen, tail)


def _of_worlds(audit: LiveAudit, worlds: Bools | None, seen: Bools | None, bound: float) -> str:
    """Return why the told worlds could have contradicted nothing, "" if they could have."""
    config = audit.run
    if config.trials.worlds == "d-only":
        return "worlds cannot tell, since the run's trials are all in one"
    if worlds is None:
        return "give --worlds after the run"
    if seen is None:
        return "the trials with a belief are not of both worlds"
    played = precision.design(config.trials, config.audit.confidence, len(worlds))
    if _all_won(seen, played) > bound:
        return ""
    design = Design(played.common, played.share)
    needed = _least(lambda trials: _all_won(np.arange(trials) % 2 == 0, design) > bound)
    return f"{seen.size} trials, had all been won, would not refute it {SURE}: it takes {needed}"


def _of_canaries(audit: LiveAudit) -> str:
    """Return why canaries could have contradicted nothing, "" if they could have."""
    watch = audit.canaries
    effect = None if watch is None else watch.effect(ALARM_CONFIDENCE)
    claimed = None if watch is None else watch.prediction()
    if watch is None and audit.texts is not None:
        return "planted texts prove a lower bound on epsilon, and none that they miss"
    if watch is None or effect is None or claimed is None:
        return "give --canary-seed-file of a client that plants canaries"
    if effect.reason is not None:
        return f"canaries measured nothing: {effect.reason}"
    loud, quiet = watch.sides
    if _tells(loud, quiet, claimed):
        return ""
    needed = _least(lambda canaries: _tells(canaries // 2, canaries // 2, claimed))
    return (
        f"{loud + quiet} canaries would not tell half of the noise from all of it {SURE}: it takes "
        f"{needed}"
    )


def _of_noise(audit: LiveAudit) -> str:
    """Return why the sums' noise could have contradicted nothing, "" if it could have."""
    if audit.noise is None:
        return "the sums' noise by itself is judged of one training alone"
    if audit.noise.telling:
        return ""
    return f"half of the noise would not be seen in the sums {SURE}, which records fill too much"


def _all_won(worlds: Bools, design: Design) -> float:
    """Return the advantage's lower limit where every trial was won."""
    won = np.where(worlds, 1.0, -1.0)
    return estimators.advantage(worlds, won, ALARM_CONFIDENCE, design).interval.low


def _tells(loud: int, quiet: int, claimed: float) -> bool:
    """Return whether twice the claimed signal would raise the alarm of so many canaries."""
    tail = significance(ALARM_CONFIDENCE) / 2
    found = detectable.by_separation(claimed, claimed, loud, quiet, tail, checked=False)
    return found >= HALF


def _least(suffices: Callable[[int], bool]) -> str:
    """Word the least even number that suffices; what suffices once does so from there on."""
    high = 4
    while not suffices(high):
        high *= 2
        if high > MOST:
            return f"more than {MOST}"
    low = high // 2
    while high - low > 2:
        middle = (low + high) // 4 * 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return str(high)
