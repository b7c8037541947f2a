"""Trials that stop once the advantage is known precisely enough: interim analyses and their price.

Whoever analyses several times and stops at will misses the truth more often than an interval says.
So the analyses are planned, and each has its share of the significance (Bonferroni's spending). The
last one is where the interval is short enough whatever was found, ties aside. With ties, which
count as lost at one end of the interval and as won at the other, it may be longer than asked; the
significance is spent, and the trials end there all the same. Independent trials have intervals
whose length hardly depends on what is found, so that most of the significance is kept for the last
analysis; with common random numbers it does, and how much is not known before.
"""

import math

from adversaries.errors import InputError
from adversaries.statistics.design import WON_SHARE, Design
from adversaries.statistics.intervals import clopper_pearson, significance

GROWTH = 1.5
"""Every analysis has so many times the trials of the one before, rounded up to whole batches."""

LAST_SHARE = {False: 0.75, True: 0.25}
"""Of the significance, what the last analysis gets, without and with common random numbers."""

FIRST_ANALYSIS = {False: 6.0, True: 12.0}
"""The first has so many trials over the halfwidth: before, not even all trials won suffice."""


def enough(halfwidth: float, confidence: float, common: bool) -> int:
    """Return after how many trials the last interval is short enough, whatever is found.

    Without ties, that is: every one of them makes the interval longer, and all trials can be ties.

    Args:
        halfwidth: half the length that is short enough, in (0, 1).
        confidence: of the interval over all analyses, in (0, 1).
        common: whether the two trials of a pair share their random numbers.

    Raises:
        InputError: unless 0 < halfwidth < 1; an impossible confidence.
    """
    significance(confidence)
    if not 0 < halfwidth < 1:
        raise InputError(f"the halfwidth is {halfwidth}; give a number between 0 and 1, like 0.05")
    design = Design(common, LAST_SHARE[common])
    high = 4
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
    """Return after how many trials to analyse, ascending, with shares of the significance.

    The shares sum to 1.

    Args:
        halfwidth: half the length of the interval that is short enough, in (0, 1).
        confidence: of the interval over all analyses, in (0, 1).
        most: trials at most, after which is the last analysis if not before.
        batch: trials that are run together, an even number.
        common: whether the two trials of a pair share their random numbers.

    Raises:
        InputError: as of `enough`.
    """
    needed = enough(halfwidth, confidence, common)
    last = min(most, math.ceil(needed / batch) * batch)
    early = set()
    trials = needed / GROWTH
    while trials >= FIRST_ANALYSIS[common] / halfwidth:
        early.add(math.ceil(trials / batch) * batch)
        trials /= GROWTH
    before = sorted(analysis for analysis in early if analysis < last)
    if not before:
        return {last: 1.0}
    rest = (1 - LAST_SHARE[common]) / len(before)
    return dict.fromkeys(before, rest) | {last: LAST_SHARE[common]}


def _longest(trials: int, confidence: float, design: Design) -> float:
    """Return the length of the advantage's interval after so many trials at its longest."""
    level = design.level(confidence)
    if not design.common:
        half = clopper_pearson(trials // 2, trials, level)
        return 2 * (half.high - half.low)
    pairs, alpha = trials // 2, 1 - level
    ends = [
        clopper_pearson(pairs // 2, pairs, 1 - share * alpha)
        for share in (WON_SHARE, 1 - WON_SHARE)
    ]
    return sum(end.high - end.low for end in ends)
