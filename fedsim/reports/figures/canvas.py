"""What all figures share: colours, style, axes, legends, and files.

Every function of this room takes arrays and returns a new matplotlib Figure that no global state
holds on to. Serialisation is deterministic: the same arrays give the same bytes.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogFormatter,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from adversaries.arrays import Floats, Ints

Values = Sequence[float] | Floats | Ints

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#00785A", "#8E4A84"
INK, MUTED, FAINT = "#1f2933", "#5b6770", "#dfe4e8"
WORLDS = ((True, BLUE, "trained on D"), (False, VERMILION, "trained on D′"))
QUANTILES = (0.05, 0.5, 0.95)
WIDTH, HEIGHT = 7.4, 3.9

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
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    """Return the figure as a PNG for high-resolution screens and print."""
    buffer = io.BytesIO()
    _plain_ticks(figure)
    with page_style():
        figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
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
    at: Values,
    curves: Mapping[str, Values],
    colours: Sequence[str] = (BLUE, VERMILION, GREEN, PURPLE),
    draw: str = "plot",
    **style: Any,
) -> None:
    """Draw values by their labels, each in the next colour, by a method of the axes."""
    for (label, values), colour in zip(curves.items(), colours, strict=False):
        getattr(axes, draw)(at, values, color=colour, label=label, **style)


def level_line(axes: Axes, value: float, label: str, colour: str, line: str) -> None:
    axes.axhline(value, color=colour, linewidth=1.2, linestyle=line, label=label)


def percent_axis(axes: Axes, low: float = -0.02, high: float = 1.02) -> None:
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def rounds_axis(axes: Axes, rounds: Ints) -> None:
    margin = 0.5 if len(rounds) == 1 else 0.02 * (rounds[-1] - rounds[0])
    axes.set_xlim(rounds[0] - margin, rounds[-1] + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("round")


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
