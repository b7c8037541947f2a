"""Figures of a training: its data, its noise and its models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from adversaries.arrays import Floats, Ints
from adversaries.attacks.roc import FEWEST_FALSE
from fedsim.audits.results.measured import ByClient, RoundSeries
from fedsim.report.figures.canvas import (
    BLUE,
    FAINT,
    GREEN,
    HEIGHT,
    INK,
    MUTED,
    PURPLE,
    QUANTILES,
    VERMILION,
    Pixels,
    from_zero,
    legend_above,
    level_line,
    line,
    one_among_others,
    panel,
    panels,
    percent_axis,
    quantile_band,
    rounds_axis,
    upright_line,
)
from fedsim.report.figures.series import keep, keep_ends


def utility(rounds: Sequence[int], accuracy: RoundSeries, loss: RoundSeries) -> Figure:
    with panels(1, 2, height=HEIGHT * 0.8) as (figure, (left, right)):
        for axes, series, title, colour in (
            (left, accuracy, "Accuracy", GREEN),
            (right, loss, "Loss", PURPLE),
        ):
            band = np.array([series.low, series.mean, series.high], float)
            quantile_band(axes, np.array(rounds), band, colour, title)
            rounds_axis(axes, np.array(rounds))
            axes.set_title(title)
        percent_axis(left, 0)
        from_zero(right)
    return figure


def by_client(
    clients: ByClient,
) -> Figure:
    """Return a figure of how accuracy is spread over clients, by round."""
    with panel() as (figure, axes):
        at = np.array(clients.rounds)
        for series, colour, label in (
            (clients.accuracy, GREEN, "on a client's records"),
            (clients.own_models, BLUE, "a client's own model"),
        ):
            if series is not None:
                band = np.array([series.low, series.mean, series.high], float)
                quantile_band(axes, at, band, colour, label)
        weighted = np.array(clients.weighted, float)
        line(axes, at, weighted, "on all records", color=INK, linestyle="--")
        percent_axis(axes, 0)
        rounds_axis(axes, at)
    return figure


def sensitivities(sensitivity: Floats, bound: float | None) -> Figure:
    with panel("", "local sensitivity LS") as (figure, axes):
        rounds = np.arange(1, sensitivity.shape[1] + 1)
        quantile_band(
            axes, rounds, np.quantile(sensitivity, QUANTILES, axis=0), BLUE, "median, 5–95%"
        )
        if bound is not None:
            level_line(axes, bound, f"clipping allows {bound:.3g}", INK, "--")
        axes.set_ylim(0, 1.1 * max(bound or 0, float(sensitivity.max())) or 1)
        rounds_axis(axes, rounds)
    return figure


def realised_noise(
    rounds: Ints, measured: Floats, interval: Floats, claimed: Floats | None
) -> Figure:
    with panel("", "standard deviation of the noise") as (figure, axes):
        spread = np.abs(interval - measured)
        axes.errorbar(rounds, measured, spread, fmt="o", color=BLUE, markersize=4, label="measured")
        keep(axes, "measured", rounds, measured)
        keep_ends(axes, "measured", rounds, measured - spread[0], measured + spread[1])
        if claimed is not None:
            marker = "_" if len(rounds) == 1 else None
            line(axes, rounds, claimed, "configured", color=VERMILION, marker=marker)
        from_zero(axes)
        rounds_axis(axes, rounds)
    return figure


def clipped_share(rounds: Ints, share: Floats) -> Figure:
    with panel("", "gradients that were clipped") as (figure, axes):
        marker = "o" if len(rounds) == 1 else None
        line(axes, rounds, share, "share", legend=False, color=BLUE, marker=marker)
        percent_axis(axes)
        rounds_axis(axes, rounds)
    return figure


def noise_limits(rounds: Ints, limits: Mapping[str, Floats]) -> Figure:
    """Return a figure of how many times the claimed noise there is at most, after every round."""
    with panel("", "largest noise, over the claimed noise") as (figure, axes):
        least = min(limits, key=lambda name: limits[name][-1])
        finite = {
            name: np.where(np.isfinite(limit), limit, np.nan) for name, limit in limits.items()
        }
        one_among_others(axes, rounds, finite, least, f"{least}, the least")
        level_line(axes, 1.0, "claimed noise", INK, "--")
        from_zero(axes)
        rounds_axis(axes, rounds)
    return figure


def record_pairs(titles: Sequence[str], pairs: Sequence[tuple[Pixels, Pixels | None]]) -> Figure:
    """Return a figure of pictures, each above its replacement, if any."""
    across = 6  # pairs beside one another
    replaced = pairs[0][1] is not None
    deep = -(-len(pairs) // across) * (1 + replaced)
    with panels(deep, across, height=0.3 + 1.25 * deep) as (figure, grid):
        for axes in grid:
            axes.set_axis_off()
        for i, (title, pair) in enumerate(zip(titles, pairs, strict=True)):
            below, right = divmod(i, across)
            for j, image in enumerate(image for image in pair if image is not None):
                axes = grid[(below * (1 + replaced) + j) * across + right]
                drawn = axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="none")
                drawn.set_gid(f"picture-{i}-{j}")  # the same picture may be in several pairs
                if not j:
                    axes.set_title(title, fontsize=8.5, fontweight="normal")
    return figure


SERIES_COLOURS = (BLUE, PURPLE, GREEN, INK)


@dataclass(frozen=True)
class NoiseSeries:
    """Settings that differ only in their noise.

    Attributes:
        right_at_most: [n], limit on the adversary's share of right answers, rising.
        value: [n] of the models' criterion with the ends of its intervals, NaN if unknown.
        limit: position on the axis of right_at_most; None if unknown.
    """

    label: str
    right_at_most: Sequence[float]
    value: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    limit: float | None


def frontier(
    series: Sequence[NoiseSeries],
    limit: str,
    chosen: tuple[float, float] | None,
    least: float | None,
    criterion: str = "accuracy",
) -> Figure:
    right = "the adversary is right in at most … % (a coin: 50 %)"
    with panel(right, f"{criterion}, %") as (
        figure,
        axes,
    ):
        for index, each in enumerate(series):
            colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
            x, y = _percents(each.right_at_most), _percents(each.value)
            axes.vlines(x, _percents(each.low), _percents(each.high), color=colour, linewidth=2)
            look: dict[str, Any] = {"color": colour, "linewidth": 1, "markersize": 6}
            line(axes, x, y, each.label, "-o", **look)
        lines = sorted({round(100 * each.limit, 2) for each in series if each.limit is not None})
        for index, place in enumerate(lines):
            upright_line(axes, place, limit, VERMILION, legend=index == 0, linewidth=1.4)
        if least is not None:
            level_line(axes, 100 * least, f"least {criterion}, {100 * least:g} %", MUTED, ":")
        if chosen is not None:
            ring: dict[str, Any] = {"markersize": 14, "markerfacecolor": "none"}
            x, y = _percents(chosen)[:, None]
            line(
                *(axes, x, y, "chosen", "o"),
                **{"color": VERMILION, "markeredgewidth": 2, **ring},
            )
        axes.margins(0.08)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure


def _percents(shares: Sequence[float]) -> Floats:
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
    with panels(height=4.6) as (figure, (axes,)):
        least = min((rate for false, _ in curves.values() for rate in false if rate), default=1e-3)
        low = max(LEAST, FEWEST_FALSE * least)
        for (name, (false, true)), (colour, look) in zip(curves.items(), CURVES, strict=False):
            line(axes, false, true, name, look, color=colour, linewidth=1.6)
        axes.fill_between([low, 1], [low, 1], low, color=FAINT, alpha=0.6, linewidth=0)
        axes.text(low * 1.3, low * 1.05, "guessing", color=MUTED, fontsize=8.5, va="bottom")
        if bound is not None:
            line(axes, *bound, "differential privacy allows", color=INK, linewidth=2.2)
        axes.set(xscale="log", yscale="log", xlim=(low, 1), ylim=(low, 1.05))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


COLOURS = {"max": BLUE, "min": VERMILION}
"""Of the pairs that each choice made, as in `challenge.choice`."""

LEGENDS = {"max": "largest distance", "min": "smallest distance"}


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

    Violins with the 5 %, 50 % and 95 % quantiles, after Bernau et al., Figure 4.
    """
    with panel("", "local sensitivity LS") as (figure, axes):
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
            axes.vlines(place, low, high, color=colour, linewidth=2)
            axes.hlines(middle, place - 0.25, place + 0.25, color=colour, linewidth=2, label=label)
            name, at = LEGENDS[pair.choice], [f"{pair.label}, d = {pair.distance:.4g}"]
            keep(axes, name, at, [middle])
            keep_ends(axes, name, at, [low], [high])
        if bound is not None:
            level_line(axes, bound, f"clipping allows {bound:.3g}", INK, "--")
        largest = max(float(pair.sensitivities.max()) for pair in pairs)
        axes.set_ylim(0, 1.1 * max(bound or 0.0, largest) or 1)
        axes.set_xticks(
            range(len(pairs)), [f"{pair.label}\nd = {pair.distance:.4g}" for pair in pairs]
        )
        axes.grid(False, axis="x")
    return figure


def over_training(relations: Sequence[Relation]) -> Figure:
    """Return a figure of the median and 5-95 % band by round, beside what clipping allows."""
    with panels(1, len(relations), sharey=True) as (figure, beside):
        highest = max(
            max(relation.bound, float(relation.sensitivities.max())) for relation in relations
        )
        for axes, relation in zip(beside, relations, strict=True):
            rounds = np.arange(1, relation.sensitivities.shape[1] + 1)
            band = np.quantile(relation.sensitivities, QUANTILES, axis=0)
            quantile_band(axes, rounds, band, BLUE, "median, 5–95%")
            level_line(axes, relation.bound, "global sensitivity", INK, "--")
            rms = float(np.sqrt(np.mean(np.square(relation.sensitivities))))
            axes.set_title(
                f"{relation.name}: RMS {rms:.3g} of {relation.bound:.3g}", fontsize=9.5, pad=22
            )
            axes.set_ylim(0, 1.1 * highest)
            rounds_axis(axes, rounds)
            legend_above(axes)
        beside[0].set_ylabel("local sensitivity LS")
    return figure
