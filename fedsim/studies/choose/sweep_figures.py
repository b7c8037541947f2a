"""The figure of a sweep: advantage, accuracy and epsilon along one key, beside their limits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adversaries.arrays import Floats
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import BLUE, GREEN, HEIGHT, INK, PURPLE, VERMILION, line
from fedsim.report.figures.series import keep_ends
from fedsim.studies.choose.grid import BOUND_COLUMN, ESTIMATES

COLOURS = (BLUE, VERMILION, GREEN, PURPLE)
MARKERS = ("o", "s", "^", "D")
FEWEST, LARGEST_RATIO = 2, 20.0
"""Fewest values for a figure, and the ratio of positive values above which the axis is logarithmic.
"""

Rows = Sequence[Mapping[str, Any]]


def along(key: str, rows: Rows, others: Sequence[str], bounds: Mapping[str, str]) -> Figure | None:
    """Return a figure of the runs along a key, one colour for each combination of other values.

    Its panels show the advantage with its interval, prediction and bound; the accuracy with its
    interval; epsilon with the lower bounds; epsilon with the paper's estimates.

    Args:
        others: [n], the combination of other values of each run.
        bounds: labels of the lower bounds by name.

    Returns:
        The figure; None if fewer than two runs with different numbers have finished.
    """
    finished = [
        (row, other)
        for row, other in zip(rows, others, strict=True)
        if row["status"] == "done" and not isinstance(row[key], str | bool)
    ]
    values = sorted({float(row[key]) for row, _ in finished})
    if len(values) < FEWEST:
        return None
    with canvas.panels(2, 2, height=1.7 * HEIGHT) as (figure, panels):
        advantage, accuracy, proven, estimated = panels
        for index, other in enumerate(dict.fromkeys(other for _, other in finished)):
            series = sorted(
                (row for row, each in finished if each == other), key=lambda row: float(row[key])
            )
            colour, named = COLOURS[index % len(COLOURS)], index == 0
            _advantage(advantage, key, series, colour, other, named)
            _measured(accuracy, key, series, "accuracy", colour, other or "mean of the trainings")
            _epsilon(proven, key, series, colour, bounds, named)
            _estimates(estimated, key, series, colour, named)
        advantage.set_ylabel("advantage over a coin")
        accuracy.set_ylabel("accuracy")
        for axes in (proven, estimated):
            axes.set_ylabel("ε")
            axes.set_ylim(bottom=0)
        for axes in panels:
            axes.set_xlabel(key)
            if values[0] > 0 and values[-1] / values[0] > LARGEST_RATIO:
                axes.set_xscale("log")
            axes.legend(loc="best", fontsize=8)
    return figure


def _measured(
    axes: Axes, key: str, series: Rows, name: str, colour: str, label: str | None
) -> None:
    values = _numbers(series, key)
    point, low, high = (_numbers(series, each) for each in (name, f"{name}_low", f"{name}_high"))
    axes.vlines(values, low, high, color=colour, linewidth=2)
    keep_ends(axes, label or "", values, low, high)
    line(axes, values, point, label or "", "o", color=colour)


def _advantage(axes: Axes, key: str, series: Rows, colour: str, label: str, named: bool) -> None:
    values = _numbers(series, key)
    _measured(axes, key, series, "advantage", colour, label or "measured")
    for name, look, alone, text in (
        ("rho_alpha", "-", INK, "bound ρα"),
        ("predicted", "--", VERMILION, "prediction"),
    ):
        line(
            *(axes, values, _numbers(series, name), text if named else "", look),
            color=colour if label else alone,
            linewidth=1.2,
        )


def _epsilon(
    axes: Axes, key: str, series: Rows, colour: str, bounds: Mapping[str, str], named: bool
) -> None:
    values = _tight_epsilon(axes, key, series, named)
    for (name, label), marker in zip(bounds.items(), MARKERS, strict=False):
        shown = f"at least, {label}" if named else ""
        column = _numbers(series, f"{BOUND_COLUMN}{name}")
        line(axes, values, column, shown, marker, color=colour, markersize=5)


def _estimates(axes: Axes, key: str, series: Rows, colour: str, named: bool) -> None:
    values = _tight_epsilon(axes, key, series, named)
    first, *others = ESTIMATES
    _measured(axes, key, series, first, colour, f"ε′, {ESTIMATES[first]}" if named else None)
    for name, marker in zip(others, MARKERS[1:], strict=False):
        label = f"ε′, {ESTIMATES[name]}" if named else ""
        line(axes, values, _numbers(series, name), label, marker, color=colour, markersize=5)


def _tight_epsilon(axes: Axes, key: str, series: Rows, named: bool) -> Floats:
    """Draw epsilon along a key; return the key's values."""
    values = _numbers(series, key)
    line(axes, values, _numbers(series, "epsilon"), "ε, tight" if named else "", "-", color=INK)
    return values


def _numbers(series: Rows, name: str) -> Floats:
    """Return a column, with NaN for unknown values: matplotlib leaves a gap for NaN."""
    values = (row.get(name) for row in series)
    return np.array([np.nan if value is None or math.isinf(value) else value for value in values])
