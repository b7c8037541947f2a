"""Plots of log-odds and beliefs, by round and at the end, and of the success of attacks."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from adversaries.arrays import Bools, Floats, Ints
from fedsim.audits.results.measured import TradeOff
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

DECIDES = "decides D′ ◂ ▸ decides D"


def quantile_band(name: str, values: Floats, colour: str = BLUE, first: int = 1) -> Curve:
    """Return the median of values [T, k] by round, with the band of 90% of them."""
    low, middle, high = np.quantile(values, QUANTILES, axis=0)
    rounds = np.arange(first, first + values.shape[1])
    return Curve(name, rounds, middle, colour, low=low, high=high)


def belief_trajectories(
    worlds: Bools, log_odds: Floats, rho_beta: float | None, *, lines: int = 100
) -> Plot:
    """Return a plot of the posterior belief in D after every round, against the bound rho_beta.

    Shows some trials of each world, and the median and 5-95% band over all of them.
    """
    beliefs = expit(log_odds)
    of_worlds = [(beliefs[worlds == world], colour, name) for world, colour, name in WORLDS]
    panel = Panel(
        [quantile_band(name, one, colour) for one, colour, name in of_worlds if len(one)],
        "belief that D was used",
        levels=[] if rho_beta is None else [Level(f"bound ρβ = {rho_beta:.3g}", rho_beta)],
        scale="percent",
        trails={colour: one[:lines] for one, colour, _ in of_worlds if len(one)},
    )
    return Plot([panel])


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
    return Plot([Panel(curves, "density", "final log-odds Λ for D", "", levels, note=DECIDES)])


def _histograms(worlds: Bools, values: Floats, bins: Floats) -> Iterator[Curve]:
    """Yield the density of values [T] in each world."""
    for world, colour, name in WORLDS:
        chosen = values[worlds == world]
        if len(chosen):
            heights = np.histogram(chosen, bins)[0] / (len(chosen) * np.diff(bins))
            yield Curve(name, bins, heights, colour, "steps")


def poison_scores(worlds: Bools, scores: Floats, threshold: float | None) -> Plot:
    """Return a plot of the scores of both worlds' released models, and the threshold."""
    curves = list(_histograms(worlds, scores, np.histogram_bin_edges(scores, bin_count(scores))))
    levels = [] if threshold is None else [Level("threshold", threshold, upright=True)]
    return Plot([Panel(curves, "density", "score of the released model", "", levels)])


def predicted_density(log_odds: Floats, mu: Floats, world: bool) -> Floats:
    """Return the density of final log-odds.

    The equal mixture over mu of N(+mu^2/2, mu^2) in world D and N(-mu^2/2, mu^2) in D'. Trials with
    mu = 0 are an atom at 0 and have no density: the rest integrates to their share.
    """
    ordered = np.sort(mu)
    # A thousand quantiles draw the same curve as all the trials, in bounded memory.
    stride = max(1, len(mu) // 1000)
    drawn = ordered[stride // 2 :: stride]
    positive = drawn[drawn > 0, None]
    centre = np.where(world, 0.5, -0.5) * positive**2
    return norm.pdf(log_odds, centre, positive).sum(axis=0) / len(drawn)


def one_among_others(
    rounds: Ints, curves: Mapping[str, Floats], shown: str, why: str
) -> list[Curve]:
    """Return curves of which one stands out, with the reason; the others are faint."""
    others = [Curve(n, rounds, c, faint=True) for n, c in curves.items() if n != shown]
    return [*others, Curve(f"{shown}, {why}", rounds, curves[shown], VERMILION)]


def client_beliefs(rounds: Ints, beliefs: Mapping[str, Floats]) -> Plot:
    highest = max(beliefs, key=lambda name: beliefs[name][-1])
    curves = one_among_others(rounds, beliefs, highest, "the highest at the end")
    return Plot([Panel(curves, "belief after the round", scale="percent")])


def canary_scores(edges: Floats, included: Floats, left_out: Floats) -> Plot:
    """Return a plot of how many canaries, in and out, have a score in each bin."""
    curves = [
        Curve(f"{int(counts.sum())} canaries {what}", edges, counts, colour, "steps")
        for counts, colour, what in (
            (included, BLUE, "included"),
            (left_out, VERMILION, "left out"),
        )
    ]
    across = "score: inner product with the aggregates, summed over rounds"
    return Plot([Panel(curves, "canaries", across)])


def epsilons(
    rounds: Sequence[int], spent: Mapping[str, Sequence[float | None]], stop_at: float | None = None
) -> Plot:
    """Return a plot of epsilon after some rounds, by who states it.

    The third is drawn as the reference that the others are compared with.
    """
    looks = ((BLUE, "line"), (GREEN, "line"), (INK, "dashed"))
    curves = [
        Curve(name, rounds, values, *look)
        for (name, values), look in zip(spent.items(), looks, strict=False)
        if np.isfinite(np.array(values, float)).any()
    ]
    limit = f"privacy.stop-at = {stop_at:.3g}" if stop_at is not None else ""
    levels = [Level(limit, stop_at, VERMILION, "dotted")] if stop_at is not None else []
    return Plot([Panel(curves, "ε after the round", levels=levels, scale="zero")])


def success(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    measured: tuple[float, float, float, float] | None = None,
) -> Plot:
    """Return a plot of the largest success by baseline, both on logarithmic axes.

    measured: baseline, measured success and the ends of its interval.
    """
    drawn = []
    for (name, pairs), colour in zip(curves.items(), (BLUE, GREEN, PURPLE), strict=False):
        baselines, largest = np.array(sorted(pairs)).T
        drawn.append(Curve(name, baselines, largest, colour, "joined"))
    ends = [baselines[0], baselines[-1]]
    drawn.append(Curve("an attack that learns nothing", ends, ends, MUTED, "dashed"))
    if measured is not None:
        at, point, low, high = measured
        drawn.append(Curve("measured", [at], [point], INK, "points", [low], [high]))
    up, across = "success with it, at most", "success without the record"
    return Plot([Panel(drawn, up, across, scale="log")])


def trade_offs(curves: Mapping[str, TradeOff]) -> Plot:
    """Return a panel for each measured trade-off curve, with its band and the curve of theory."""
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
