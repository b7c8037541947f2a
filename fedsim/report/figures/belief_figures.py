"""Figures of the adversary's log-odds and beliefs, by round and at the end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy.special import expit, logit
from scipy.stats import norm

from fedsim.report.figures.canvas import (
    BLUE,
    INK,
    MUTED,
    QUANTILES,
    VERMILION,
    WORLDS,
    Bools,
    Floats,
    bin_count,
    level_line,
    note,
    panel,
    quantile_band,
    rounds_axis,
)


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
        axes.set_ylim(-0.02, 1.02)
        rounds_axis(axes, rounds)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def log_odds_histogram(
    worlds: Bools,
    final: Floats,
    mu: Floats | None,
    epsilon: float | None,
    *,
    prior: float = 0.5,
    density: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """Return a figure of both worlds' final log-odds over the densities that theory predicts."""
    with panel("final log-odds Λ for D", "density", above=0.06) as (figure, axes):
        finite = np.isfinite(final)
        bins = np.histogram_bin_edges(final[finite], bins=bin_count(final[finite]))
        reach = 0.0
        if mu is not None and np.isfinite(mu).all():
            typical = float(np.median(mu))
            reach = typical**2 / 2 + 3.5 * typical
        ends = [density["edges"][0], density["edges"][-1]] if density else [-reach, reach]
        grid = np.linspace(min(bins[0], ends[0]), max(bins[-1], ends[1]), 400)
        for world, colour, label in WORLDS:
            chosen = worlds == world
            if not (chosen & finite).any():
                continue
            counts, _ = np.histogram(final[chosen & finite], bins)
            heights = counts / (chosen.sum() * np.diff(bins))
            axes.stairs(heights, bins, fill=True, color=colour, alpha=0.28)
            axes.stairs(heights, bins, color=colour, linewidth=0.9, label=label)
            predicted = label.replace("trained on", "predicted for")
            if density:
                simulated = density["world_d" if world else "world_d_prime"]
                axes.stairs(simulated, density["edges"], color=colour, linewidth=2, label=predicted)
            elif mu is not None and np.isfinite(mu[chosen]).all():
                curve = predicted_density(grid - logit(prior), mu[chosen], world)
                axes.plot(grid, curve, color=colour, linewidth=2, label=predicted)
        axes.axvline(0, color=MUTED, linewidth=1)
        note(axes, 0, "decides D′ ◂ ▸ decides D", "center")
        if epsilon is not None and (limit := epsilon + logit(prior)) < grid[-1]:
            axes.axvline(limit, color=INK, linewidth=1.2, linestyle="--", label="_ε")
            note(axes, limit, f" ε = {epsilon:.4g}", "left")
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
            axes.stairs(heights, bins, fill=True, color=colour, alpha=0.28)
            axes.stairs(heights, bins, color=colour, linewidth=0.9, label=label)
        if threshold is not None:
            axes.axvline(threshold, color=INK, linewidth=1.2, linestyle="--", label="_threshold")
            note(axes, threshold, "decides D′ ◂ ▸ decides D", "center")
    return figure


def predicted_density(log_odds: Floats, mu: Floats, world: bool) -> Floats:
    """Return the density that final log-odds have from prior 1/2.

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


def client_beliefs(rounds: npt.NDArray[np.int64], beliefs: Mapping[str, Floats]) -> Figure:
    with panel("", "belief after the round") as (figure, axes):
        worst = max(beliefs, key=lambda name: beliefs[name][-1])
        marker = "o" if len(rounds) == 1 else None
        for name, belief in beliefs.items():
            if name != worst:
                style: dict[str, Any] = {
                    "color": BLUE,
                    "alpha": 0.5,
                    "linewidth": 1.2,
                    "marker": marker,
                }
                axes.plot(rounds, belief, label=f"_{name}", **style)
        label = f"{worst}, the highest at the end"
        axes.plot(rounds, beliefs[worst], color=VERMILION, linewidth=2, marker=marker, label=label)
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
            (included, BLUE, f"{int(included.sum())} canaries in"),
            (left_out, VERMILION, f"{int(left_out.sum())} canaries out"),
        ):
            axes.stairs(counts, edges, fill=True, color=colour, alpha=0.35)
            axes.stairs(counts, edges, color=colour, linewidth=1.6, label=label)
    return figure
