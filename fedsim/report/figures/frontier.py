"""The frontier of accuracy against what an adversary can achieve, a point for each setting."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import BLUE, GREEN, INK, MUTED, PURPLE, VERMILION

COLOURS = (BLUE, PURPLE, GREEN, INK)


@dataclass(frozen=True)
class Series:
    """Settings that differ in noise alone.

    Attributes:
        right_at_most: [n], how often the adversary is right at most, rising.
        accuracy: [n], NaN where it is unknown.
        low: [n], lower ends of the intervals of accuracy, NaN where there is none.
        high: [n], upper ends.
        limit: at which the limit stands on the axis of right_at_most; None where that is unknown.
    """

    label: str
    right_at_most: Sequence[float]
    accuracy: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    limit: float | None


def frontier(
    series: Sequence[Series],
    limit: str,
    chosen: tuple[float, float] | None,
    min_accuracy: float | None,
) -> Figure:
    """Return the figure."""
    with canvas.panel("the adversary is right in at most … % (a coin: 50 %)", "accuracy, %") as (
        figure,
        axes,
    ):
        for index, each in enumerate(series):
            colour = COLOURS[index % len(COLOURS)]
            x, y = _percents(each.right_at_most), _percents(each.accuracy)
            axes.vlines(x, _percents(each.low), _percents(each.high), color=colour, linewidth=2)
            axes.plot(x, y, "-o", color=colour, linewidth=1, markersize=6, label=each.label or None)
        lines = sorted({round(100 * each.limit, 2) for each in series if each.limit is not None})
        for index, place in enumerate(lines):
            axes.axvline(
                place,
                color=VERMILION,
                linewidth=1.4,
                linestyle="--",
                label=limit if index == 0 else None,
            )
        if min_accuracy is not None:
            axes.axhline(
                100 * min_accuracy,
                color=MUTED,
                linewidth=1.4,
                linestyle=":",
                label=f"least accuracy, {100 * min_accuracy:g} %",
            )
        if chosen is not None:
            axes.plot(
                *_percents(chosen)[:, None],
                "o",
                markersize=14,
                markerfacecolor="none",
                markeredgewidth=2,
                color=VERMILION,
                label="chosen",
            )
        axes.margins(0.08)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure


def _percents(shares: Sequence[float]) -> canvas.Floats:
    return 100 * np.asarray(shares, dtype=np.float64)
