"""A plot keeps its arrays and draws itself; the same arrays are its table and its text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from adversaries.arrays import Floats, Ints
from fedsim.reports.figures import canvas
from fedsim.reports.figures.canvas import BLUE, HEIGHT, INK, MUTED, WIDTH

Numbers = Sequence[float] | Sequence[float | None] | Floats | Ints
Places = Numbers | Sequence[str]

LARGEST_SVG = 500_000
"""Characters above which a figure is a PNG instead."""

LINES = {"line": "-", "dashed": "--", "dotted": "-.", "points": "o", "joined": "-o"}
"""How matplotlib names each look of a curve, beside "steps"."""

LOW, HIGH = ", low", ", high"


@dataclass(frozen=True, eq=False)
class Curve:
    """One series of a plot.

    Attributes:
        name: "" for decoration, which neither legend nor table has.
        at: [n] places, as numbers or names; [n + 1] edges of steps.
        values: [n]; what is unknown or infinite leaves a gap.
        low, high: [n] ends of the band around a line, or of the interval of a point.
        look: a key of LINES, or "steps".
        faint: whether it stands behind others, without a place in the legend.
    """

    name: str
    at: Places
    values: Numbers
    colour: str = BLUE
    look: str = "line"
    low: Numbers | None = None
    high: Numbers | None = None
    faint: bool = False


@dataclass(frozen=True)
class Level:
    """A line across the panel, or upright, at one value."""

    name: str
    value: float
    colour: str = INK
    look: str = "dashed"
    upright: bool = False


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes:
        up: what the upright axis shows.
        scale: "percent" from 0 to 1, "zero" for numbers from 0, "free", or "log" on both axes.
        trails: faint lines [m, k] behind the curves, by colour.
        note: words above the place 0 of the axis across.
    """

    curves: Sequence[Curve]
    up: str = ""
    across: str = "round"
    title: str = ""
    levels: Sequence[Level] = ()
    scale: Literal["percent", "zero", "free", "log"] = "free"
    trails: Mapping[str, Floats] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Series:
    """Numbers of a panel: places [n], none for a level, and values [n], NaN for a gap."""

    panel: str
    across: str
    name: str
    at: tuple[float | str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Plot:
    """Panels beside one another, which share the upright axis unless each has its own title."""

    panels: Sequence[Panel]
    height: float = HEIGHT

    @cached_property
    def figure(self) -> Figure:
        count = len(self.panels)
        shared = count > 1 and len({each.up for each in self.panels}) == 1
        width = max(WIDTH, 3.4 * count)
        with canvas.panels(1, count, width, self.height, sharey=shared) as (figure, beside):
            for axes, panel in zip(beside, self.panels, strict=True):
                _draw(axes, panel)
        return figure

    @cached_property
    def picture(self) -> str | bytes:
        """The plot as an SVG document, or as a PNG where that would be too large."""
        svg = canvas.to_svg(self.figure)
        return svg if len(svg) <= LARGEST_SVG else canvas.to_png(self.figure)

    @cached_property
    def series(self) -> list[Series]:
        return [one for panel in self.panels for one in _series(panel)]


def _series(panel: Panel) -> Iterator[Series]:
    for curve in panel.curves:
        at, named = curve.at, curve.look != "steps" and any(isinstance(p, str) for p in curve.at)
        if curve.look == "steps":
            edges = np.asarray(at, float)
            at = (edges[:-1] + edges[1:]) / 2
        places = tuple(map(str, at)) if named else tuple(_array(at).tolist())
        across = "" if named else panel.across
        ends = {"": curve.values, LOW: curve.low, HIGH: curve.high}
        for end, values in ends.items():
            if curve.name and values is not None:
                name = f"{curve.name}{end}"
                yield Series(panel.title, across, name, places, tuple(_array(values).tolist()))
    for level in panel.levels:
        yield Series(panel.title, panel.across, level.name, (), (level.value,))


def _array(values: Places | Numbers) -> Floats:
    return np.array(values, np.float64)


def _draw(axes: Axes, panel: Panel) -> None:
    places = (place for curve in panel.curves for place in curve.at)
    names = [*dict.fromkeys(place for place in places if isinstance(place, str))]
    for colour, trails in panel.trails.items():
        rounds = np.broadcast_to(np.arange(1, trails.shape[1] + 1), trails.shape)
        lines = list(np.stack([rounds, trails], axis=-1))
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=0.6, alpha=0.16))
    for curve in sorted(panel.curves, key=lambda curve: not curve.faint):
        at = [names.index(str(place)) for place in curve.at] if names else _array(curve.at)
        _draw_curve(axes, curve, np.asarray(at, np.float64))
    for level in panel.levels:
        draw = axes.axvline if level.upright else axes.axhline
        draw(level.value, color=level.colour, linewidth=1.2, ls=LINES[level.look], label=level.name)
    if names:
        axes.set_xticks(range(len(names)), names)
        axes.margins(x=0.2)
        axes.grid(False, axis="x")
    _scale(axes, panel)
    if panel.across == "round":
        canvas.rounds_axis(axes, np.unique(np.concatenate([_array(c.at) for c in panel.curves])))
    elif panel.across:
        axes.set_xlabel(panel.across)
    if panel.note:
        place = axes.get_xaxis_transform()
        axes.text(0, 1.01, panel.note, transform=place, ha="center", fontsize=8.5, color=MUTED)
    if panel.title:
        axes.set_title(panel.title, pad=22)
    axes.set_ylabel(panel.up)
    canvas.legend_above(axes, 0.06 if panel.note else 0.0)


def _draw_curve(axes: Axes, curve: Curve, at: npt.NDArray[np.float64]) -> None:
    hidden = curve.faint or not curve.name
    label, colour = f"_{curve.name}" if hidden else curve.name, curve.colour
    values = _array(curve.values)
    values[~np.isfinite(values)] = np.nan
    if curve.look == "steps":
        axes.stairs(values, at, fill=True, color=colour, alpha=0.28)
        axes.stairs(values, at, color=colour, linewidth=0.9, label=label)
        return
    if curve.low is not None and curve.high is not None:
        low, high = _array(curve.low), _array(curve.high)
        if curve.look in ("points", "joined") or len(at) == 1:
            axes.vlines(at, low, high, color=colour, linewidth=2)
        else:
            axes.fill_between(at, low, high, color=colour, alpha=0.14, linewidth=0)
    look = LINES[curve.look]
    axes.plot(
        at,
        values,
        look if len(at) > 1 or "o" in look else f"{look}o",
        color=colour,
        alpha=0.5 if curve.faint else None,
        linewidth=1.2 if curve.faint else 1.8,
        markersize=5,
        label=label,
    )


def _scale(axes: Axes, panel: Panel) -> None:
    match panel.scale:
        case "percent":
            canvas.percent_axis(axes)
        case "zero":
            top = axes.get_ylim()[1]
            axes.set_ylim(0, 1.05 * top if top > 0 else 1)
        case "log":
            axes.set(xscale="log", yscale="log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
        case "free":
            axes.margins(y=0.05)
