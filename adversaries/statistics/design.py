"""The design of the trials: pairs in opposite worlds, maybe with common numbers, and analyses."""

from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Bools, Ints
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, clopper_pearson

Scores = Ints

WON_SHARE = 0.8
"""Share of the significance for the pairs won twice. The rest is for the pairs lost twice, which
are rare where the trials of a pair share their random numbers."""


@dataclass(frozen=True)
class Design:
    """How the trials were paired, and which share of the significance is spent.

    Attributes:
        common: whether the two trials of a pair share their random numbers.
        share: share of the significance that is spent at this number of trials, in (0, 1].
    """

    common: bool = False
    share: float = 1.0

    def level(self, confidence: float) -> float:
        """Return the confidence to compute with, so that a statement holds (Bonferroni)."""
        return 1 - self.share * (1 - confidence)


INDEPENDENT = Design()
"""Independent trials, in the planned number."""


def pair_scores(worlds: Bools, scores: Scores) -> Scores:
    """Return the sum of the scores of both trials of every pair, [T/2].

    Args:
        worlds: bool [T]; trials 2i and 2i + 1 are a pair.
        scores: int64 [T].

    Raises InputError if the trials of a pair are not in opposite worlds.
    """
    if worlds.size % 2 or not np.all(worlds[::2] != worlds[1::2]):
        raise InputError(
            "the trials are not in pairs of opposite worlds, as trials.pairing needs with "
            '"common"; the transcript does not belong to this configuration'
        )
    return scores[::2] + scores[1::2]


def paired_interval(worlds: Bools, scores: Scores, confidence: float) -> Interval:
    """Return the interval of the advantage with common random numbers.

    The unit is the pair: both trials won (+1), both lost (-1), or one each (0). The advantage is
    P(+1) - P(-1), with Clopper-Pearson intervals at `WON_SHARE` of the significance and at the
    rest. A tie counts as lost at the lower end and as won at the upper end.

    Args:
        worlds: bool [T]; trials 2i and 2i + 1 are a pair.
        scores: int64 [T], 1 where the trial was won, -1 where it was lost, 0 for a tie.
        confidence: in (0, 1).

    Raises InputError if the trials of a pair are not in opposite worlds.
    """
    low, _ = _ends(pair_scores(worlds, np.where(scores == 0, -1, scores)), confidence)
    _, high = _ends(pair_scores(worlds, np.where(scores == 0, 1, scores)), confidence)
    return Interval(low, high, confidence)


def _ends(totals: Scores, confidence: float) -> tuple[float, float]:
    alpha = 1 - confidence
    # The advantage is the difference of two shares of the same pairs. Each share gets a part of the
    # error (Bonferroni), and the worst ends combine.
    both, neither = int((totals == 2).sum()), int((totals == -2).sum())
    better = clopper_pearson(both, totals.size, 1 - WON_SHARE * alpha)
    worse = clopper_pearson(neither, totals.size, 1 - (1 - WON_SHARE) * alpha)
    return better.low - worse.high, better.high - worse.low
