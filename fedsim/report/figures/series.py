"""The numbers behind a figure: what its functions draw, they keep."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adversaries.arrays import Floats, Ints

FLAT = 2e-3
Place = float | str
Places = Sequence[float] | Sequence[str] | Floats | Ints
Values = Sequence[float] | Floats | Ints


@dataclass(frozen=True, eq=False)
class _Kept:
    axes: Axes
    name: str
    at: tuple[Place, ...]
    values: tuple[float, ...]
    varies: bool


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


@dataclass(frozen=True)
class Numbers:
    """The numbers of a figure; flat: whether it has only lines and bands that do not vary."""

    series: tuple[Series, ...]
    flat: bool


def keep(axes: Axes, name: str, at: Places, values: Values, *, varies: bool = False) -> None:
    """Keep a series with the figure of its axes.

    Args:
        name: the same name several times joins the series; "" keeps nothing.
        at: [n] places, as numbers or names; none for a line across the axes.
        values: [n].
        varies: whether it is worth drawing, also where all values are the same.
    """
    if name and isinstance(axes.figure, Drawing):
        places = tuple(each if isinstance(each, str) else _rounded(each) for each in at)
        rounded = tuple(_rounded(each) for each in values)
        axes.figure.kept.append(_Kept(axes, name, places, rounded, varies))


def keep_ends(axes: Axes, name: str, at: Places, low: Values, high: Values) -> None:
    if name:
        keep(axes, f"{name}{LOW}", at, low)
        keep(axes, f"{name}{HIGH}", at, high)


LOW, HIGH = ", low", ", high"


def numbers(figure: Figure) -> Numbers:
    kept = figure.kept if isinstance(figure, Drawing) else []
    return Numbers(tuple(_joined(kept)), bool(kept) and not any(map(_varies, _curves(kept))))


def _joined(kept: Iterable[_Kept]) -> Iterator[Series]:
    joined: dict[tuple[Axes, str], list[_Kept]] = {}
    for one in kept:
        joined.setdefault((one.axes, one.name), []).append(one)
    for (axes, name), parts in joined.items():
        title = "".join(axes.get_title(loc) for loc in ("left", "center", "right"))
        named = any(isinstance(place, str) for part in parts for place in part.at)
        across = "" if named else axes.get_xlabel()
        at = tuple(place for part in parts for place in part.at)
        yield Series(title, across, name, at, tuple(v for part in parts for v in part.values))


def _curves(kept: Iterable[_Kept]) -> Iterator[list[_Kept]]:
    """Yield what belongs together: a curve with the ends of its band; lines across are left out."""
    curves: dict[tuple[Axes, str], list[_Kept]] = {}
    for one in kept:
        if one.at:
            name = one.name.removesuffix(LOW).removesuffix(HIGH)
            curves.setdefault((one.axes, name), []).append(one)
    yield from curves.values()


def _varies(curve: Sequence[_Kept]) -> bool:
    low, high = curve[0].axes.get_ylim()
    values = np.array([value for one in curve for value in one.values])
    spread = np.ptp(values) if len(values) else 0.0
    return any(one.varies for one in curve) or not spread <= FLAT * abs(high - low)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
