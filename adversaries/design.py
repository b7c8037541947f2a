"""How the trials were played, as far as an interval must know: in what pairs, until when.

Where trials come in pairs, trials 2i and 2i + 1 are in opposite worlds. Pairs are independent of
each other. The two trials of one are independent too, or share all random numbers but the world.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adversaries import confidence_sequence
from adversaries.intervals import Interval, clopper_pearson
from adversaries.trials import Bools
from fedsim.errors import InputError

Scores = npt.NDArray[np.int64]

WON_SHARE = 0.8
"""Of the significance, what the pairs won twice get; the pairs lost twice, of which there are few
where the trials of a pair share their random numbers, get the rest."""


@dataclass(frozen=True)
class Design:
    """common: the two trials of a pair share their random numbers; halfwidth: of the advantage's
    interval, at which the trials stop, 0 where their number was fixed in advance.
    """

    common: bool = False
    halfwidth: float = 0.0

    @property
    def in_pairs(self) -> bool:
        """Whether a pair of trials is what must not be torn apart."""
        return self.common or self.halfwidth > 0

    @property
    def mass(self) -> float:
        """What the confidence sequence is tuned by: trials would stop at some 9 / halfwidth^2."""
        return 1 / self.halfwidth**2

    def proportion(self, successes: int, trials: int, confidence: float) -> Interval:
        """Return the interval of a proportion that this design allows, of independent trials.

        Clopper-Pearson's where the number of trials was fixed, else the confidence sequence.
        """
        if self.halfwidth:
            return confidence_sequence.interval(successes, trials, confidence, self.mass)
        return clopper_pearson(successes, trials, confidence)


INDEPENDENT = Design()
"""Independent trials, as many as were planned."""


def pair_scores(worlds: Bools, scores: Scores) -> Scores:
    """Return the sum of the scores of both trials of every pair, [T/2].

    Raises InputError unless trials 2i and 2i + 1 are in opposite worlds.
    """
    if worlds.size % 2 or not np.all(worlds[::2] != worlds[1::2]):
        raise InputError(
            "the trials are not in pairs of opposite worlds, which trials.pairing and "
            "trials.until-halfwidth need; the transcript is of another run than its configuration"
        )
    sums: Scores = scores[::2] + scores[1::2]
    return sums


def advantage_interval(
    worlds: Bools, scores: Scores, design: Design, confidence: float
) -> Interval:
    """Return the interval of the advantage from trials in pairs; scores [T]: 1, 0 (tie) or -1.

    Ties count as lost at the lower end and as won at the upper. Trials that are independent within
    a pair are counted one by one, against the confidence sequence. With common random numbers the
    pair is the unit: both trials won (+1), both lost (-1), or one each (0), and the advantage is
    P(+1) - P(-1). Each of the two has an interval of its own, at `WON_SHARE` of the significance
    and at the rest of it. Raises InputError as `pair_scores` does.
    """
    totals = pair_scores(worlds, scores)  # also where they are counted one by one
    lost, won = np.where(scores == 0, -1, scores), np.where(scores == 0, 1, scores)
    if not design.common:
        low = design.proportion(int((lost > 0).sum()), scores.size, confidence).low
        high = design.proportion(int((won > 0).sum()), scores.size, confidence).high
        return Interval(2 * low - 1, 2 * high - 1, confidence)
    alpha = 1 - confidence

    def ends(totals: Scores) -> tuple[float, float]:
        better = design.proportion(
            int((totals == 2).sum()), totals.size, 1 - WON_SHARE * alpha
        )
        worse = design.proportion(
            int((totals == -2).sum()), totals.size, 1 - (1 - WON_SHARE) * alpha
        )
        return better.low - worse.high, better.high - worse.low

    if not (scores == 0).any():
        return Interval(*ends(totals), confidence)
    return Interval(
        ends(pair_scores(worlds, lost))[0], ends(pair_scores(worlds, won))[1], confidence
    )
