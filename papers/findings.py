"""Items of the sources, with their cost, their data, and their numbers beside the source's."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics.intervals import clopper_pearson
from fedsim.audits.results.numbers import Ends, Real
from fedsim.reports.document.wording import DASH, number, span

CONFIDENCE = 0.95
NORMAL = float(stats.norm.ppf(0.5 + CONFIDENCE / 2))
"""Halfwidth of an interval over the standard deviation."""

LEAST_SHOWN = 1e-4
"""A smaller p-value is not shown as a number, since the law of differences is approximate."""


@dataclass(frozen=True)
class Reference:
    """A source's value of a number.

    Attributes:
        range: possible values, by the printed digits or by the interval of the source's
            experiments.
        sampled: whether the range is the 95 % interval of the source's random draws.
    """

    value: Real
    range: Ends
    sampled: bool = False


@dataclass(frozen=True)
class Number:
    """One number of an item.

    Attributes:
        interval: of 95 %, over random draws; None without randomness.
        closed_form: value by theory; None if theory has none.
        references: the source's values; () if it has none.
        departs: why the value departs from the source; "" if unknown, or if it does not depart.
    """

    name: str
    ours: Real
    interval: Ends | None = None
    closed_form: Real | None = None
    references: Sequence[Reference] = ()
    departs: str = ""


@dataclass(frozen=True)
class Grid:
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class ItemPicture:
    name: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Reproduced:
    """The result of an item."""

    conclusion: str
    numbers: Sequence[Number] = ()
    pictures: Sequence[ItemPicture] = ()
    grids: Sequence[Grid] = ()


@dataclass(frozen=True)
class MadeItem:
    """An item that was made: its time in UTC, and its duration without runs that existed before."""

    source: str
    name: str
    title: str
    scale: str
    fedsim: str
    created: str
    seconds: float
    command: str
    finding: Reproduced


@dataclass(frozen=True)
class SourceAgreement:
    """The comparison of a number with its source; "alone" if the source has no value."""

    kind: Literal["agrees", "departs", "alone"]
    text: str


def near(value: float, error: float) -> Reference:
    """Return a number that was read or rounded with at most this error."""
    return Reference(value, (value - error, value + error))


def printed(value: float, decimals: int) -> Reference:
    """Return a number that was rounded; half a digit may be rounded up or down."""
    half = 0.5 * 10**-decimals
    return near(value, half * 1.001)


def advantage_of_wins(wins: int, trials: int) -> Reference:
    """Return an advantage, 2 wins/trials - 1, with its Clopper-Pearson interval."""
    won = clopper_pearson(wins, trials, CONFIDENCE)
    return Reference(2 * wins / trials - 1, (2 * won.low - 1, 2 * won.high - 1), sampled=True)


def middle(values: Floats | Sequence[float]) -> Ends:
    """Return the range of 95 % of some values."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def agreement(number: Number) -> SourceAgreement:
    """Return whether a number agrees with its source and with theory."""
    low, high = number.interval or (number.ours, number.ours)
    slack = 1e-9 * max(1.0, abs(number.ours)) if math.isfinite(number.ours) else 0.0
    theory = number.closed_form
    beside = ""
    if theory is not None and number.interval is not None:
        within = low - slack <= theory <= high + slack
        beside = f"; theory's value lies {'within' if within else 'outside of'} our interval"
    if any(_apart(number, one, slack) for one in number.references):
        why = f"because {number.departs}" if number.departs else "for an unknown reason"
        return SourceAgreement("departs", f"departs from the published value {why}{beside}")
    if number.references:
        exact = number.interval is None
        agrees = "within the printed digits" if exact else "the difference may be chance"
        return SourceAgreement("agrees", agrees + beside)
    return SourceAgreement("alone", f"the source has no value{beside}")


def _apart(number: Number, reference: Reference, slack: float) -> bool:
    difference, random, fixed = _differ(number, reference)
    return difference - fixed > max(random, slack)


def _differ(number: Number, reference: Reference) -> tuple[float, float, float]:
    """Return the difference, its 95 % half-width by chance, and what rounding may add to it.

    Two independent halfwidths a and b make sqrt(a^2 + b^2), less than a + b, at which two
    intervals stop to overlap. Each is that of the side that faces the other value.
    """
    ends = number.interval or (number.ours, number.ours)
    above = number.ours > reference.value
    ours = number.ours - ends[0] if above else ends[1] - number.ours
    theirs = reference.range[1] - reference.value if above else reference.value - reference.range[0]
    difference = abs(number.ours - reference.value) if number.ours != reference.value else 0.0
    if reference.sampled:
        return difference, math.hypot(ours, theirs), 0.0
    return difference, ours, theirs


def together(numbers: Sequence[Number]) -> float | None:
    """Return the p-value of all cells of a table together; None for fewer than two random ones.

    The squares of n differences over their standard deviations sum to at most a chi-square variable
    with n degrees of freedom, if all values are normal, independent and as published.
    """
    squares = []
    for one in numbers:
        for reference in one.references:
            difference, random, fixed = _differ(one, reference)
            # Two equal numbers are counts of 0, whose difference is not normal.
            if 0 < random < math.inf and 0 < difference < math.inf:
                squares.append((max(0.0, difference - fixed) * NORMAL / random) ** 2)
    if len(squares) < 2:
        return None
    return float(stats.chi2.sf(sum(squares), len(squares)))


def table_agreement(numbers: Sequence[Number]) -> str:
    """Return a sentence about the cells of a table together; "" where none is compared."""
    p_value = together(numbers)
    if p_value is None:
        return ""
    differ = "depart from" if p_value < 1 - CONFIDENCE else "agree with"
    shown = f"= {p_value:.2g}" if p_value >= LEAST_SHOWN else f"< {LEAST_SHOWN:g}"
    return f"All cells together {differ} the published ones (chi-square p {shown})."


def counted(made: Sequence[MadeItem]) -> str:
    """Return how many numbers agree with their sources."""
    kinds = [agreement(one).kind for item in made for one in item.finding.numbers]
    return (
        f"{len(made)} items with {len(kinds)} numbers: {kinds.count('agrees')} agree with the "
        f"source, {kinds.count('departs')} depart from it, and for {kinds.count('alone')} the "
        "source has no value."
    )


def compared_cells(one: Number) -> tuple[str, str, str]:
    """Return the source's values, ours with its interval, and theory's, as text."""
    source = ", ".join(number(each.value) for each in one.references) or DASH
    ours = number(one.ours) + (f" ({span(one.interval, number)})" if one.interval else "")
    return source, ours, number(one.closed_form)


class Scale(StrEnum):
    """Size of the experiments."""

    SMOKE = "smoke"
    FULL = "full"


@dataclass(frozen=True)
class Means:
    """The means to make an item; the folder has its runs, from which a later call continues."""

    scale: Scale
    folder: Path
    data_root: Path | None = None
    download: bool = False
    say: Callable[[str], None] = print

    @property
    def smoke(self) -> bool:
        """Whether the results allow no conclusion."""
        return self.scale is Scale.SMOKE

    def data(self, name: str) -> Path:
        if not self.has(name):
            raise InputError(f"the data of {name} are missing: {DATA[name]}")
        assert self.data_root is not None
        return self.data_root / name

    def has(self, name: str) -> bool:
        """Return whether a data set exists, or may be downloaded."""
        if self.data_root is None:
            return False
        return (self.download and name in DOWNLOADED) or (self.data_root / name).is_dir()


DATA: Mapping[str, str] = {
    "mnist": "put its four files into DIR/mnist and give --data-root DIR, or add --download",
    "fashion-mnist": "put its four files into DIR/fashion-mnist and give --data-root DIR, or add "
    "--download",
    "adult": "put UCI's adult.data and adult.test into DIR/adult and give --data-root DIR",
    "abalone": "put UCI's abalone.data into DIR/abalone and give --data-root DIR",
    "cifar-10": "put torchvision's cifar-10-batches-py into DIR/cifar-10 and give --data-root DIR",
    "purchase-100": "put your own features.npy and labels.npy into DIR/purchase-100",
}
"""Folder of a data set -> how to get it."""

DOWNLOADED = ("mnist", "fashion-mnist")


Make = Callable[[Means], Reproduced]

LONG = 300.0
"""Minutes above which an item is made only if the user names it."""


@dataclass(frozen=True)
class Item:
    """A published table, figure or statement.

    Attributes:
        minutes: approximate time at full scale on two cores, without earlier runs.
        needs: data sets, keys of `DATA`; the smoke scale needs none.
    """

    source: str
    name: str
    title: str
    minutes: float
    make: Make
    needs: tuple[str, ...] = ()

    def too_long(self, means: Means) -> bool:
        """Return whether the item is made only if the user names it."""
        return self.minutes > LONG and not means.smoke

    def missing(self, means: Means) -> list[str]:
        """Return the data sets that the item needs and that are missing."""
        return [] if means.smoke else [name for name in self.needs if not means.has(name)]


def averaged(
    name: str, values: npt.ArrayLike, references: Sequence[Reference] = (), departs: str = ""
) -> Number:
    """Return the mean of a few draws [n], n >= 2, with Student's interval."""
    each = np.asarray(values, dtype=np.float64)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(each) - 1) * stats.sem(each))
    mean = float(each.mean())
    return Number(name, mean, (mean - half, mean + half), None, references, departs)


def share(name: str, hits: Bools, theory: float | None = None) -> Number:
    """Return the share of hits [n], with Clopper and Pearson's interval."""
    count, draws = int(hits.sum()), hits.size
    interval = clopper_pearson(count, draws, CONFIDENCE)
    return Number(name, count / draws, interval.ends, theory)
