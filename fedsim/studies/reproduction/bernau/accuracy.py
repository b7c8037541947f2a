"""Figure 6d of the core paper: accuracy where the model learns, under the four kinds of noise."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from fedsim.config import Scalar
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import Floats
from fedsim.studies.reproduction.bernau.experiments import NAMES, VARIANTS, Cell, play_with
from fedsim.studies.reproduction.findings.finding import (
    CONFIDENCE,
    Number,
    Picture,
    Reference,
    Reproduced,
)
from fedsim.studies.reproduction.findings.item import Means

TRAININGS = 5
"""Of every kind of noise: the authors' 3 to 5."""

CHANGES: dict[str, Scalar] = {
    "training.optimizer": "adam",
    "trials.count": TRAININGS,
    "trials.worlds": "d-only",
    "audit.evaluated-trials": TRAININGS,
    "audit.attacks": "none",
}

RECORDS = 10_000
"""|D| of the figure, a hundred times that of the other experiments."""

READ = Reference(0.85, (0.84, 0.86))
"""Of all four boxes, as far as can be read."""


def trained(means: Means) -> Reproduced:
    """Return the test accuracy after 30 steps under each kind of noise."""
    changes = CHANGES if means.smoke else CHANGES | {"data.records": RECORDS}
    found: dict[str, Floats] = {}
    for variant in VARIANTS:
        cell = Cell("mnist", *variant)
        run = play_with(means, cell, changes, f"accuracy-{cell.name}")
        found[" ".join(NAMES[one] for one in variant)] = run.transcript["accuracies"][-1]
    numbers = tuple(_mean(name, values) for name, values in found.items())
    return Reproduced(
        concluded(numbers),
        numbers,
        (
            Picture(
                "figure-6d",
                f"Accuracy on held-out records after each of {TRAININGS} trainings, and its mean.",
                _drawn(found),
            ),
        ),
    )


def concluded(numbers: Sequence[Number]) -> str:
    """Return what the accuracies of the four kinds of noise show."""
    low, high = (pick(numbers, key=lambda one: one.ours) for pick in (min, max))
    return (
        "With a hundred times the records and Adam the model learns in 30 steps: accuracy is "
        f"between {low.ours:.3f} ({low.name.partition(':')[0]}) and {high.ours:.3f} "
        f"({high.name.partition(':')[0]})."
    )


def _mean(name: str, values: Floats) -> Number:
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * stats.sem(values))
    mean = float(values.mean())
    return Number(f"{name}: accuracy", mean, (mean - half, mean + half), None, (READ,))


def _drawn(found: dict[str, Floats]) -> str:
    with canvas.page_style():
        figure, axes = canvas.new_axes()
        for place, values in enumerate(found.values()):
            axes.plot(np.full(len(values), place), values, "o", color=canvas.BLUE, alpha=0.6)
            axes.hlines(values.mean(), place - 0.2, place + 0.2, color=canvas.INK, linewidth=2)
        axes.set_xticks(range(len(found)), list(found))
        axes.set_ylabel("accuracy")
        axes.grid(False, axis="x")
    return canvas.to_svg(figure)
