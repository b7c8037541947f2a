"""The numbers of a figure, read from its artists, so that a page can describe it in words.

A label names a series, as in the legend; the legend leaves out labels that begin with an
underscore. An artist without a label is decoration.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.container import BarContainer, Container, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from matplotlib.ticker import FixedLocator, FuncFormatter

UNNAMED = re.compile(r"_(child|container)\d+$|_nolegend_$|$")
"""Labels that matplotlib gives to artists without one."""

FLAT = 2e-3
Points = npt.NDArray[np.float64]
Values = Sequence[float] | Points
Found = tuple[str, Values, Values]
Place = float | str


@dataclass(frozen=True)
class Series:
    """A series of a figure.

    Attributes:
        at: places of the values, [n]; empty for a line across the axes.
        values: [n], or the single value of such a line; NaN for a missing value.
    """

    panel: str
    across: str
    up: str
    name: str
    at: tuple[Place, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Numbers:
    """The series of a figure."""

    series: tuple[Series, ...]
    flat: bool


def read(figure: Figure) -> Numbers:
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    series = tuple(one for axes in panels for one in _Panel(axes).series())
    return Numbers(series, bool(series) and all(_Panel(axes).flat() for axes in panels))


def encode(numbers: Numbers) -> str:
    values = asdict(numbers)
    for one in values["series"]:
        one["values"] = [value if np.isfinite(value) else None for value in one["values"]]
    return json.dumps(values, ensure_ascii=False)


def decode(text: str) -> Numbers:
    values = json.loads(text)

    def series(one: Mapping[str, Any]) -> Series:
        measured = (np.nan if value is None else value for value in one["values"])
        return Series(**{**one, "at": tuple(one["at"]), "values": tuple(measured)})

    return Numbers(tuple(map(series, values["series"])), values["flat"])


class _Panel:
    """One pair of axes. Values run along x if the ticks of the y axis have names."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.across, self.up = 0, 1
        if _named_ticks(axes.yaxis) and not _named_ticks(axes.xaxis):
            self.across, self.up = 1, 0
        self.names = _named_ticks((axes.xaxis, axes.yaxis)[self.across])

    def series(self) -> list[Series]:
        joined: dict[str, tuple[list[Place], list[float]]] = {}
        for name, at, values in self._found():
            places, numbers = joined.setdefault(name, ([], []))
            places += [self.names.get(round(float(place), 9), _rounded(place)) for place in at]
            numbers += [_rounded(value) for value in values]
        title = "".join(self.axes.get_title(loc) for loc in ("left", "center", "right"))
        labels = self.axes.get_xlabel(), self.axes.get_ylabel()
        return [
            Series(title, labels[self.across], labels[self.up], name, tuple(at), tuple(values))
            for name, (at, values) in joined.items()
            if values
        ]

    def flat(self) -> bool:
        """Return whether the panel has only lines and bands that do not vary."""
        if self.axes.patches or self.axes.images:
            return False
        low, high = (self.axes.get_xlim, self.axes.get_ylim)[self.up]()
        room = FLAT * abs(high - low)
        drawn = [self._points(line) for line in self.axes.lines if not self._is_level(line)]
        for collection in self.axes.collections:
            drawn += [np.concatenate(vertices)] if (vertices := _vertices(collection)) else []
        return all(np.ptp(points[:, self.up]) <= room for points in drawn if len(points))

    def _found(self) -> Iterator[Found]:
        for line in self.axes.lines:
            if name := _name(line):
                yield from self._of_line(name, line)
        for container in self.axes.containers:
            if name := _name(container):
                yield from self._of_container(name, container)
        for patch in self.axes.patches:
            if isinstance(patch, StepPatch) and (name := _name(patch)):
                heights, edges, _ = patch.get_data()
                yield name, (edges[:-1] + edges[1:]) / 2, heights
        for collection in self.axes.collections:
            if not (name := _name(collection)):
                continue
            if isinstance(collection, LineCollection):
                yield from self._of_segments(name, collection)
            elif isinstance(collection, PolyCollection):
                yield from self._of_band(name, collection)

    def _of_container(self, name: str, container: Container) -> Iterator[Found]:
        if isinstance(container, ErrorbarContainer):
            data, _, spreads = container
            yield from self._of_line(name, data)
            for spread in spreads:
                yield from self._of_segments(name, spread)
        elif isinstance(container, BarContainer):
            for bar in container:
                yield name, [bar.get_x() + bar.get_width() / 2], [bar.get_height()]

    def _of_line(self, name: str, line: Line2D) -> Iterator[Found]:
        points = self._points(line)
        if self._is_level(line):
            across_x, _ = line.get_transform().contains_branch_seperately(self.axes.transData)
            yield name, (), points[:1, 0 if across_x else 1]
        elif len(points) == 2 and points[0, self.across] == points[1, self.across]:
            yield from _ends(name, points[:1, self.across], points[:, self.up])
        else:
            yield name, points[:, self.across], points[:, self.up]

    def _of_segments(self, name: str, lines: LineCollection) -> Iterator[Found]:
        for segment in _vertices(lines):
            at, ends = [segment[:, self.across].mean()], segment[:, self.up]
            if np.ptp(ends):
                yield from _ends(name, at, ends)
            else:
                yield name, at, ends[:1]

    def _of_band(self, name: str, band: PolyCollection) -> Iterator[Found]:
        for outline in _vertices(band):
            for at in np.unique(outline[:, self.across]):
                yield from _ends(name, [at], outline[outline[:, self.across] == at, self.up])

    def _is_level(self, line: Line2D) -> bool:
        """Return whether a line crosses all of the axes, as axhline and axvline draw."""
        return not all(line.get_transform().contains_branch_seperately(self.axes.transData))

    @staticmethod
    def _points(line: Line2D) -> Points:
        return np.asarray(line.get_xydata(), np.float64)


def _ends(name: str, at: Sequence[float] | Points, values: Points) -> Iterator[Found]:
    yield f"{name}, low", list(at), [float(np.min(values))]
    yield f"{name}, high", list(at), [float(np.max(values))]


def _vertices(collection: Collection) -> list[Points]:
    return [np.asarray(path.vertices, float) for path in collection.get_paths()]


def _name(artist: Artist | Any) -> str:
    label = str(artist.get_label())
    return "" if UNNAMED.match(label) else label.removeprefix("_")


def _named_ticks(axis: Axis) -> dict[float, str]:
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not (isinstance(locator, FixedLocator) and isinstance(formatter, FuncFormatter)):
        return {}
    return {round(float(at), 9): formatter(at).replace("\n", ", ") for at in locator()}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
