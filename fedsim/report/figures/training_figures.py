"""Figures of a training: its data, its noise and its models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedsim.report.figures.canvas import (
    BLUE,
    GREEN,
    HEIGHT,
    INK,
    LEGEND_LABELS,
    PURPLE,
    QUANTILES,
    VERMILION,
    WIDTH,
    Floats,
    Pixels,
    from_zero,
    level_line,
    new_axes,
    page_style,
    panel,
    quantile_band,
    rounds_axis,
)


def utility(
    rounds: Sequence[int],
    accuracy: Mapping[str, Sequence[float | None]],
    loss: Mapping[str, Sequence[float | None]],
) -> Figure:
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
        from_zero(right)
    return figure


def by_client(
    rounds: Sequence[int],
    accuracy: Mapping[str, Sequence[float | None]],
    weighted: Sequence[float | None],
    own_models: Mapping[str, Sequence[float | None]] | None,
) -> Figure:
    """Return a figure of how accuracy is spread over clients, by round."""
    with panel() as (figure, axes):
        at = np.array(rounds)
        for series, colour, label in (
            (accuracy, GREEN, "on a client's records"),
            (own_models, BLUE, "a client's own model"),
        ):
            if series is not None:
                band = [np.array(series[name], float) for name in ("low", "mean", "high")]
                quantile_band(axes, at, np.stack(band), colour, label)
        axes.plot(at, np.array(weighted, float), color=INK, linestyle="--", label="on all records")
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
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
    rounds: npt.NDArray[np.int64], measured: Floats, interval: Floats, claimed: Floats | None
) -> Figure:
    with panel("", "standard deviation of the noise") as (figure, axes):
        spread = np.abs(interval - measured)
        axes.errorbar(rounds, measured, spread, fmt="o", color=BLUE, markersize=4, label="measured")
        if claimed is not None:
            marker = "_" if len(rounds) == 1 else None
            axes.plot(rounds, claimed, color=VERMILION, marker=marker, label="configured")
        from_zero(axes)
        rounds_axis(axes, rounds)
    return figure


def clipped_share(rounds: npt.NDArray[np.int64], share: Floats) -> Figure:
    with panel("", "gradients that were cut") as (figure, axes):
        marker = "o" if len(rounds) == 1 else None
        axes.plot(rounds, share, color=BLUE, marker=marker, label="_share")
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        rounds_axis(axes, rounds)
    return figure


def noise_limits(rounds: npt.NDArray[np.int64], limits: Mapping[str, Floats]) -> Figure:
    """Return a figure of how many times the claimed noise there is at most, after every round."""
    with panel("", "noise over what is claimed, at most") as (figure, axes):
        marker = "o" if len(rounds) == 1 else None
        least = min(limits, key=lambda name: limits[name][-1])
        for name, limit in limits.items():
            finite = np.where(np.isfinite(limit), limit, np.nan)
            if name == least:
                style: dict[str, Any] = {
                    "color": VERMILION,
                    "linewidth": 2,
                    "label": f"{name}, the least",
                }
            else:
                style = {"color": BLUE, "alpha": 0.5, "linewidth": 1.2, "label": f"_{name}"}
            axes.plot(rounds, finite, marker=marker, **style)
        level_line(axes, 1.0, "as much as is claimed", INK, "--")
        from_zero(axes)
        rounds_axis(axes, rounds)
    return figure


def distribution(counts: npt.NDArray[np.int64]) -> Figure:
    """Return a figure of how many records of each label every client has, as stacked bars.

    Many labels share a colour bar instead of a legend.
    """
    clients, classes = counts.shape
    with page_style():
        figure, axes = new_axes()
        axes.grid(False, axis="x")
        colours = colormaps["viridis"](np.linspace(0, 1, classes))
        below = np.cumsum(counts, axis=1) - counts
        # Edges tell neighbours of a similar colour apart, but would hide thin bars.
        edge = 0.5 if clients * classes <= 400 else 0.0
        for label in range(classes):
            axes.bar(
                np.arange(clients),
                counts[:, label],
                bottom=below[:, label],
                color=colours[label],
                label=str(label),
                edgecolor="white",
                linewidth=edge,
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(-0.6, clients - 0.4)
        axes.set_xlabel("client")
        axes.set_ylabel("records")
        if classes <= LEGEND_LABELS:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), title="label", reverse=True)
        else:
            scale = ScalarMappable(Normalize(0, classes - 1), "viridis")
            figure.colorbar(scale, ax=axes, label="label")
    return figure


def record_pairs(titles: Sequence[str], pairs: Sequence[tuple[Pixels, Pixels | None]]) -> Figure:
    """Return a figure of pictures, each above its replacement, if any."""
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
