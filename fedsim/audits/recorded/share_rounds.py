"""A Gaussian filter whose noise is a share of the update itself, round by round.

The GaussianPrivacy of NVFlare's research examples adds N(0, (s Q)^2), Q being a percentile of the
sizes of the update's own numbers, and clips nothing. Nothing bounds how far two updates lie apart,
nor the ratio of their noises: they are told apart as surely as one likes, and epsilon is infinite.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks.noisy_means import std_interval
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.recorded.left_over import Layout, believable
from fedsim.audits.recorded.recorded_noise import number
from fedsim.federation.transcripts.records import ObservedRound

Floats = npt.NDArray[np.float64]

FILTER = "GaussianPrivacy"

NARROW = 0.1
"""A round's noise is called its share where the interval of their ratio is within 1 ± this.

A wide interval that holds 1 rejects nothing: of few numbers, noise of any fixed size fits.
"""

BY = "the class's name, its configuration and the matching noise of every round"

NO_BOUND = (
    "the noise of GaussianPrivacy is a share of the update itself, as it was in each of {} rounds "
    "({:.3g} to {:.3g} times that share in all), and nothing is clipped: epsilon is infinite. That "
    f"rests on {BY}"
)
TOO_FEW = (
    "the noise of GaussianPrivacy is {:.3g} to {:.3g} times its share of the update in {} rounds "
    "together, and in some round may be more than {:.0%} off (99.99 %): noise of another kind fits "
    "as well; record more of the model's numbers a round"
)


class ShareRounds:
    """What the rounds of one site's filter give whose noise is a share of its update."""

    def __init__(self) -> None:
        self._rounds: list[tuple[float, int]] = []
        self._fits = True

    def observe(self, observed: ObservedRound) -> None:
        """Take in a round of a filter of this name.

        Args:
            observed: a round, of whose noise the mechanism names share and percentile.
        """
        scaled = _scaled(observed)
        self._fits = self._fits and scaled is not None
        if scaled is not None:
            self._rounds.append((float(scaled @ scaled), scaled.size))

    def measured(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return what it means and what was measured, None unless each round may be of such noise.

        What was measured has "identified", with epsilon, only where it cannot well be other noise.
        """
        if not self._rounds or not self._fits:
            return None
        confidence = 1 - (1 - ALARM_CONFIDENCE) / len(self._rounds)
        found = [std_interval(energy, size, confidence) for energy, size in self._rounds]
        if not all(one.low <= 1 <= one.high for one in found):
            return None
        energy, size = (sum(part) for part in zip(*self._rounds, strict=True))
        sure = std_interval(energy, int(size), ALARM_CONFIDENCE)
        known: dict[str, Any] = {
            "filter": FILTER,
            "rounds": len(found),
            "scale_over_configured": {
                "point": math.sqrt(energy / size),
                "low": sure.low,
                "high": sure.high,
                "confidence": ALARM_CONFIDENCE,
            },
        }
        if not all(one.low >= 1 - NARROW and one.high <= 1 + NARROW for one in found):
            return TOO_FEW.format(sure.low, sure.high, len(found), NARROW), known
        identified = {"epsilon": math.inf, "by": BY}
        return NO_BOUND.format(len(found), sure.low, sure.high), known | {"identified": identified}


def _scaled(observed: ObservedRound) -> Floats | None:
    """Return the noise over the share of the update that it should be; None if nobody can tell."""
    share, percentile = (
        number(observed.mechanism, f"gaussian_{name}") for name in ("sigma0", "max_percentile")
    )
    layout = Layout.of(observed.unprotected or {})
    update, sent = (layout.vector(arrays) for arrays in (observed.unprotected or {}, observed.own))
    if not share or percentile is None or not 0 <= percentile <= 100:
        return None
    if update is None or sent is None or not update.any() or not believable(update, sent):
        return None
    most = float(np.percentile(np.abs(update[update != 0]), percentile))
    with np.errstate(over="ignore", divide="ignore"):  # by a share of numbers next to 0
        scaled = (sent - update) / (share * most)
    return scaled if believable(scaled) else None
