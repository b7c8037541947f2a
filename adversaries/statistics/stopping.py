"""Trials that stop once the advantage is precise enough: interim analyses and their price.

The analyses are planned, and each has its share of the significance (Bonferroni spending). At the
last one the interval is short enough for any result without ties. For independent trials the length
hardly depends on the result, so the last analysis gets most of the significance.
"""

import math

from adversaries.errors import InputError
from adversaries.statistics.design import WON_SHARE, Design
from adversaries.statistics.intervals import clopper_pearson, significance

GROWTH = 1.5
"""Ratio of trials between one analysis and the next, rounded up to whole batches."""

LAST_SHARE = {False: 0.75, True: 0.25}
"""Share of the significance for the last analysis, without and with common random numbers."""

FIRST_ANALYSIS = {False: 6.0, True: 12.0}
"""Trials of the first analysis times the halfwidth; before, even winning all would not suffice."""


def enough(halfwidth: float, confidence: float, common: bool) -> int:
    """Return the number of trials after which the interval is short enough for any result.

    Args:
        halfwidth: wanted half of the length, in (0, 1).
        confidence: of the interval over all analyses, in (0, 1).
        common: whether the two trials of a pair share their random numbers.

    Raises InputError for halfwidth or confidence out of range.
    """
    significance(confidence)
    if not 0 < halfwidth < 1:
        raise InputError(f"the halfwidth is {halfwidth}; give a number between 0 and 1, like 0.05")
    design = Design(common, LAST_SHARE[common])
    high = 4
    # Double until even the longest possible interval is short enough, then bisect over even
    # numbers.
    while _longest(high, confidence, design) > 2 * halfwidth:
        high *= 2
    low = high // 2
    while high - low > 2:
        middle = (low + high) // 4 * 2
        short = _longest(middle, confidence, design) <= 2 * halfwidth
        low, high = (low, middle) if short else (middle, high)
    return high


def interim_analyses(
    halfwidth: float, confidence: float, most: int, batch: int, common: bool
) -> dict[int, float]:
    """Return the numbers of trials at which to analyse, ascending, with shares of the significance.

    Args:
        halfwidth: wanted half of the interval's length, in (0, 1).
        confidence: of the interval over all analyses, in (0, 1).
        most: largest number of trials, at which the last analysis is if not before.
        batch: trials that run together, an even number.
        common: whether the two trials of a pair share their random numbers.

    Raises InputError for halfwidth or confidence out of range.
    """
    needed = enough(halfwidth, confidence, common)
    last = min(most, math.ceil(needed / batch) * batch)
    early = set()
    # Earlier analyses lie at falling powers of GROWTH below the last one, each rounded up to a
    # whole batch.
    trials = needed / GROWTH
    while trials >= FIRST_ANALYSIS[common] / halfwidth:
        early.add(math.ceil(trials / batch) * batch)
        trials /= GROWTH
    before = sorted(analysis for analysis in early if analysis < last)
    if not before:
        return {last: 1.0}
    # The earlier analyses divide the rest of the significance equally.
    rest = (1 - LAST_SHARE[common]) / len(before)
    return dict.fromkeys(before, rest) | {last: LAST_SHARE[common]}


def _longest(trials: int, confidence: float, design: Design) -> float:
    """Return the largest length of the advantage's interval after so many trials."""
    level = design.level(confidence)
    if not design.common:
        # The interval of a proportion is longest at one half.
        half = clopper_pearson(trials // 2, trials, level)
        return 2 * (half.high - half.low)
    pairs, alpha = trials // 2, 1 - level
    ends = [
        clopper_pearson(pairs // 2, pairs, 1 - share * alpha)
        for share in (WON_SHARE, 1 - WON_SHARE)
    ]
    return sum(end.high - end.low for end in ends)
