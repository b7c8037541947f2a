"""The numbers behind a figure: what its functions draw, they keep."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adversaries.arrays import Floats, Ints

Place = float | str
Places = Sequence[float] | Sequence[str] | Floats | Ints
Values = Sequence[float] | Floats | Ints


@dataclass(frozen=True, eq=False)
class _Kept:
    axes: Axes
    name: str
    at: tuple[Place, ...]
    values: tuple[float, ...]


class Drawing(Figure):
    """A figure that keeps the arrays it shows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kept: list[_Kept] = []


@dataclass(frozen=True)
class Series:
    """A series of a figure: places [n], none for a line across the axes, and values [n] or NaN."""

    panel: str
    across: str
    name: str
    at: tuple[Place, ...]
    values: tuple[float, ...]


def keep(axes: Axes, name: str, at: Places, values: Values) -> None:
    """Keep a series with the figure of its axes.

    Args:
        name: the same name several times joins the series; "" keeps nothing.
        at: [n] places, as numbers or names; none for a line across the axes.
        values: [n].
    """
    if name and isinstance(axes.figure, Drawing):
        places = tuple(each if isinstance(each, str) else _rounded(each) for each in at)
        rounded = tuple(_rounded(each) for each in values)
        axes.figure.kept.append(_Kept(axes, name, places, rounded))


def keep_ends(axes: Axes, name: str, at: Places, low: Values, high: Values) -> None:
    if name:
        keep(axes, f"{name}{LOW}", at, low)
        keep(axes, f"{name}{HIGH}", at, high)


LOW, HIGH = ", low", ", high"


def series(figure: Figure) -> Iterator[Series]:
    """Yield what a figure shows, in the order of drawing."""
    joined: dict[tuple[Axes, str], list[_Kept]] = {}
    for one in figure.kept if isinstance(figure, Drawing) else ():
        joined.setdefault((one.axes, one.name), []).append(one)
    for (axes, name), parts in joined.items():
        title = "".join(axes.get_title(loc) for loc in ("left", "center", "right"))
        named = any(isinstance(place, str) for part in parts for place in part.at)
        across = "" if named else axes.get_xlabel()
        at = tuple(place for part in parts for place in part.at)
        yield Series(title, across, name, at, tuple(v for part in parts for v in part.values))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
