"""The success of attacks with the release against their success without it."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from fedsim.audits.results.measured import TradeOff
from fedsim.report.figures.canvas import (
    BLUE,
    GREEN,
    HEIGHT,
    INK,
    MUTED,
    PURPLE,
    WIDTH,
    new_axes,
    page_style,
)


def success(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    measured: tuple[float, float, float, float] | None = None,
) -> Figure:
    """Return a figure of the largest success by baseline, both on logarithmic axes.

    measured: baseline, measured success and the ends of its interval.
    """
    with page_style():
        figure, axes = new_axes()
        for place, (name, pairs) in enumerate(curves.items()):
            baselines, largest = np.array(sorted(pairs)).T
            colour, marker = (BLUE, GREEN, PURPLE)[place % 3], "os^"[place % 3]
            axes.plot(baselines, largest, color=colour, marker=marker, markersize=4, label=name)
        ends = np.array([baselines[0], baselines[-1]])
        axes.plot(ends, ends, color=MUTED, linestyle="--", label="without the training")
        if measured is not None:
            at, point, low, high = measured
            reach = [[point - low], [high - point]]
            axes.errorbar([at], [point], reach, color=INK, marker="D", capsize=3, label="measured")
        axes.set(xscale="log", yscale="log")
        axes.set(xlabel="success without the training", ylabel="success with it, at most")
        axes.legend()
    return figure


def trade_offs(curves: Mapping[str, TradeOff]) -> Figure:
    """Return a panel for each measured trade-off curve, with its band and the curve of theory."""
    with page_style():
        count = len(curves)
        figure = Figure(figsize=(max(WIDTH, 3.4 * count), HEIGHT), layout="constrained")
        panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
        for axes, (name, curve) in zip(panels, curves.items(), strict=True):
            # At a rate, the limits of the next milder and of the next stricter threshold hold.
            milder = np.searchsorted(curve.false_low, curve.rates, side="left")
            stricter = np.searchsorted(curve.false_high, curve.rates, side="right")
            upper = np.array([*curve.true_high, 1.0])[milder]
            lower = np.array([0.0, *curve.true_low])[stricter]
            axes.fill_between(curve.rates, lower, upper, color=BLUE, alpha=0.14, label="band")
            axes.plot([0, *curve.false], [0, *curve.true], color=BLUE, label="measured")
            axes.plot(curve.rates, curve.allowed, color=INK, linewidth=1.2, label="theory allows")
            axes.plot([0, 1], [0, 1], color=MUTED, linestyle="--", label="guessing")
            axes.set(title=name, xlabel="false positives", aspect="equal")
        panels[0].set_ylabel("true positives")
        panels[-1].legend(loc="lower right")
    return figure
