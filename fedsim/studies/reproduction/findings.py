"""Items of the sources: what each needs and costs, and its numbers beside the source's own."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from adversaries.errors import InputError
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
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Reproduced:
    """What an item came to."""

    conclusion: str
    numbers: tuple[Number, ...] = ()
    pictures: tuple[Picture, ...] = ()
    grids: tuple[Grid, ...] = ()


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


class Scale(StrEnum):
    """How much is computed."""

    SMOKE = "smoke"
    FULL = "full"


@dataclass(frozen=True)
class Means:
    """What an item may use.

    Attributes:
        folder: where its runs are kept, so that a later call takes them up.
    """

    scale: Scale
    folder: Path
    data_root: Path | None = None
    download: bool = False
    say: Callable[[str], None] = print

    @property
    def smoke(self) -> bool:
        """Whether nothing is to be concluded from what comes out."""
        return self.scale is Scale.SMOKE

    def data(self, name: str) -> Path:
        if not self.has(name):
            raise InputError(f"no data of {name}: {DATA[name]}")
        assert self.data_root is not None
        return self.data_root / name

    def has(self, name: str) -> bool:
        """Return whether a data set is there, or may be downloaded."""
        if self.data_root is None:
            return False
        return (self.download and name in DOWNLOADED) or (self.data_root / name).is_dir()


DATA: Mapping[str, str] = {
    "mnist": "put its four files into DIR/mnist and give --data-root DIR, or add --download",
    "fashion-mnist": "put its four files into DIR/fashion-mnist and give --data-root DIR, or add "
    "--download",
    "adult": "put UCI's adult.data and adult.test into DIR/adult and give --data-root DIR",
    "abalone": "put UCI's abalone.data into DIR/abalone and give --data-root DIR",
    "cifar-10": "put its original batches into DIR/cifar-10 and give --data-root DIR",
    "purchase-100": "put your own features.npy and labels.npy into DIR/purchase-100",
}
"""Data that items need, by the name of the folder, with how to get them."""

DOWNLOADED = ("mnist", "fashion-mnist")
"""Those that can be downloaded."""


Make = Callable[[Means], Reproduced]

LONG = 300.0
"""Minutes above which an item is made only when it is named."""


@dataclass(frozen=True)
class Item:
    """One thing that a source published.

    Attributes:
        minutes: of the full scale on two cores, about, where no run of it is there.
        needs: the data sets, keys of `DATA`; the smoke scale needs none.
    """

    source: str
    name: str
    title: str
    minutes: float
    make: Make
    needs: tuple[str, ...] = ()

    def too_long(self, means: Means) -> bool:
        """Return whether it is made only when it is named."""
        return self.minutes > LONG and not means.smoke

    def missing(self, means: Means) -> list[str]:
        """Return the data sets that it needs and that are not there."""
        return [] if means.smoke else [name for name in self.needs if not means.has(name)]


def averaged(
    name: str, values: npt.ArrayLike, references: tuple[Reference, ...] = (), departs: str = ""
) -> Number:
    """Return the mean of a few draws with Student's interval.

    Args:
        values: [n], n >= 2.
    """
    each = np.asarray(values, dtype=np.float64)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(each) - 1) * stats.sem(each))
    mean = float(each.mean())
    return Number(name, mean, (mean - half, mean + half), None, references, departs)


def share(name: str, hits: npt.NDArray[np.bool_], theory: float | None = None) -> Number:
    """Return how often something was so, with Clopper and Pearson's interval.

    Args:
        hits: [n], of each draw.
    """
    count, draws = int(hits.sum()), hits.size
    found = clopper_pearson(count, draws, CONFIDENCE)
    return Number(name, count / draws, (found.low, found.high), theory)
