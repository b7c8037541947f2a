"""Section 4.3.1: the estimator of a binary mean, and whether it overestimates as often as said."""

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedsim.report.figures.canvas import Floats
from fedsim.studies.reproduction.findings.finding import Grid, Number
from fedsim.studies.reproduction.triastcyn.averages import share

RECORDS = 100
"""N of the source's example."""

GAMMAS = (1.0, 0.5, 0.05, 0.01, 1e-6, 1e-16, 0.0)
"""Probabilities of failure; the confidence is what they leave of 1."""

SIMULATED = 0.05
"""The probability of failure that the simulation is of."""

HIGHEST = 0.9
"""Of the fixed means that coverage is looked for at."""


def estimated(ones: npt.ArrayLike, zeros: npt.ArrayLike, gamma: npt.ArrayLike) -> Floats:
    """Return the mean's posterior quantile at confidence 1 - gamma, under a flat prior.

    Args:
        gamma: in [0, 1].

    Source:
        Section 4.3.1: the posterior is Beta(ones + 1, zeros + 1).
    """
    first, second = np.asarray(ones) + 1.0, np.asarray(zeros) + 1.0
    return np.asarray(stats.beta.isf(gamma, first, second))


def table() -> Grid:
    """Return what the estimator says of 100 zeros."""
    rows = [
        (f"{gamma:g}", f"{float(estimated(0, RECORDS, gamma)):.6g}", f"{closed_form(gamma):.6g}")
        for gamma in GAMMAS
    ]
    title = f"What the estimator says of {RECORDS} zeros, by its probability of failure γ."
    return Grid(title, ("γ", "estimate", f"1 − γ^(1/{RECORDS + 1})"), tuple(rows))


def closed_form(gamma: float) -> float:
    """Return 1 - gamma^(1/(N + 1)): the estimate of N zeros."""
    return float(1 - gamma ** (1 / (RECORDS + 1)))


def covered(draws: int) -> Number:
    """Return how often a mean drawn from the flat prior is at most its estimate."""
    draw = np.random.default_rng(11)
    mean = draw.uniform(size=draws)
    ones = draw.binomial(RECORDS, mean)
    hits = estimated(ones, RECORDS - ones, SIMULATED) >= mean
    name = f"binary, N = {RECORDS}, γ = {SIMULATED:g}: overestimates, mean drawn flat"
    return share(name, hits, 1 - SIMULATED)


def least_covered() -> tuple[float, float]:
    """Return the fixed mean up to `HIGHEST` at which overestimates are rarest, and how often.

    Above (1 - gamma)^(1/(N + 1)), the estimate of ones alone, there are none at all.
    """
    means, ones = np.linspace(0, HIGHEST, 4001)[1:], np.arange(RECORDS + 1)
    estimates = estimated(ones, RECORDS - ones, SIMULATED)
    # Estimates rise with the ones: those at or above the mean are a tail of the binomial law.
    first = np.searchsorted(estimates, means)
    coverage = stats.binom.sf(first - 1, RECORDS, means)
    worst = int(coverage.argmin())
    return float(means[worst]), float(coverage[worst])
