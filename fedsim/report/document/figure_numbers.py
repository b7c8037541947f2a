"""The numbers behind a figure in words: what is seen in it, and its tables."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from fedsim.report.document.blocks import Block, Prose, tabulated
from fedsim.report.document.wording import number
from fedsim.report.figures.numbers import Numbers, Place, Series

MOST_ROWS = 60
"""Beyond which a series is summed up instead of listed."""

MOST_SAID = 6
"""Of how many series a text alternative speaks."""

SUMMED_UP = ("series", "values", "first", "least", "greatest", "last")


def seen(numbers: Numbers) -> str:
    """Return in a few sentences what a reader sees in a figure, "" where it has no numbers."""
    said = [_course(one) for one in numbers.series if not one.name.endswith((", low", ", high"))]
    more = f"; and {len(said) - MOST_SAID} more" if len(said) > MOST_SAID else ""
    return f"{'; '.join(said[:MOST_SAID])}{more}." if said else ""


def unvarying(numbers: Numbers) -> str:
    """Return what a figure of which nothing varies would show, as a sentence."""
    said: dict[str, str] = {}
    for one in numbers.series:
        name = one.name.removesuffix(", low").removesuffix(", high")
        everywhere = f" at every {one.across}" if one.across else " throughout"
        value = f"{_titled(one)}{name} is {number(one.values[0])}{everywhere}"
        said.setdefault(name, value if one.at else _course(one))
    return f"Nothing varies, so nothing is drawn: {'; '.join(said.values())}."


def tables(numbers: Numbers) -> list[Block]:
    """Return the numbers behind a figure: a table for all series that stand at the same places.

    Series of more than `MOST_ROWS` values are summed up.
    """
    listed: list[Block] = []
    long = []
    for (panel, across, at), group in groupby(
        sorted(numbers.series, key=_where), key=lambda one: (one.panel, one.across, one.at)
    ):
        series = list(group)
        if len(at) > MOST_ROWS:
            long += series
        elif at:
            headings = [across or "at", *(one.name for one in series)]
            values = zip(*(one.values for one in series), strict=True)
            rows = [[_place(x), *map(number, y)] for x, y in zip(at, values, strict=True)]
            listed += _listed(panel, headings, rows)
        else:
            rows = [[one.name, number(one.values[0])] for one in series]
            listed += _listed(panel, ["line", "at"], rows)
    if long:
        listed += _listed("", SUMMED_UP, [_summed_up(one) for one in long])
    return listed


def _listed(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Block]:
    table = tabulated(headings, rows, "compact")
    return [Prose(title), table] if title else [table]


def _where(one: Series) -> tuple[str, int, str]:
    """Return by what series are brought together, lines across the axes last."""
    return one.panel, not one.at, str(one.at)


def _course(one: Series) -> str:
    name = f"{_titled(one)}{one.name}"
    if not one.at:
        return name if any(map(str.isdigit, name)) else f"{name} {number(one.values[0])}"
    if len(one.at) == 1 or isinstance(one.at[0], str):
        pairs = zip(one.at[:MOST_SAID], one.values, strict=False)
        return f"{name} " + ", ".join(f"{number(y)} at {_place(x)}" for x, y in pairs)
    course = f"{name} from {number(one.values[0])} to {number(one.values[-1])}"
    return f"{course} over {one.across}" if one.across else course


def _titled(one: Series) -> str:
    return f"{one.panel}, " if one.panel and one.panel != one.name else ""


def _summed_up(one: Series) -> list[str]:
    values = np.array(one.values)
    ends = values[0], np.nanmin(values), np.nanmax(values), values[-1]
    return [f"{_titled(one)}{one.name}", str(len(values)), *map(number, ends)]


def _place(place: Place) -> str:
    return place if isinstance(place, str) else number(place)
