"""Figures of studies: accuracy against privacy, ROC curves, and local sensitivity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from adversaries.attacks.roc import FEWEST_FALSE
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    QUANTILES,
    VERMILION,
    Floats,
)

SERIES_COLOURS = (BLUE, PURPLE, GREEN, INK)


@dataclass(frozen=True)
class Series:
    """Settings that differ only in their noise.

    Attributes:
        right_at_most: [n], limit on the adversary's share of right answers, rising.
        accuracy: [n], NaN if unknown.
        low: [n], lower ends of the intervals of accuracy, NaN without an interval.
        high: [n], upper ends.
        limit: position on the axis of right_at_most; None if unknown.
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
    with canvas.panel("the adversary is right in at most … % (a coin: 50 %)", "accuracy, %") as (
        figure,
        axes,
    ):
        for index, each in enumerate(series):
            colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
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


Rates = tuple[Sequence[float], Sequence[float]]
"""False and true positive rates, [m] each, ascending."""

LEAST = 1e-6
MOST_CURVES = 3
"""Attacks of a figure, beside what is allowed: more lines hide each other."""

CURVES = ((BLUE, "-"), (VERMILION, "--"), (PURPLE, "-."))
"""Colours that readers with any colour vision can tell apart, and lines that need no colour."""


def roc(curves: Mapping[str, Rates], bound: Rates | None) -> Figure:
    """Return a figure of true against false positive rates, beside guessing and the bound.

    Rates that stand for fewer than ten pairs are not drawn. Below the shaded area's edge an attack
    is no better than guessing.
    """
    with canvas.page_style():
        figure = Figure(figsize=(canvas.WIDTH, 4.6), layout="constrained")
        axes = figure.subplots()
        least = min((rate for false, _ in curves.values() for rate in false if rate), default=1e-3)
        low = max(LEAST, FEWEST_FALSE * least)
        for (name, (false, true)), (colour, line) in zip(curves.items(), CURVES, strict=False):
            axes.plot(false, true, line, color=colour, linewidth=1.6, label=name)
        axes.fill_between([low, 1], [low, 1], low, color=FAINT, alpha=0.6, linewidth=0)
        axes.text(low * 1.3, low * 1.05, "guessing", color=MUTED, fontsize=8.5, va="bottom")
        if bound is not None:
            label = "differential privacy allows"
            axes.plot(*bound, color=INK, linewidth=2.2, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(low, 1)
        axes.set_ylim(low, 1.05)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


COLOURS = {"max": BLUE, "min": VERMILION, "median": MUTED}
"""Of the pairs that each choice made, as in `challenge.choice`."""

LEGENDS = {"max": "largest distance", "min": "smallest distance", "median": "median distance"}


@dataclass(frozen=True, eq=False)
class Followed:
    label: str
    distance: float
    choice: str
    sensitivities: Floats


@dataclass(frozen=True, eq=False)
class Relation:
    name: str
    sensitivities: Floats
    bound: float


def by_pair(pairs: Sequence[Followed], bound: float | None = None) -> Figure:
    """Return a figure of how each pair's local sensitivity is distributed over trials and rounds.

    Violins from the smallest to the largest value with the 5 %, 50 % and 95 % quantiles, labelled
    with the distance.

    Source:
        Bernau et al., Figure 4.
    """
    with canvas.panel("", "local sensitivity LS") as (figure, axes):
        named: set[str] = set()
        for place, pair in enumerate(pairs):
            values, colour = pair.sensitivities.ravel(), COLOURS[pair.choice]
            low, middle, high = np.quantile(values, QUANTILES)
            # A constant has no density; it is a line as wide as a violin.
            if np.ptp(values) > 1e-6 * np.abs(values).max():
                drawn = axes.violinplot(values, [place], widths=0.8, showextrema=False)
                for body in drawn["bodies"]:  # type: ignore[attr-defined]
                    body.set(facecolor=colour, edgecolor=colour, alpha=0.3)
            label = "_" * (pair.choice in named) + LEGENDS[pair.choice]
            named.add(pair.choice)
            spread = f"_{LEGENDS[pair.choice]}"
            axes.vlines(place, low, high, color=colour, linewidth=2, label=spread)
            axes.hlines(middle, place - 0.25, place + 0.25, color=colour, linewidth=2, label=label)
        if bound is not None:
            canvas.level_line(axes, bound, f"clipping allows {bound:.3g}", INK, "--")
        largest = max(float(pair.sensitivities.max()) for pair in pairs)
        axes.set_ylim(0, 1.1 * max(bound or 0.0, largest) or 1)
        axes.set_xticks(
            range(len(pairs)), [f"{pair.label}\nd = {pair.distance:.4g}" for pair in pairs]
        )
        axes.grid(False, axis="x")
    return figure


def over_training(relations: Sequence[Relation]) -> Figure:
    """Return a figure of the median and 5-95 % band by round, beside what clipping allows."""
    with canvas.page_style():
        figure = Figure(figsize=(canvas.WIDTH, canvas.HEIGHT), layout="constrained")
        panels = figure.subplots(1, len(relations), squeeze=False, sharey=True)[0]
        highest = max(
            max(relation.bound, float(relation.sensitivities.max())) for relation in relations
        )
        for axes, relation in zip(panels, relations, strict=True):
            rounds = np.arange(1, relation.sensitivities.shape[1] + 1)
            band = np.quantile(relation.sensitivities, QUANTILES, axis=0)
            canvas.quantile_band(axes, rounds, band, BLUE, "median, 5–95%")
            canvas.level_line(axes, relation.bound, "global sensitivity", INK, "--")
            rms = float(np.sqrt(np.mean(np.square(relation.sensitivities))))
            axes.set_title(
                f"{relation.name}: RMS {rms:.3g} of {relation.bound:.3g}", fontsize=9.5, pad=22
            )
            axes.set_ylim(0, 1.1 * highest)
            canvas.rounds_axis(axes, rounds)
            canvas.legend_above(axes)
        panels[0].set_ylabel("local sensitivity LS")
    return figure
