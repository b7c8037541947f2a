"""The plots of runs, trainings, audits and studies."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from adversaries.arrays import Bools, Floats, Ints
from adversaries.attacks.roc import FEWEST_FALSE
from fedsim.audits.results.measured import RoundSeries, TradeOff
from fedsim.reports.figures.canvas import (
    BLUE,
    GREEN,
    HEIGHT,
    INK,
    MUTED,
    PURPLE,
    QUANTILES,
    VERMILION,
    WORLDS,
    bin_count,
)
from fedsim.reports.figures.plot import Curve, Level, Panel, Plot

# Over the rounds


def _quantile_band(name: str, values: Floats, colour: str = BLUE) -> Curve:
    """Return the median of values [T, k] by round, with the band of 90% of them."""
    low, middle, high = np.quantile(values, QUANTILES, axis=0)
    return Curve(name, np.arange(1, 1 + values.shape[1]), middle, colour, low=low, high=high)


def beliefs(worlds: Bools, log_odds: Floats, rho_beta: float | None, *, lines: int = 100) -> Plot:
    """Return a plot of the posterior belief in D after every round, against the bound rho_beta.

    Shows some trials of each world, and the median and 5-95% band over all of them.
    """
    believed = expit(log_odds)
    of_worlds = [(believed[worlds == world], colour, name) for world, colour, name in WORLDS]
    panel = Panel(
        [_quantile_band(name, one, colour) for one, colour, name in of_worlds if len(one)],
        "belief that D was used",
        levels=[] if rho_beta is None else [Level(f"bound ρβ = {rho_beta:.3g}", rho_beta)],
        scale="percent",
        trails={colour: one[:lines] for one, colour, _ in of_worlds if len(one)},
    )
    return Plot([panel])


def _one_among_others(
    rounds: Ints, curves: Mapping[str, Floats], shown: str, why: str
) -> list[Curve]:
    """Return curves of which one stands out, with the reason; the others are faint."""
    others = [Curve(n, rounds, c, faint=True) for n, c in curves.items() if n != shown]
    return [*others, Curve(f"{shown}, {why}", rounds, curves[shown], VERMILION)]


def client_beliefs(rounds: Ints, beliefs: Mapping[str, Floats]) -> Plot:
    highest = max(beliefs, key=lambda name: beliefs[name][-1])
    curves = _one_among_others(rounds, beliefs, highest, "the highest at the end")
    return Plot([Panel(curves, "belief after the round", scale="percent")])


def noise_limits(rounds: Ints, limits: Mapping[str, Floats]) -> Plot:
    least = min(limits, key=lambda name: limits[name][-1])
    curves = _one_among_others(rounds, limits, least, "the least")
    levels = [Level("claimed noise", 1.0)]
    return Plot([Panel(curves, "largest noise, over the claimed", levels=levels, scale="zero")])


def realised_noise(
    rounds: Ints, measured: Floats, interval: Floats, claimed: Floats | None
) -> Plot:
    curves = [Curve("measured", rounds, measured, BLUE, "points", *interval)]
    if claimed is not None:
        curves.append(Curve("configured", rounds, claimed, VERMILION))
    return Plot([Panel(curves, "standard deviation of the noise", scale="zero")])


def utility(rounds: Sequence[int], accuracy: RoundSeries, loss: RoundSeries) -> Plot:
    right, lost = (
        Curve(name, rounds, series.mean, colour, low=series.low, high=series.high)
        for name, series, colour in (("Accuracy", accuracy, GREEN), ("Loss", loss, PURPLE))
    )
    panels = [Panel([right], "accuracy", scale="percent"), Panel([lost], "loss", scale="zero")]
    return Plot(panels, HEIGHT * 0.8)


def epsilons(spent: Sequence[float | None], stop_at: float | None = None) -> Plot:
    curves = [Curve("ε spent", range(1, 1 + len(spent)), spent)]
    levels = []
    if stop_at is not None:
        levels = [Level(f"privacy.stop-at = {stop_at:.3g}", stop_at, VERMILION, "dotted")]
    return Plot([Panel(curves, "ε after the round", levels=levels, scale="zero")])


# Log-odds and scores


def log_odds_histogram(
    worlds: Bools, final: Floats, mu: Floats | None, epsilon: float | None
) -> Plot:
    """Return a plot of both worlds' final log-odds over the densities that theory predicts."""
    finite = np.isfinite(final)
    bins = np.histogram_bin_edges(final[finite], bins=bin_count(final[finite]))
    reach = 0.0
    if mu is not None and np.isfinite(mu).all():
        typical = float(np.median(mu))
        reach = typical**2 / 2 + 3.5 * typical
    grid = np.linspace(min(bins[0], -reach), max(bins[-1], reach), 400)
    curves = list(_histograms(worlds[finite], final[finite], bins))
    for world, colour, name in WORLDS:
        predicted, chosen = name.replace("trained on", "predicted for"), worlds == world
        if mu is not None and (chosen & finite).any() and np.isfinite(mu[chosen]).all():
            curve = predicted_density(grid, mu[chosen], world)
            curves.append(Curve(predicted, grid, curve, colour))
    shown = epsilon is not None and epsilon < grid[-1]
    levels = [Level(f"ε = {epsilon:.4g}", epsilon, upright=True)] if epsilon and shown else []
    note = "decides D′ ◂ ▸ decides D"
    return Plot([Panel(curves, "density", "final log-odds Λ for D", "", levels, note=note)])


def _histograms(worlds: Bools, values: Floats, bins: Floats) -> Iterator[Curve]:
    """Yield the density of values [T] in each world."""
    for world, colour, name in WORLDS:
        chosen = values[worlds == world]
        if len(chosen):
            heights = np.histogram(chosen, bins)[0] / (len(chosen) * np.diff(bins))
            yield Curve(name, bins, heights, colour, "steps")


def predicted_density(log_odds: Floats, mu: Floats, world: bool) -> Floats:
    """Return the density of final log-odds.

    The equal mixture over mu of N(+mu^2/2, mu^2) in world D and N(-mu^2/2, mu^2) in D'. Trials with
    mu = 0 are an atom at 0 and have no density: the rest integrates to their share.
    """
    # A thousand quantiles draw the same curve as all the trials, in bounded memory.
    stride = max(1, len(mu) // 1000)
    drawn = np.sort(mu)[stride // 2 :: stride]
    positive = drawn[drawn > 0, None]
    centre = np.where(world, 0.5, -0.5) * positive**2
    return norm.pdf(log_odds, centre, positive).sum(axis=0) / len(drawn)


def poison_scores(worlds: Bools, scores: Floats, threshold: float | None) -> Plot:
    curves = list(_histograms(worlds, scores, np.histogram_bin_edges(scores, bin_count(scores))))
    levels = [] if threshold is None else [Level("threshold", threshold, upright=True)]
    return Plot([Panel(curves, "density", "score of the released model", "", levels)])


def canary_scores(edges: Floats, included: Floats, left_out: Floats) -> Plot:
    looks = ((included, BLUE, "included"), (left_out, VERMILION, "left out"))
    curves = [
        Curve(f"{int(counts.sum())} canaries {what}", edges, counts, colour, "steps")
        for counts, colour, what in looks
    ]
    across = "score: inner product with the aggregates, summed over rounds"
    return Plot([Panel(curves, "canaries", across)])


# Success of attacks


def success(
    largest: Sequence[tuple[float, float]], measured: tuple[float, float, float, float]
) -> Plot:
    """Return a plot of the largest success by baseline, both on logarithmic axes.

    measured: baseline, measured success and the ends of its interval.
    """
    baselines, allowed = np.array(sorted(largest)).T
    ends, (at, point, low, high) = [baselines[0], baselines[-1]], measured
    curves = [
        Curve("any attack", baselines, allowed, BLUE, "joined"),
        Curve("an attack that learns nothing", ends, ends, MUTED, "dashed"),
        Curve("measured", [at], [point], INK, "points", [low], [high]),
    ]
    up, across = "success with it, at most", "success without the record"
    return Plot([Panel(curves, up, across, scale="log")])


def trade_offs(curves: Mapping[str, TradeOff]) -> Plot:
    return Plot([_trade_off(name, curve) for name, curve in curves.items()], HEIGHT * 1.1)


def _trade_off(name: str, curve: TradeOff) -> Panel:
    # At a rate, the limits of the next milder and of the next stricter threshold hold.
    milder = np.searchsorted(curve.false_low, curve.rates, side="left")
    stricter = np.searchsorted(curve.false_high, curve.rates, side="right")
    upper = np.array([*curve.true_high, 1.0])[milder]
    lower = np.array([0.0, *curve.true_low])[stricter]
    drawn = [
        Curve("theory allows", curve.rates, curve.allowed, INK, low=lower, high=upper),
        Curve("measured", [0, *curve.false], [0, *curve.true]),
        Curve("guessing", [0, 1], [0, 1], MUTED, "dashed"),
    ]
    return Panel(drawn, "true positives", "false positives", name.replace("-", " ").capitalize())


Rates = tuple[Sequence[float], Sequence[float]]
"""False and true positive rates, [m] each, ascending."""

LEAST, MOST_CURVES = 1e-6, 3
"""Least rate of a plot, and its attacks beside what is allowed: more lines hide each other."""

LOOKS = ((BLUE, "line"), (VERMILION, "dashed"), (PURPLE, "dotted"))
"""Colours that readers with any colour vision can tell apart, and lines that need no colour."""


def roc(curves: Mapping[str, Rates], bound: Rates) -> Plot:
    """Return a plot of true against false positive rates, beside guessing and the bound.

    Rates that stand for fewer than ten pairs are not drawn.
    """
    least = min((rate for false, _ in curves.values() for rate in false if rate), default=1e-3)
    low = max(LEAST, FEWEST_FALSE * least)
    drawn = {**curves, "differential privacy allows": bound}
    looks = [*LOOKS[: len(curves)], (INK, "line")]
    plotted = [Curve("guessing", [low, 1.0], [low, 1.0], MUTED, "dashed")]
    for (name, (false, true)), (colour, look) in zip(drawn.items(), looks, strict=False):
        kept = np.array([pair for pair in zip(false, true, strict=True) if pair[0] >= low]).T
        plotted.append(Curve(name, kept[0], kept[1], colour, look))
    return Plot([Panel(plotted, "true positive rate", "false positive rate", scale="log")], 4.6)


# Local sensitivity


def sensitivities(values: Floats, bound: float | None) -> Plot:
    """Return a plot of the local sensitivity [T, k] by round, beside what clipping allows."""
    curve, levels = _quantile_band("median, 5–95%", values), _clipping_allows(bound)
    return Plot([Panel([curve], "local sensitivity LS", levels=levels, scale="zero")])


def _clipping_allows(bound: float | None) -> list[Level]:
    return [] if bound is None else [Level(f"clipping allows {bound:.3g}", bound)]


LEGENDS = {"max": ("largest distance", BLUE), "min": ("smallest distance", VERMILION)}
"""Of the pairs that each choice made, as in `challenge.choice`."""


def by_pair(pairs: Mapping[str, Mapping[str, Floats]], bound: float | None = None) -> Plot:
    """Return a plot of each pair's local sensitivity over trials and rounds: 5 %, 50 % and 95 %.

    pairs: local sensitivities [T, k] by the name of the pair, by a key of LEGENDS.
    """
    curves = []
    for choice, (name, colour) in LEGENDS.items():
        if alike := pairs.get(choice):
            ends = np.array([np.quantile(values, QUANTILES) for values in alike.values()]).T
            curves.append(Curve(name, [*alike], ends[1], colour, "points", ends[0], ends[2]))
    levels = _clipping_allows(bound)
    return Plot([Panel(curves, "local sensitivity LS", "", levels=levels, scale="zero")])


def over_training(relations: Mapping[str, tuple[Floats, float]]) -> Plot:
    """Return a plot of the median and 5-95 % band by round, beside what clipping allows.

    relations: local sensitivities [T, k] and their bound, by the neighbouring relation.
    """
    panels = []
    for name, (values, bound) in relations.items():
        title = f"{name}: RMS {float(np.sqrt(np.mean(np.square(values)))):.3g} of {bound:.3g}"
        curve, level = _quantile_band("median, 5–95%", values), Level("global sensitivity", bound)
        panels.append(Panel([curve], "local sensitivity LS", "round", title, [level], scale="zero"))
    return Plot(panels)
