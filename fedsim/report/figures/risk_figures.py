"""The success of attacks with the release against their success without it."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from fedsim.report.figures.canvas import BLUE, GREEN, INK, MUTED, PURPLE, new_axes, page_style


def success(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    measured: tuple[float, float, float, float] | None = None,
) -> Figure:
    """Return a figure of the largest success by baseline, both on logarithmic axes.

    Args:
        curves: pairs of baseline and largest success, in (0, 1], by the name of the curve.
        measured: baseline, measured success and the ends of its interval; None without any.
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
