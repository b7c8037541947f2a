"""Epsilon against epochs by every composition: Abadi et al., Figure 2, and the composition blog."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.reports.figures import canvas
from papers.findings import ItemPicture, Means, Number, Reproduced

RATE, NOISE, DELTA = 0.01, 4.0, 1e-5
"""q, sigma and delta of the figure."""

EPOCHS = {"smoke": (10, 100), "full": (1, 2, 5, 10, 20, 50, 100, 150, 200, 250, 300, 350, 400)}

STATED = (100, 400)
"""Epochs whose epsilon is a number of the item."""

SHARES = np.linspace(0.01, 0.99, 99)
"""Shares of delta for the tail of a sum; the best one counts."""

Composition = Callable[[int], float]


def basic(steps: int) -> float:
    """Return T e at delta T d, of steps that are not sampled."""
    return steps * _gaussian(DELTA / steps)


def amplified(steps: int) -> float:
    """Return T q e at delta T q d: each step amplified by sampling."""
    return steps * RATE * _gaussian(DELTA / (steps * RATE))


def strong(steps: int) -> float:
    """Return sqrt(2 T ln(1/d')) e + T e (exp(e) - 1): the blog's Theorem 2 as its proof has it."""
    return min(_azuma(steps, float(share), inside=False) for share in SHARES)


def as_printed(steps: int) -> float:
    """Return the blog's Theorem 2 as printed (epsilon inside the root), which it does not prove."""
    return min(_azuma(steps, float(share), inside=True) for share in SHARES)


def _azuma(steps: int, share: float, inside: bool) -> float:
    each = RATE * _gaussian((1 - share) * DELTA / (steps * RATE))
    spread = 2 * steps * math.log(1 / (share * DELTA))
    root = math.sqrt(spread * each) if inside else math.sqrt(spread) * each
    return root + steps * each * math.expm1(each)


def _gaussian(delta: float) -> float:
    """Return the classic epsilon of one step (Dwork and Roth, 2014, Theorem A.1)."""
    return math.sqrt(2 * math.log(1.25 / delta)) / NOISE


def _by(name: str) -> Composition:
    return lambda steps: accountant(name).epsilon(Mechanism.alike(NOISE, steps, RATE), DELTA)


COMPOSITIONS: Mapping[str, Composition] = {
    "basic": basic,
    "Theorem 2 as printed": as_printed,
    "basic, amplified": amplified,
    "strong (Azuma), amplified": strong,
    "moments": _by("rdp-classic"),
    "Rényi": _by("rdp"),
    "privacy loss distribution": _by("pld"),
}
"""Compositions, from the loosest to the tightest at many epochs."""


def compared(means: Means) -> Reproduced:
    epochs = EPOCHS[means.scale]
    curves = {}
    for name, epsilon in COMPOSITIONS.items():
        means.say(f"epsilon by {name}")
        curves[name] = [epsilon(round(epoch / RATE)) for epoch in epochs]
    numbers = [
        Number(f"ε after {epoch} epochs, {name}", curve[epochs.index(epoch)])
        for epoch in STATED
        if epoch in epochs
        for name, curve in curves.items()
    ]
    first = canvas.MUTED, canvas.FAINT, canvas.PURPLE, canvas.VERMILION
    colours = (*first, canvas.GREEN, canvas.INK, canvas.BLUE)
    with canvas.panel("epochs", "ε") as (figure, axes):
        canvas.draw_curves(axes, epochs, curves, colours, "semilogy", linewidth=2, marker=".")
    return Reproduced(
        "The moments accountant gives far less than strong composition, as published, and the "
        "privacy loss distribution gives even less. The blog prints Theorem 2 with ε inside the "
        "root. This is several times what its own proof shows. Over few epochs, it is also above "
        "basic composition of amplified steps.",
        numbers,
        [
            ItemPicture(
                "composition",
                f"ε at δ = {DELTA:g} against epochs, q = {RATE:g}, σ = {NOISE:g}; the vertical "
                "axis is logarithmic, to show all curves.",
                canvas.to_svg(figure),
            )
        ],
    )
