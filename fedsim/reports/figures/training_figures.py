"""Plots of a training: its data, its noise and its models; and those of the studies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Floats, Ints
from adversaries.attacks.roc import FEWEST_FALSE
from fedsim.audits.results.measured import RoundSeries
from fedsim.reports.figures.canvas import (
    BLUE,
    GREEN,
    HEIGHT,
    INK,
    MUTED,
    PURPLE,
    QUANTILES,
    VERMILION,
)
from fedsim.reports.figures.plot import Curve, Level, Panel, Plot
from fedsim.reports.figures.run_figures import one_among_others, quantile_band

Rates = tuple[Sequence[float], Sequence[float]]
"""False and true positive rates, [m] each, ascending."""


def _course(name: str, rounds: Sequence[int], series: RoundSeries, colour: str) -> Curve:
    return Curve(name, rounds, series.mean, colour, low=series.low, high=series.high)


def utility(rounds: Sequence[int], accuracy: RoundSeries, loss: RoundSeries) -> Plot:
    right = Panel([_course("Accuracy", rounds, accuracy, GREEN)], "accuracy", scale="percent")
    lost = Panel([_course("Loss", rounds, loss, PURPLE)], "loss", scale="zero")
    return Plot([right, lost], HEIGHT * 0.8)


def _clipping_allows(bound: float | None) -> list[Level]:
    return [] if bound is None else [Level(f"clipping allows {bound:.3g}", bound)]


def sensitivities(sensitivity: Floats, bound: float | None) -> Plot:
    curve = quantile_band("median, 5–95%", sensitivity)
    levels = _clipping_allows(bound)
    return Plot([Panel([curve], "local sensitivity LS", levels=levels, scale="zero")])


def realised_noise(
    rounds: Ints, measured: Floats, interval: Floats, claimed: Floats | None
) -> Plot:
    curves = [Curve("measured", rounds, measured, BLUE, "points", *interval)]
    if claimed is not None:
        curves.append(Curve("configured", rounds, claimed, VERMILION))
    return Plot([Panel(curves, "standard deviation of the noise", scale="zero")])


def noise_limits(rounds: Ints, limits: Mapping[str, Floats]) -> Plot:
    """Return a plot of how many times the claimed noise there is at most, after every round."""
    least = min(limits, key=lambda name: limits[name][-1])
    curves = one_among_others(rounds, limits, least, "the least")
    levels = [Level("claimed noise", 1.0)]
    return Plot([Panel(curves, "largest noise, over the claimed", levels=levels, scale="zero")])


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
) -> Plot:
    curves = []
    for each, colour in zip(series, (BLUE, PURPLE, GREEN, INK) * len(series), strict=False):
        columns = each.right_at_most, each.value, each.low, each.high
        at, value, low, high = map(_percents, columns)
        curves.append(Curve(each.label, at, value, colour, "joined", low, high))
    lines = sorted({round(100 * each.limit, 2) for each in series if each.limit is not None})
    levels = [Level(limit, place, VERMILION, "dashed", True) for place in lines]
    if least is not None:
        levels.append(Level(f"least {criterion}, {100 * least:g} %", 100 * least, MUTED, "dotted"))
    if chosen is not None:
        right_at_most, value = _percents(chosen)
        curves.append(Curve("chosen", [right_at_most], [value], VERMILION, "points"))
    right = "the adversary is right in at most … % (a coin: 50 %)"
    return Plot([Panel(curves, f"{criterion}, %", right, levels=levels)])


def _percents(shares: Sequence[float]) -> Floats:
    return 100 * np.asarray(shares, dtype=np.float64)


LEAST = 1e-6
MOST_CURVES = 3
"""Attacks of a plot, beside what is allowed: more lines hide each other."""

CURVES = ((BLUE, "line"), (VERMILION, "dashed"), (PURPLE, "dotted"))
"""Colours that readers with any colour vision can tell apart, and lines that need no colour."""


def roc(curves: Mapping[str, Rates], bound: Rates | None) -> Plot:
    """Return a plot of true against false positive rates, beside guessing and the bound.

    Rates that stand for fewer than ten pairs are not drawn.
    """
    least = min((rate for false, _ in curves.values() for rate in false if rate), default=1e-3)
    low = max(LEAST, FEWEST_FALSE * least)
    drawn = dict(curves)
    if bound is not None:
        drawn["differential privacy allows"] = bound
    looks = [*CURVES[: len(curves)], (INK, "line")]
    plotted = [Curve("guessing", [low, 1.0], [low, 1.0], MUTED, "dashed")]
    for (name, (false, true)), (colour, look) in zip(drawn.items(), looks, strict=False):
        kept = np.array([pair for pair in zip(false, true, strict=True) if pair[0] >= low]).T
        plotted.append(Curve(name, kept[0], kept[1], colour, look))
    return Plot([Panel(plotted, "true positive rate", "false positive rate", scale="log")], 4.6)


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


def by_pair(pairs: Sequence[Followed], bound: float | None = None) -> Plot:
    """Return a plot of each pair's local sensitivity over trials and rounds: 5 %, 50 % and 95 %."""
    curves = []
    for choice, name in LEGENDS.items():
        if alike := [pair for pair in pairs if pair.choice == choice]:
            at = [f"{pair.label}\nd = {pair.distance:.4g}" for pair in alike]
            ends = np.array([np.quantile(pair.sensitivities, QUANTILES) for pair in alike]).T
            curves.append(Curve(name, at, ends[1], COLOURS[choice], "points", ends[0], ends[2]))
    levels = _clipping_allows(bound)
    return Plot([Panel(curves, "local sensitivity LS", "", levels=levels, scale="zero")])


def over_training(relations: Sequence[Relation]) -> Plot:
    """Return a plot of the median and 5-95 % band by round, beside what clipping allows."""
    panels = []
    for one in relations:
        rms = float(np.sqrt(np.mean(np.square(one.sensitivities))))
        title = f"{one.name}: RMS {rms:.3g} of {one.bound:.3g}"
        curve = quantile_band("median, 5–95%", one.sensitivities)
        level = Level("global sensitivity", one.bound)
        panels.append(Panel([curve], "local sensitivity LS", "round", title, [level], scale="zero"))
    return Plot(panels)
