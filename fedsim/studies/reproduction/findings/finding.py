"""What an item of a source comes to here: numbers beside the source's own, tables and pictures."""

import math
from dataclasses import dataclass, field
from typing import Literal

from adversaries.statistics.intervals import clopper_pearson
from fedsim.audits.results.numbers import Ends, Real

CONFIDENCE = 0.95
"""Of every interval that is set beside a source's number."""


@dataclass(frozen=True)
class Reference:
    """What a source has for a number.

    Attributes:
        range: what the number may have been: of the digits that are printed, or the interval of
            the experiments that it rests on.
        origin: "published" in the source, or "recorded" by what its authors' code printed.
    """

    value: Real
    range: Ends
    origin: Literal["published", "recorded"] = "published"


@dataclass(frozen=True)
class Number:
    """One number of an item.

    Attributes:
        interval: of 95 %, over what was drawn; None of what was computed without chance.
        closed_form: what theory says that it is; None where it says nothing.
        references: what the source has; none where it printed nothing.
        departs: why it is not the source's, where that is known; "" elsewhere.
    """

    name: str
    ours: Real
    interval: Ends | None = None
    closed_form: Real | None = None
    references: tuple[Reference, ...] = ()
    departs: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of words."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A figure."""

    name: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Reproduced:
    """What an item came to."""

    conclusion: str
    numbers: tuple[Number, ...] = ()
    pictures: tuple[Picture, ...] = ()
    grids: tuple[Grid, ...] = field(default=())


@dataclass(frozen=True)
class Agreement:
    """Whether a number is the source's.

    Attributes:
        kind: "agrees", "departs", or "alone" where there is nothing to hold it against.
    """

    kind: Literal["agrees", "departs", "alone"]
    text: str


def printed(value: float, decimals: int) -> Reference:
    """Return a published number that was rounded."""
    half = 0.5 * 10**-decimals
    # A hair more, because a half was rounded one way or the other.
    return Reference(value, (value - half * 1.001, value + half * 1.001))


def advantage_of_wins(wins: int, trials: int) -> Reference:
    """Return a recorded advantage, 2 wins/trials - 1, with its Clopper-Pearson interval."""
    won = clopper_pearson(wins, trials, CONFIDENCE)
    range = (2 * won.low - 1, 2 * won.high - 1)
    return Reference(2 * wins / trials - 1, range, "recorded")


def agreement(number: Number) -> Agreement:
    """Return whether a number is the source's, and theory's."""
    low, high = number.interval or (number.ours, number.ours)
    slack = 1e-9 * max(1.0, abs(number.ours)) if math.isfinite(number.ours) else 0.0
    theory = number.closed_form
    beside = ""
    if theory is not None and number.interval is not None:
        within = low - slack <= theory <= high + slack
        beside = f"; theory's value lies {'within' if within else 'outside of'} our interval"
    apart = [one for one in number.references if high + slack < one.range[0] or low > one.range[1]]
    if apart:
        origins = " and ".join(dict.fromkeys(one.origin for one in apart))
        why = f"because {number.departs}" if number.departs else "for a reason that is not known"
        return Agreement("departs", f"departs from what was {origins} {why}{beside}")
    if number.references:
        exact = number.interval is None
        said = "within what was printed" if exact else "intervals overlap"
        return Agreement("agrees", said + beside)
    return Agreement("alone", f"nothing was printed{beside}")
