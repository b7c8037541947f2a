"""What all figures share: colours, style, axes, legends, and files.

Every function of this room takes arrays and returns a new matplotlib Figure that no global state
holds on to. Serialisation is deterministic: the same arrays give the same bytes.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.container import BarContainer, Container, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogFormatter,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from adversaries.arrays import Floats, Ints

UNNAMED = re.compile(r"_(child|container)\d+$|_nolegend_$|$")
"""Labels that matplotlib gives to artists without one."""

FLAT = 2e-3
Points = Floats
Values = Sequence[float] | Points
Found = tuple[str, Values, Values]
Place = float | str


@dataclass(frozen=True)
class Series:
    """A series of a figure: places [n], none for a line across the axes, and values [n] or NaN."""

    panel: str
    across: str
    up: str
    name: str
    at: tuple[Place, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Numbers:
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


Pixels = npt.NDArray[np.float32]

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#00785A", "#8E4A84"
INK, MUTED, FAINT = "#1f2933", "#5b6770", "#dfe4e8"
WORLDS = ((True, BLUE, "trained on D"), (False, VERMILION, "trained on D′"))
QUANTILES = (0.05, 0.5, 0.95)
WIDTH, HEIGHT = 7.4, 3.9
LEGEND_LABELS = 12

STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Text stays text: it can be searched and read aloud, and takes the font of the page around it.
    "svg.fonttype": "none",
    "svg.hashsalt": "fedsim",
}


def to_svg(figure: Figure) -> str:
    """Return the figure as a standalone SVG document without a date or a creator."""
    buffer = io.StringIO()
    _plain_ticks(figure)
    with page_style():
        metadata: dict[str, str | None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        metadata["Description"] = encode(read(figure))
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    """Return the figure as a PNG for high-resolution screens and print."""
    buffer = io.BytesIO()
    _plain_ticks(figure)
    metadata = {"Software": None, "Description": encode(read(figure))}
    with page_style():
        figure.savefig(buffer, format="png", dpi=200, metadata=metadata)
    return buffer.getvalue()


def _plain_ticks(figure: Figure) -> None:
    """Write the ticks of logarithmic axes as plain numbers.

    The style does not typeset the mathematics that matplotlib would write. Ticks between powers of
    ten get a label if there are few.
    """
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if axis.get_scale() == "log" and isinstance(axis.get_major_formatter(), LogFormatter):
            low, high = sorted(axis.get_view_interval())
            axis.set_major_formatter(plain)
            axis.set_minor_formatter(plain if high < 10 * low else NullFormatter())


def page_style() -> AbstractContextManager[None]:
    return style.context(["default", STYLE])


@contextmanager
def panels(
    rows: int = 1,
    columns: int = 1,
    width: float = WIDTH,
    height: float = HEIGHT,
    sharey: bool = False,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure and its panels to draw on, row by row; width and height are in inches."""
    with page_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, [*figure.subplots(rows, columns, squeeze=False, sharey=sharey).flat]


@contextmanager
def panel(across: str = "", up: str = "", above: float = 0.0) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure and its axes to draw on; then name the axes and put the legend above them."""
    with panels() as (figure, (axes,)):
        yield figure, axes
        if across:
            axes.set_xlabel(across)
        if up:
            axes.set_ylabel(up)
        legend_above(axes, above)


def draw_curves(
    axes: Axes,
    at: Values | Ints,
    curves: Mapping[str, Values],
    colours: Sequence[str] = (BLUE, VERMILION, GREEN, PURPLE),
    draw: str = "plot",
    **style: Any,
) -> None:
    """Draw values by their labels, each in the next colour, by a method of the axes."""
    for (label, values), colour in zip(curves.items(), colours, strict=False):
        getattr(axes, draw)(at, values, color=colour, label=label, **style)


def quantile_band(axes: Axes, rounds: Ints, band: Floats, colour: str, label: str) -> None:
    """Draw a line with the band around it, [3, k]: low, middle and high."""
    low, middle, high = band
    axes.fill_between(rounds, low, high, color=colour, alpha=0.14, linewidth=0, label=f"_{label}")
    # One round makes no line, but a point with its spread.
    marker = "o" if len(rounds) == 1 else None
    if marker:
        axes.vlines(rounds, low, high, color=colour, linewidth=2)
    axes.plot(rounds, middle, color=colour, linewidth=2, marker=marker, label=label)


def one_among_others(
    axes: Axes, rounds: Ints, curves: Mapping[str, Floats], shown: str, label: str
) -> None:
    """Draw one curve in a colour of its own above all others, which are faint."""
    marker = "o" if len(rounds) == 1 else None
    faint: dict[str, Any] = {"color": BLUE, "alpha": 0.5, "linewidth": 1.2, "marker": marker}
    for name, values in curves.items():
        if name != shown:
            axes.plot(rounds, values, label=f"_{name}", **faint)
    axes.plot(rounds, curves[shown], color=VERMILION, linewidth=2, marker=marker, label=label)


def filled_stairs(
    axes: Axes, heights: Floats, edges: Floats, colour: str, label: str, alpha: float, width: float
) -> None:
    axes.stairs(heights, edges, fill=True, color=colour, alpha=alpha)
    axes.stairs(heights, edges, color=colour, linewidth=width, label=label)


def percent_axis(axes: Axes, low: float = -0.02, high: float = 1.02) -> None:
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def level_line(axes: Axes, value: float, label: str, colour: str, line: str) -> None:
    axes.axhline(value, color=colour, linewidth=1.2, linestyle=line, label=label)


def levels_in_margin(axes: Axes, levels: Sequence[tuple[float, str, str, str]]) -> None:
    """Draw levels and write their labels in the right margin, apart from one another."""
    bottom, top = axes.get_ylim()
    next_free = -np.inf
    for value, label, colour, line in sorted(levels):
        axes.axhline(value, color=colour, linewidth=1.4, linestyle=line, label=f"_{label}")
        half = 0.05 if "\n" in label else 0.03
        height = max((value - bottom) / (top - bottom), next_free + half)
        next_free = height + half + 0.01
        axes.annotate(
            label,
            (1.0, value),
            xycoords=("axes fraction", "data"),
            xytext=(1.05, height),
            textcoords="axes fraction",
            va="center",
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "relpos": (0, 0.5)},
        )


def note(axes: Axes, x: float, text: str, align: str) -> None:
    axes.text(
        x, 1.01, text, transform=axes.get_xaxis_transform(), ha=align, fontsize=8.5, color=MUTED
    )


def rounds_axis(axes: Axes, rounds: Ints) -> None:
    margin = 0.5 if len(rounds) == 1 else 0.02 * (rounds[-1] - rounds[0])
    axes.set_xlim(rounds[0] - margin, rounds[-1] + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("round")


def from_zero(axes: Axes) -> None:
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def legend_above(axes: Axes, above: float = 0.0) -> None:
    if not axes.get_legend_handles_labels()[0]:
        return
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1 + above),
        ncols=4,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.4,
    )


def bin_count(values: Floats) -> int:
    """Return the Freedman-Diaconis number of bins, between 12 and 60."""
    if len(values) < 2:
        return 12
    width = 2 * np.subtract(*np.quantile(values, [0.75, 0.25])) / len(values) ** (1 / 3)
    spread = np.ptp(values)
    return int(np.clip(spread / width, 12, 60)) if width > 0 else 12
