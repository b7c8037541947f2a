"""The figures of local sensitivity: pair by pair, and over training.

After Figures 4 and 5 of Bernau et al.; data in, a matplotlib Figure out, as in
`fedsim.report.figures.canvas`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import BLUE, INK, MUTED, QUANTILES, VERMILION, Floats

COLOURS = {"max": BLUE, "min": VERMILION, "median": MUTED}
"""Of the pairs that each choice made, as in `challenge.choice`."""

LEGENDS = {"max": "largest distance", "min": "smallest distance", "median": "median distance"}


@dataclass(frozen=True, eq=False)
class Followed:
    """A pair that was followed.

    Attributes:
        sensitivities: [T, k].
    """

    label: str
    distance: float
    choice: str
    sensitivities: Floats


@dataclass(frozen=True, eq=False)
class Relation:
    """One neighbouring relation.

    Attributes:
        sensitivities: [T, k].
    """

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
    """Return a figure of median and 5-95 % band over trials by round, beside what clipping allows.

    Args:
        relations: a panel for each: C for add-remove, 2C for replace.

    Source:
        Bernau et al., Figure 5.
    """
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
