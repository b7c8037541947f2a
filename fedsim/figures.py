"""The figures of a report: what the adversary believed, and how far that is from theory.

Every function takes arrays and returns a new matplotlib Figure that no global state holds on to.
Serialisation is deterministic: the same arrays give the same bytes.
"""

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps, style
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.special import expit, logit
from scipy.stats import norm

from fedsim.identifiability import BeliefCurve

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Pixels = npt.NDArray[np.float32]

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#00785A", "#8E4A84"
INK, MUTED, FAINT = "#1f2933", "#5b6770", "#dfe4e8"

WORLDS = ((True, BLUE, "trained on D"), (False, VERMILION, "trained on D′"))
QUANTILES = (0.05, 0.5, 0.95)
WIDTH, HEIGHT = 7.4, 3.9
LEGEND_LABELS = 12

STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Text stays text: it can be searched and read aloud, and takes the font of the page around it.
    "svg.fonttype": "none",
    "svg.hashsalt": "fedsim",
}


@dataclass(frozen=True)
class VantagePoint:
    """The advantages at one vantage point: bound, prediction, measurement and its interval."""

    label: str
    bound: float
    prediction: float | None
    measured: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Measured:
    """A measured advantage and its confidence interval, None where there is none."""

    label: str
    value: float
    interval: tuple[float, float] | None


def belief_trajectories(
    worlds: Bools, log_odds: Floats, rho_beta: float | None, *, lines: int = 100
) -> Figure:
    """Draw the posterior belief in D after every round, against the bound rho_beta.

    worlds [T], log_odds [T, k]. Shows the first `lines` trials of each world, and the median and
    5-95% band over all of them.
    """
    with page_style():
        figure, axes = new_axes()
        rounds = np.arange(1, log_odds.shape[1] + 1)
        beliefs = expit(log_odds)
        for world, colour, label in WORLDS:
            chosen = beliefs[worlds == world]
            if not len(chosen):
                continue
            shown = chosen[:lines]
            vertices = np.stack([np.broadcast_to(rounds, shown.shape), shown], axis=-1)
            axes.add_collection(
                LineCollection(list(vertices), colors=colour, linewidths=0.6, alpha=0.16)
            )
            quantile_band(axes, rounds, np.quantile(chosen, QUANTILES, axis=0), colour, label)
        if rho_beta is not None:
            level_line(axes, rho_beta, f"bound ρβ = {rho_beta:.3g}", INK, "--")
        axes.set_ylim(-0.02, 1.02)
        rounds_axis(axes, rounds)
        axes.set_ylabel("belief that D was used")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        legend_above(axes)
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
    """Draw the final log-odds of both worlds over the densities that theory predicts.

    worlds [T], final [T]: the log-odds after the last round; mu [T]: every trial's own
    sqrt(sum (LS_i / sigma_i)^2), None where no closed form holds; epsilon marks the log-odds at
    which the belief passes rho_beta; prior: the belief in D from which they start; density: drawn
    instead of what mu predicts, as heights `world_d` and `world_d_prime` [n] between `edges` [n+1].
    """
    with page_style():
        figure, axes = new_axes()
        finite = np.isfinite(final)
        bins = np.histogram_bin_edges(final[finite], bins=_bin_count(final[finite]))
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
        _note(axes, 0, "decides D′ ◂ ▸ decides D", "center")
        if epsilon is not None and (limit := epsilon + logit(prior)) < grid[-1]:
            axes.axvline(limit, color=INK, linewidth=1.2, linestyle="--")
            _note(axes, limit, f" ε = {epsilon:.4g}", "left")
        axes.set_xlim(grid[0], grid[-1])
        axes.set_xlabel("final log-odds Λ for D")
        axes.set_ylabel("density")
        if not finite.all():
            text = f"{(~finite).sum()} of {len(final)} trials ended certain (infinite log-odds)"
            axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=MUTED)
        legend_above(axes, above=0.06)
    return figure


def poison_scores(worlds: Bools, scores: Floats, threshold: float | None) -> Figure:
    """Draw the scores [T] that the released models of both worlds [T] got, and the threshold."""
    with page_style():
        figure, axes = new_axes()
        bins = np.histogram_bin_edges(scores, bins=_bin_count(scores))
        for world, colour, label in WORLDS:
            chosen = scores[worlds == world]
            if not len(chosen):
                continue
            counts, _ = np.histogram(chosen, bins)
            heights = counts / (len(chosen) * np.diff(bins))
            axes.stairs(heights, bins, fill=True, color=colour, alpha=0.28)
            axes.stairs(heights, bins, color=colour, linewidth=0.9, label=label)
        if threshold is not None:
            axes.axvline(threshold, color=INK, linewidth=1.2, linestyle="--")
            _note(axes, threshold, "decides D′ ◂ ▸ decides D", "center")
        axes.set_xlabel("score of the released model")
        axes.set_ylabel("density")
        legend_above(axes, above=0.06)
    return figure


def predicted_density(log_odds: Floats, mu: Floats, world: bool) -> Floats:
    """Return the density, at the points `log_odds` [n], that final log-odds have from prior 1/2.

    The equal mixture over mu [T] of N(+mu^2/2, mu^2) in world D and N(-mu^2/2, mu^2) in D'. Trials
    with mu = 0 are an atom at 0 and have no density: the rest integrates to their share.
    """
    ordered = np.sort(mu)
    # A thousand quantiles draw the same curve as all the trials, in bounded memory.
    stride = max(1, len(mu) // 1000)
    drawn = ordered[stride // 2 :: stride]
    positive = drawn[drawn > 0, None]
    centre = np.where(world, 0.5, -0.5) * positive**2
    total: Floats = norm.pdf(log_odds, centre, positive).sum(axis=0) / len(drawn)
    return total


def advantages(
    measured: Sequence[Measured],
    *,
    bound: float | None,
    prediction: float | None,
    theorem2: float | None,
    bound_name: str = "bound ρα",
) -> Figure:
    """Draw measured advantages with their intervals against what theory says of them.

    bound: rho_alpha from the noise used, or another one with its name; prediction: the closed form
    2 Phi(mu/2) - 1; theorem2: the paper's printed formula, which is no bound and is labelled so.
    """
    with page_style():
        figure, axes = new_axes()
        tops = [0.05]
        for position, point in enumerate(measured):
            colour = (BLUE, GREEN, PURPLE)[position % 3]
            axes.bar(position, point.value, width=0.36, color=colour, alpha=0.22)
            low, high = point.interval or (point.value, point.value)
            axes.plot([position, position], [low, high], color=colour, linewidth=2)
            axes.plot(position, point.value, "o", color=colour, markersize=6)
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
            (value, f"{label} {value:.3f}", colour, line)
            for value, label, colour, line in (
                (bound, bound_name, INK, "-"),
                (prediction, "prediction", VERMILION, "--"),
                (theorem2, "paper (Theorem 2),\nnot a bound:", MUTED, ":"),
            )
            if value is not None
        ]
        tops += [level[0] for level in levels]
        lows = [point.interval[0] for point in measured if point.interval]
        axes.set_xlim(-0.6, len(measured) - 0.4)
        axes.set_ylim(min([0.0, *lows]) * 1.3, max(tops) * 1.12)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        _levels_in_margin(axes, levels)
        axes.set_xticks(range(len(measured)), [point.label for point in measured])
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
        axes.set_ylabel("advantage over a coin")
    return figure


def vantages(points: Sequence[VantagePoint]) -> Figure:
    """Draw, for each vantage point, the measured advantage against its prediction and its bound.

    From 0, a coin, to 1, certainty; what no noise hides reaches the right edge.
    """
    with page_style():
        figure = Figure(figsize=(WIDTH, 0.9 + 0.62 * len(points)), layout="constrained")
        axes = figure.subplots()
        heights = range(len(points) - 1, -1, -1)
        named: set[str] = set()

        def once(label: str) -> str:
            """Return a label for the legend, hidden from the second time on."""
            hidden = "_" if label in named else ""
            named.add(label)
            return hidden + label

        for height, point in zip(heights, points, strict=True):
            ends = height - 0.3, height + 0.3
            axes.barh(height, point.bound, height=0.6, color=FAINT, alpha=0.5)
            axes.vlines(point.bound, *ends, color=INK, linewidth=2, label=once("bound ρα"))
            if point.prediction is not None:
                axes.vlines(
                    point.prediction,
                    *ends,
                    color=VERMILION,
                    linewidth=1.6,
                    linestyle=(0, (3, 2)),
                    label=once("prediction"),
                )
            if point.measured is None:
                axes.annotate(
                    "not measured",
                    (0, height),
                    xytext=(6, 0),
                    textcoords="offset points",
                    va="center",
                    color=MUTED,
                )
                continue
            low, high = point.interval or (point.measured, point.measured)
            room = max(high, point.bound) < 0.9
            axes.plot([low, high], [height, height], color=BLUE, linewidth=2.4)
            axes.plot(point.measured, height, "o", color=BLUE, markersize=7, label=once("measured"))
            axes.annotate(
                f"{point.measured:.3f}",
                (max(high, point.bound), height) if room else (low, height),
                xytext=(8 if room else -8, 0),
                textcoords="offset points",
                ha="left" if room else "right",
                va="center",
                weight="bold",
                color=BLUE,
            )
        lows = [point.interval[0] for point in points if point.interval]
        axes.set_xlim(min([0.0, *lows]) - 0.03, 1.03)
        axes.set_ylim(-0.6, len(points) - 0.3)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_yticks(list(heights), [point.label for point in points])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("advantage over a coin")
        legend_above(axes)
    return figure


def utility(
    rounds: Sequence[int],
    accuracy: Mapping[str, Sequence[float | None]],
    loss: Mapping[str, Sequence[float | None]],
) -> Figure:
    """Draw accuracy and loss of the global model: `mean`, and the band from `low` to `high`."""
    with page_style():
        figure = Figure(figsize=(WIDTH, HEIGHT * 0.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for axes, series, title, colour in (
            (left, accuracy, "Accuracy", GREEN),
            (right, loss, "Loss", PURPLE),
        ):
            low, mean, high = (np.array(series[name], float) for name in ("low", "mean", "high"))
            quantile_band(axes, np.array(rounds), np.stack([low, mean, high]), colour, title)
            rounds_axis(axes, np.array(rounds))
            axes.set_title(title)
        left.set_ylim(0, 1.02)
        left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        right.set_ylim(bottom=0)
    return figure


def sensitivities(sensitivity: Floats, bound: float | None) -> Figure:
    """Draw the local sensitivity per round, [T, k], against its bound C or 2C."""
    with page_style():
        figure, axes = new_axes()
        rounds = np.arange(1, sensitivity.shape[1] + 1)
        quantile_band(
            axes, rounds, np.quantile(sensitivity, QUANTILES, axis=0), BLUE, "median, 5–95%"
        )
        if bound is not None:
            level_line(axes, bound, f"clipping allows {bound:.3g}", INK, "--")
        axes.set_ylim(0, 1.1 * max(bound or 0, float(sensitivity.max())) or 1)
        rounds_axis(axes, rounds)
        axes.set_ylabel("local sensitivity LS")
        legend_above(axes)
    return figure


def guarantee(
    rounds: npt.NDArray[np.int64],
    epsilons: Mapping[str, Floats],
    delta: float,
    curve: BeliefCurve | None,
    rho_beta: float,
) -> Figure:
    """Draw epsilon [n] after `rounds` [n] by every accountant, and how sure an adversary gets.

    curve: how often the worst-case belief exceeds a value, in both worlds; None leaves it out.
    """
    with page_style():
        figure = Figure(figsize=(WIDTH * (1.5 if curve else 1.0), HEIGHT), layout="constrained")
        axes, *others = figure.subplots(1, 2 if curve else 1, squeeze=False)[0]
        tightest = min(float(np.max(values)) for values in epsilons.values())
        lines = zip(epsilons.items(), (BLUE, GREEN, PURPLE, VERMILION, MUTED, INK), strict=False)
        for (name, values), colour in lines:
            axes.plot(rounds, values, color=colour, linewidth=1.4, label=name)
        # Basic and advanced composition would leave nothing of the others to see.
        axes.set_ylim(0, 3 * tightest if tightest > 0 else None)
        axes.set_title(f"ε at δ = {delta:g}, smaller is tighter")
        axes.set_xlabel("rounds")
        axes.set_ylabel("ε")
        axes.legend()
        for other in others:
            assert curve is not None
            for (_, colour, label), rates in zip(
                WORLDS, (curve.under_d, curve.under_d_prime), strict=True
            ):
                other.plot(curve.beliefs, rates, color=colour, linewidth=1.4, label=label)
            other.axvline(rho_beta, color=INK, linestyle="--", linewidth=1)
            other.set_title("How often the worst-case belief in D passes a value")
            other.set_xlabel(f"belief that D was used (dashed: ρβ = {rho_beta:.3g})")
            other.set_ylim(-0.02, 1.02)
            other.legend()
    return figure


def epsilons(
    rounds: Sequence[int],
    spent: Mapping[str, Sequence[float | None]],
    stop_at: float | None = None,
) -> Figure:
    """Draw epsilon after each of some rounds, [n], by the name of who states it; None is no value.

    The third is drawn as the reference that the others are compared with. stop_at: the budget.
    """
    with page_style():
        figure, axes = new_axes()
        looks = ((BLUE, "-"), (GREEN, "-"), (INK, "--"))
        highest = 0.0
        for (label, values), (colour, line) in zip(spent.items(), looks, strict=False):
            series = np.array(values, float)
            finite = series[np.isfinite(series)]
            if not finite.size:
                continue
            highest = max(highest, float(finite.max()))
            marker = "o" if len(rounds) <= 8 else None
            axes.plot(rounds, series, line, color=colour, linewidth=2, marker=marker, label=label)
        if stop_at is not None:
            level_line(axes, stop_at, f"privacy.stop-at = {stop_at:.3g}", VERMILION, ":")
        axes.set_ylim(0, 1.08 * max(highest, stop_at or 0.0) or 1)
        rounds_axis(axes, np.array(rounds))
        axes.set_ylabel("ε after the round")
        legend_above(axes)
    return figure


def lower_bounds(
    points: Sequence[tuple[str, float, bool, bool]], limit: float | None, confidence: str
) -> Figure:
    """Draw lower bounds on epsilon below each other, against what theory allows.

    points: (title, epsilon, whether it trusts the claimed noise, whether the report leads with it);
    confidence: the start of a phrase, such as "95% ".
    """
    with page_style():
        figure, axes = new_axes()
        places = np.arange(len(points))[::-1]
        for place, (_, epsilon, trusts, leads) in zip(places, points, strict=True):
            colour = PURPLE if trusts else BLUE
            axes.hlines(place, 0, epsilon, color=colour, linewidth=3 if leads else 1.5)
            face = colour if leads else "white"
            axes.plot(epsilon, place, "o", color=colour, markerfacecolor=face, markersize=7)
        names = [f"{title} (leads)" if leads else title for title, _, _, leads in points]
        axes.set_yticks(places, names)
        for colour, label in ((BLUE, "does not trust the noise"), (PURPLE, "trusts the noise")):
            axes.plot([], [], "o-", color=colour, label=label)
        highest = max([epsilon for _, epsilon, _, _ in points] + [limit or 0.0])
        if limit is not None:
            axes.axvline(limit, color=INK, linestyle="--", linewidth=1.4, label="ε by theory")
        axes.set_xlim(0, 1.08 * highest or 1)
        axes.set_ylim(-0.6, len(points) - 0.4)
        axes.set_xlabel(f"ε is at least, with {confidence}confidence")
        legend_above(axes)
    return figure


def privacy_profile(
    epsilons: Sequence[float],
    theory: Sequence[float],
    directions: Mapping[str, Mapping[str, Sequence[float]]],
) -> Figure:
    """Draw delta [n] over epsilon [n]: estimate and band of each direction, and theory's."""
    with page_style():
        figure, axes = new_axes()
        looks = {"world_d": (BLUE, "D against D′"), "world_d_prime": (VERMILION, "D′ against D")}
        for name, profile in directions.items():
            colour, label = looks[name]
            axes.fill_between(epsilons, profile["low"], profile["high"], color=colour, alpha=0.15)
            axes.plot(epsilons, profile["estimate"], color=colour, linewidth=2, label=label)
        axes.plot(epsilons, theory, "--", color=INK, label="by theory")
        axes.set_xlim(epsilons[0], epsilons[-1])
        axes.set_ylim(0, None)
        axes.set_xlabel("ε")
        axes.set_ylabel("δ(ε)")
        legend_above(axes)
    return figure


def owner_beliefs(rounds: npt.NDArray[np.int64], beliefs: Mapping[str, Floats]) -> Figure:
    """Draw the belief that an owner took part, after every round, for each owner by its name."""
    with page_style():
        figure, axes = new_axes()
        worst = max(beliefs, key=lambda name: beliefs[name][-1])
        marker = "o" if len(rounds) == 1 else None
        for name, belief in beliefs.items():
            if name != worst:
                axes.plot(rounds, belief, color=BLUE, alpha=0.5, linewidth=1.2, marker=marker)
        label = f"{worst}, the highest at the end"
        axes.plot(rounds, beliefs[worst], color=VERMILION, linewidth=2, marker=marker, label=label)
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_ylabel("belief after the round")
        rounds_axis(axes, rounds)
        legend_above(axes)
    return figure


def realised_noise(
    rounds: npt.NDArray[np.int64], measured: Floats, interval: Floats, claimed: Floats | None
) -> Figure:
    """Draw the standard deviation of the noise that was left over, [k], beside the claim.

    interval [2, k]: its ends; claimed [k], None where nobody claimed any.
    """
    with page_style():
        figure, axes = new_axes()
        spread = np.abs(interval - measured)
        axes.errorbar(rounds, measured, spread, fmt="o", color=BLUE, markersize=4, label="measured")
        if claimed is not None:
            marker = "_" if len(rounds) == 1 else None
            axes.plot(rounds, claimed, color=VERMILION, marker=marker, label="configured")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("standard deviation of the noise")
        rounds_axis(axes, rounds)
        legend_above(axes)
    return figure


def holdings(counts: npt.NDArray[np.int64]) -> Figure:
    """Draw how many records of each label every owner has, as stacked bars.

    counts [owners, classes]. Many labels share a colour bar instead of a legend.
    """
    owners, classes = counts.shape
    with page_style():
        figure, axes = new_axes()
        axes.grid(False, axis="x")
        colours = colormaps["viridis"](np.linspace(0, 1, classes))
        below = np.cumsum(counts, axis=1) - counts
        # Edges tell neighbours of a similar colour apart, but would hide thin bars.
        edge = 0.5 if owners * classes <= 400 else 0.0
        for label in range(classes):
            axes.bar(
                np.arange(owners),
                counts[:, label],
                bottom=below[:, label],
                color=colours[label],
                label=str(label),
                edgecolor="white",
                linewidth=edge,
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(-0.6, owners - 0.4)
        axes.set_xlabel("owner")
        axes.set_ylabel("records")
        if classes <= LEGEND_LABELS:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), title="label", reverse=True)
        else:
            scale = ScalarMappable(Normalize(0, classes - 1), "viridis")
            figure.colorbar(scale, ax=axes, label="label")
    return figure


def record_pairs(titles: Sequence[str], pairs: Sequence[tuple[Pixels, Pixels | None]]) -> Figure:
    """Draw pictures [H, W] or [H, W, 3], values in [0, 1], each above its replacement, if any."""
    across = 6  # pairs beside one another
    replaced = pairs[0][1] is not None
    deep = -(-len(pairs) // across) * (1 + replaced)
    with page_style():
        figure = Figure(figsize=(WIDTH, 0.3 + 1.25 * deep), layout="constrained")
        grid = figure.subplots(deep, across, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for i, (title, pair) in enumerate(zip(titles, pairs, strict=True)):
            below, right = divmod(i, across)
            for j, image in enumerate(image for image in pair if image is not None):
                axes = grid[below * (1 + replaced) + j, right]
                drawn = axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="none")
                drawn.set_gid(f"picture-{i}-{j}")  # the same picture may be in several pairs
                if not j:
                    axes.set_title(title, fontsize=8.5, fontweight="normal")
    return figure


def canary_scores(edges: Floats, included: Floats, left_out: Floats) -> Figure:
    """Draw how many canaries, in and out, have a score in each bin: edges [n + 1], counts [n]."""
    with page_style():
        figure, axes = new_axes()
        for counts, colour, label in (
            (included, BLUE, f"{int(included.sum())} canaries in"),
            (left_out, VERMILION, f"{int(left_out.sum())} canaries out"),
        ):
            axes.stairs(counts, edges, fill=True, color=colour, alpha=0.35)
            axes.stairs(counts, edges, color=colour, linewidth=1.6, label=label)
        axes.set_xlabel("score: inner product with the aggregates, summed over rounds")
        axes.set_ylabel("canaries")
        legend_above(axes)
    return figure


def to_svg(figure: Figure) -> str:
    """Return the figure as a standalone SVG document without dates or addresses of makers."""
    buffer = io.StringIO()
    with page_style():
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    """Return the figure as a PNG fit for high-resolution screens and print."""
    buffer = io.BytesIO()
    with page_style():
        figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
    return buffer.getvalue()


def page_style() -> AbstractContextManager[None]:
    return style.context(["default", STYLE])


def new_axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    return figure, figure.subplots()


def quantile_band(
    axes: Axes, rounds: npt.NDArray[np.int64], band: Floats, colour: str, label: str
) -> None:
    low, middle, high = band
    axes.fill_between(rounds, low, high, color=colour, alpha=0.14, linewidth=0)
    # One round makes no line, but a point with its spread.
    marker = "o" if len(rounds) == 1 else None
    if marker:
        axes.vlines(rounds, low, high, color=colour, linewidth=2)
    axes.plot(rounds, middle, color=colour, linewidth=2, marker=marker, label=label)


def level_line(axes: Axes, value: float, label: str, colour: str, line: str) -> None:
    axes.axhline(value, color=colour, linewidth=1.2, linestyle=line, label=label)


def _levels_in_margin(axes: Axes, levels: Sequence[tuple[float, str, str, str]]) -> None:
    """Draw levels and write their labels in the right margin, apart from one another."""
    bottom, top = axes.get_ylim()
    next_free = -np.inf
    for value, label, colour, line in sorted(levels):
        axes.axhline(value, color=colour, linewidth=1.4, linestyle=line)
        half = 0.05 if "\n" in label else 0.03
        height = max((value - bottom) / (top - bottom), next_free + half)
        next_free = height + half + 0.01
        axes.annotate(
            label,
            (1.0, value),
            xycoords=("axes fraction", "data"),
            xytext=(1.05, height),
            textcoords="axes fraction",
            va="center",
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "relpos": (0, 0.5)},
        )


def _note(axes: Axes, x: float, text: str, align: str) -> None:
    axes.text(
        x, 1.01, text, transform=axes.get_xaxis_transform(), ha=align, fontsize=8.5, color=MUTED
    )


def rounds_axis(axes: Axes, rounds: npt.NDArray[np.int64]) -> None:
    margin = 0.5 if len(rounds) == 1 else 0.02 * (rounds[-1] - rounds[0])
    axes.set_xlim(rounds[0] - margin, rounds[-1] + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("round")


def legend_above(axes: Axes, above: float = 0.0) -> None:
    if not axes.get_legend_handles_labels()[0]:
        return
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1 + above),
        ncols=4,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.4,
    )


def _bin_count(values: Floats) -> int:
    """Return the Freedman-Diaconis number of bins, between 12 and 60."""
    if len(values) < 2:
        return 12
    width = 2 * np.subtract(*np.quantile(values, [0.75, 0.25])) / len(values) ** (1 / 3)
    spread = np.ptp(values)
    return int(np.clip(spread / width, 12, 60)) if width > 0 else 12
