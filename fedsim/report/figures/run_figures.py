"""Figures of log-odds and beliefs, by round and at the end, and of the success of attacks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy.special import expit
from scipy.stats import norm

from adversaries.arrays import Bools, Floats, Ints
from fedsim.audits.results.measured import TradeOff
from fedsim.audits.results.theory import Density
from fedsim.report.figures.canvas import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    QUANTILES,
    VERMILION,
    WIDTH,
    WORLDS,
    bin_count,
    filled_stairs,
    level_line,
    levels_in_margin,
    line,
    note,
    one_among_others,
    panel,
    panels,
    percent_axis,
    quantile_band,
    rounds_axis,
    stairs,
    upright_line,
)
from fedsim.report.figures.series import keep, keep_ends


def belief_trajectories(
    worlds: Bools, log_odds: Floats, rho_beta: float | None, *, lines: int = 100
) -> Figure:
    """Return a figure of the posterior belief in D after every round, against the bound rho_beta.

    Shows some trials of each world, and the median and 5-95% band over all of them.
    """
    with panel("", "belief that D was used") as (figure, axes):
        rounds = np.arange(1, log_odds.shape[1] + 1)
        beliefs = expit(log_odds)
        for world, colour, label in WORLDS:
            chosen = beliefs[worlds == world]
            if not len(chosen):
                continue
            drawn = chosen[:lines]
            vertices = np.stack([np.broadcast_to(rounds, drawn.shape), drawn], axis=-1)
            axes.add_collection(
                LineCollection(list(vertices), colors=colour, linewidths=0.6, alpha=0.16)
            )
            quantile_band(axes, rounds, np.quantile(chosen, QUANTILES, axis=0), colour, label)
        if rho_beta is not None:
            level_line(axes, rho_beta, f"bound ρβ = {rho_beta:.3g}", INK, "--")
        percent_axis(axes)
        rounds_axis(axes, rounds)
    return figure


def log_odds_histogram(
    worlds: Bools,
    final: Floats,
    mu: Floats | None,
    epsilon: float | None,
    *,
    density: Density | None = None,
) -> Figure:
    """Return a figure of both worlds' final log-odds over the densities that theory predicts."""
    with panel("final log-odds Λ for D", "density", above=0.06) as (figure, axes):
        finite = np.isfinite(final)
        bins = np.histogram_bin_edges(final[finite], bins=bin_count(final[finite]))
        reach = 0.0
        if mu is not None and np.isfinite(mu).all():
            typical = float(np.median(mu))
            reach = typical**2 / 2 + 3.5 * typical
        ends = [density.edges[0], density.edges[-1]] if density else [-reach, reach]
        grid = np.linspace(min(bins[0], ends[0]), max(bins[-1], ends[1]), 400)
        for world, colour, label in WORLDS:
            chosen = worlds == world
            if not (chosen & finite).any():
                continue
            counts, _ = np.histogram(final[chosen & finite], bins)
            heights = counts / (chosen.sum() * np.diff(bins))
            filled_stairs(axes, heights, bins, colour, label, 0.28, 0.9)
            predicted = label.replace("trained on", "predicted for")
            if density:
                simulated = density.world_d if world else density.world_d_prime
                edges = np.asarray(density.edges)
                stairs(axes, np.asarray(simulated), edges, predicted, color=colour, linewidth=2)
            elif mu is not None and np.isfinite(mu[chosen]).all():
                curve = predicted_density(grid, mu[chosen], world)
                line(axes, grid, curve, predicted, color=colour, linewidth=2)
        axes.axvline(0, color=MUTED, linewidth=1)
        note(axes, 0, "decides D′ ◂ ▸ decides D", "center")
        if epsilon is not None and epsilon < grid[-1]:
            upright_line(axes, epsilon, "ε")
            note(axes, epsilon, f" ε = {epsilon:.4g}", "left")
        axes.set_xlim(grid[0], grid[-1])
        if not finite.all():
            text = f"{(~finite).sum()} of {len(final)} trials ended certain (infinite log-odds)"
            axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=MUTED)
    return figure


def poison_scores(worlds: Bools, scores: Floats, threshold: float | None) -> Figure:
    """Return a figure of the scores of both worlds' released models, and the threshold."""
    with panel("score of the released model", "density", above=0.06) as (figure, axes):
        bins = np.histogram_bin_edges(scores, bins=bin_count(scores))
        for world, colour, label in WORLDS:
            chosen = scores[worlds == world]
            if not len(chosen):
                continue
            counts, _ = np.histogram(chosen, bins)
            heights = counts / (len(chosen) * np.diff(bins))
            filled_stairs(axes, heights, bins, colour, label, 0.28, 0.9)
        if threshold is not None:
            upright_line(axes, threshold, "threshold")
            note(axes, threshold, "decides D′ ◂ ▸ decides D", "center")
    return figure


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


def client_beliefs(rounds: Ints, beliefs: Mapping[str, Floats]) -> Figure:
    with panel("", "belief after the round") as (figure, axes):
        worst = max(beliefs, key=lambda name: beliefs[name][-1])
        one_among_others(axes, rounds, beliefs, worst, f"{worst}, the highest at the end")
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        rounds_axis(axes, rounds)
    return figure


def canary_scores(edges: Floats, included: Floats, left_out: Floats) -> Figure:
    """Return a figure of how many canaries, in and out, have a score in each bin."""
    with panel("score: inner product with the aggregates, summed over rounds", "canaries") as (
        figure,
        axes,
    ):
        for counts, colour, label in (
            (included, BLUE, f"{int(included.sum())} canaries included"),
            (left_out, VERMILION, f"{int(left_out.sum())} canaries left out"),
        ):
            filled_stairs(axes, counts, edges, colour, label, 0.35, 1.6)
    return figure


@dataclass(frozen=True)
class MeasuredCurve:
    label: str
    value: float
    interval: tuple[float, float] | None


def advantages(
    measured: Sequence[MeasuredCurve],
    *,
    bound: float | None,
    prediction: float | None,
    theorem2: float | None,
) -> Figure:
    """Return a figure of measured advantages with their intervals against theory."""
    with panels() as (figure, (axes,)):
        tops = [0.05]
        for position, point in enumerate(measured):
            colour = (BLUE, GREEN, PURPLE)[position % 3]
            axes.bar(position, point.value, width=0.36, color=colour, alpha=0.22)
            low, high = point.interval or (point.value, point.value)
            axes.plot([position, position], [low, high], color=colour, linewidth=2)
            axes.plot(position, point.value, "o", color=colour, markersize=6)
            name = [point.label.replace("\n", ", ")]
            keep(axes, "measured", name, [point.value])
            keep_ends(axes, "interval", name, [low], [high])
            axes.annotate(
                f"{point.value:.3f}",
                (position + 0.18, point.value),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                weight="bold",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )
            tops += [point.value, high]
        levels = [
            (value, f"{label} {value:.3f}", colour, look)
            for value, label, colour, look in (
                (bound, "bound ρα", INK, "-"),
                (prediction, "prediction", VERMILION, "--"),
                (theorem2, "Theorem 2 of Bernau et al.\n(not a valid limit):", MUTED, ":"),
            )
            if value is not None
        ]
        tops += [level[0] for level in levels]
        lows = [point.interval[0] for point in measured if point.interval]
        axes.set_xlim(-0.6, len(measured) - 0.4)
        axes.set_ylim(min([0.0, *lows]) * 1.3, max(tops) * 1.12)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        levels_in_margin(axes, levels)
        axes.set_xticks(range(len(measured)), [point.label for point in measured])
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
        axes.set_ylabel("advantage over a coin")
    return figure


def epsilons(
    rounds: Sequence[int], spent: Mapping[str, Sequence[float | None]], stop_at: float | None = None
) -> Figure:
    """Return a figure of epsilon after some rounds, by who states it.

    The third is drawn as the reference that the others are compared with.
    """
    with panel("", "ε after the round") as (figure, axes):
        looks = ((BLUE, "-"), (GREEN, "-"), (INK, "--"))
        highest = 0.0
        for (label, values), (colour, look) in zip(spent.items(), looks, strict=False):
            series = np.array(values, float)
            finite = series[np.isfinite(series)]
            if not finite.size:
                continue
            highest = max(highest, float(finite.max()))
            marker = "o" if len(rounds) <= 8 else None
            line(axes, rounds, series, label, look, color=colour, linewidth=2, marker=marker)
        if stop_at is not None:
            level_line(axes, stop_at, f"privacy.stop-at = {stop_at:.3g}", VERMILION, ":")
        axes.set_ylim(0, 1.08 * max(highest, stop_at or 0.0) or 1)
        rounds_axis(axes, np.array(rounds))
    return figure


def success(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    measured: tuple[float, float, float, float] | None = None,
) -> Figure:
    """Return a figure of the largest success by baseline, both on logarithmic axes.

    measured: baseline, measured success and the ends of its interval.
    """
    with panels() as (figure, (axes,)):
        for place, (name, pairs) in enumerate(curves.items()):
            baselines, largest = np.array(sorted(pairs)).T
            colour, marker = (BLUE, GREEN, PURPLE)[place % 3], "os^"[place % 3]
            line(axes, baselines, largest, name, color=colour, marker=marker, markersize=4)
        ends = np.array([baselines[0], baselines[-1]])
        line(axes, ends, ends, "an attack that learns nothing", color=MUTED, linestyle="--")
        if measured is not None:
            at, point, low, high = measured
            reach = [[point - low], [high - point]]
            axes.errorbar([at], [point], reach, color=INK, marker="D", capsize=3, label="measured")
            keep(axes, "measured", [at], [point])
            keep_ends(axes, "measured", [at], [low], [high])
        axes.set(xscale="log", yscale="log")
        axes.set(xlabel="success without the record", ylabel="success with it, at most")
        axes.legend()
    return figure


def trade_offs(curves: Mapping[str, TradeOff]) -> Figure:
    """Return a panel for each measured trade-off curve, with its band and the curve of theory."""
    count = len(curves)
    with panels(1, count, max(WIDTH, 3.4 * count), sharey=True) as (figure, beside):
        for axes, (name, curve) in zip(beside, curves.items(), strict=True):
            # At a rate, the limits of the next milder and of the next stricter threshold hold.
            milder = np.searchsorted(curve.false_low, curve.rates, side="left")
            stricter = np.searchsorted(curve.false_high, curve.rates, side="right")
            upper = np.array([*curve.true_high, 1.0])[milder]
            lower = np.array([0.0, *curve.true_low])[stricter]
            axes.fill_between(curve.rates, lower, upper, color=BLUE, alpha=0.14, label="band")
            keep_ends(axes, "band", curve.rates, lower, upper)
            line(axes, [0, *curve.false], [0, *curve.true], "measured", color=BLUE)
            line(axes, curve.rates, curve.allowed, "theory allows", color=INK, linewidth=1.2)
            line(axes, [0, 1], [0, 1], "guessing", color=MUTED, linestyle="--")
            axes.set(title=name, xlabel="false positives", aspect="equal")
        beside[0].set_ylabel("true positives")
        beside[-1].legend(loc="lower right")
    return figure
