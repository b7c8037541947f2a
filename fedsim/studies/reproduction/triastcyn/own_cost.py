"""Section 4.4.3: what the estimator's own mean and deviation tell, if they are Gaussian and chi^2.

No guarantee of differential privacy: the law of the statistics is assumed, and the record that is
replaced is a stated number of standard deviations away.
"""

import numpy as np

from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import Floats
from fedsim.studies.reproduction.findings.finding import Number, Picture

DELTA = 1e-5

SAMPLES = np.unique(np.geomspace(10, 10**6, 40).astype(np.int64))
"""n of the picture."""

SHOWN = (50, 1_000, 100_000)
"""n of the numbers."""

MOVES = (1.0, 3.0)
"""Standard deviations between the mean and the record that takes the place of one at the mean."""

ORDERS: Floats = 1 + np.geomspace(1e-3, 1e7, 1001)
"""Renyi's alpha."""


def epsilon(samples: int, moved: float) -> float:
    """Return epsilon at DELTA of telling mean and variance of n samples.

    mean ~ N(mu, s^2/n) and (n-1) S^2/s^2 ~ chi^2 of n - 1 degrees, independent; a record at the
    mean is replaced by one `moved` deviations away, which moves mu by moved s/n and the variance by
    the factor 1 + moved^2 (n-1)/n^2.

    Args:
        samples: n >= 2.

    Source:
        Renyi divergences as Gil, Alajaji and Linder, 2013, Table 2.
    """
    factor = 1 + moved**2 * (samples - 1) / samples**2
    shift = (moved / samples) ** 2 * samples
    both = []
    for ratio, first in ((factor, 1.0), (1 / factor, factor)):
        # From the variance `first` to first * ratio; the shift is in units of the first's at 1.
        divergence = normal_divergence(shift / first, ratio) + gamma_divergence(
            (samples - 1) / 2, ratio
        )
        both.append(np.min(divergence - np.log(DELTA) / (ORDERS - 1)))
    return float(max(both))


def normal_divergence(squared_shift: float, ratio: float) -> Floats:
    """Return D_alpha(N(0, 1) | N(shift, ratio)) at `ORDERS`; inf where it does not exist.

    Args:
        ratio: of the second variance to the first.
    """
    mixed = ORDERS * ratio + (1 - ORDERS)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = ORDERS * squared_shift / (2 * mixed) - (np.log(mixed) - ORDERS * np.log(ratio)) / (
            2 * (ORDERS - 1)
        )
    return np.where(mixed > 0, found, np.inf)


def gamma_divergence(shape: float, ratio: float) -> Floats:
    """Return D_alpha of Gamma laws of one shape at `ORDERS`; inf where it does not exist.

    Args:
        ratio: of the second scale to the first.
    """
    mixed = ORDERS * ratio + (1 - ORDERS)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = shape * (ORDERS * np.log(ratio) - np.log(mixed)) / (ORDERS - 1)
    return np.where(mixed > 0, found, np.inf)


def numbers() -> list[Number]:
    """Return epsilon of some sample sizes."""
    return [
        Number(
            f"own cost under the assumed laws, record {moved:g} deviations away, n = {n}: ε",
            epsilon(n, moved),
        )
        for moved in MOVES
        for n in SHOWN
    ]


def concluded() -> str:
    """Return what the numbers say."""
    few, many = (epsilon(n, MOVES[1]) for n in (SHOWN[0], SHOWN[-1]))
    return (
        "The estimator's own leakage falls with the number of samples, as the source says, when "
        "they are many like 1/√n: if its statistics are Gaussian and χ², a record "
        f"{MOVES[1]:g} deviations away has ε = {few:.3g} at n = {SHOWN[0]} and {many:.2g} at n = "
        f"{SHOWN[-1]}. That rests on the assumed laws and on the distance of the record: it is no "
        "guarantee of differential privacy, and it is for one step."
    )


def picture() -> Picture:
    """Return epsilon against n."""
    with canvas.page_style():
        figure, axes = canvas.new_axes()
        for moved, colour in zip(MOVES, (canvas.BLUE, canvas.VERMILION), strict=True):
            curve = [epsilon(int(n), moved) for n in SAMPLES]
            label = f"record {moved:g} deviations away"
            axes.loglog(SAMPLES, curve, color=colour, linewidth=2, label=label)
        axes.set_xlabel("samples n")
        axes.set_ylabel("ε")
        canvas.legend_above(axes)
    return Picture(
        "own-cost",
        f"ε at δ = {DELTA:g} of the estimator's mean and deviation in one step, if they are "
        "Gaussian and χ² (no guarantee of differential privacy).",
        canvas.to_svg(figure),
    )
