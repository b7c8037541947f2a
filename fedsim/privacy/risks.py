"""Risks of attacks, from the trade-off curve of a mechanism.

The curve says how many true positives a test between D and D' reaches at each rate of false
positives. An attack that succeeds in a share `baseline` of cases without the release succeeds in at
most the true-positive rate at that rate with it.

Sources:
    Dong, Roth and Su, "Gaussian differential privacy", 2022: trade-off curves, and their duality
    with delta(epsilon) (Proposition 2.12).
    Kulynych et al., "Attack-aware noise calibration for differential privacy", 2024
    (arXiv 2407.02191): the curve of a loss distribution.
    Kulynych et al., "Unifying re-identification, attribute inference, and data reconstruction
    risks in differential privacy", 2025 (arXiv 2507.06969): success by baseline.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from adversaries.arrays import Floats
from fedsim.privacy import loss_distribution
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism

BASELINES = (0.1, 0.01, 0.001, 0.0001)
"""Success without the release: naming one of 10, 100, 1,000 or 10,000 people."""

BASELINE = 0.001
"""The baseline if none is given: naming one of 1,000 people."""

LARGEST_EPSILON, EPSILONS = 20.0, 257
"""The grid of epsilons of a mechanism without a loss distribution."""


def true_positives(mechanism: Mechanism, rates: npt.ArrayLike) -> Floats:
    """Return the largest true-positive rate of any test at rates of false positives.

    Args:
        rates: false-positive rates in [0, 1], [m].

    Returns:
        1 - f(rate) of the trade-off curve f, float64 [m]; an upper bound where the loss
        distribution is rounded, or where the accountant has none.
    """
    rates = np.asarray(rates, np.float64)
    if mechanism.noiseless:
        # The total variation distance is the largest gap between the two rates.
        return np.minimum(1.0, rates + mechanism.participation)
    if not mechanism.sampled:
        return np.asarray(ndtr(ndtri(rates) + mechanism.mu), np.float64)
    epsilons, deltas = _profile(mechanism)
    # Every (epsilon, delta) bounds the curve by two lines, one for each direction of the test.
    return np.array([_below(rate, epsilons, deltas) for rate in rates])


def success(mechanism: Mechanism, baseline: float) -> float:
    """Return the largest success of any attack, at most 1 - f(baseline) (Kulynych et al., 2025)."""
    return float(true_positives(mechanism, [baseline])[0])


def success_by_baseline(
    mechanism: Mechanism, baselines: Sequence[float] = BASELINES
) -> tuple[tuple[float, float], ...]:
    """Return each baseline with the largest success of any attack from it."""
    largest = true_positives(mechanism, baselines)
    return tuple(zip(baselines, map(float, largest), strict=True))


def _below(rate: float, epsilons: Floats, deltas: Floats) -> float:
    above = np.exp(epsilons) * rate + deltas
    under = 1 - np.exp(-epsilons) * (1 - rate - deltas)
    return float(np.clip(min(above.min(), under.min()), rate, 1.0))


def _profile(mechanism: Mechanism) -> tuple[Floats, Floats]:
    """Return epsilons >= 0 and delta at each for the worse direction, float64 [n] each."""
    if not loss_distribution.resolves(mechanism, 1.0):
        reach = min(LARGEST_EPSILON, max(1.0, PLD.epsilon(mechanism, 1e-9)))
        epsilons = np.linspace(0, reach, EPSILONS, dtype=np.float64)
        return epsilons, np.array([PLD.delta(mechanism, float(each)) for each in epsilons])
    directions = [loss.profile() for loss in loss_distribution.composed(mechanism)]
    deltas = max(directions, key=len).copy()
    for shorter in directions:
        # Beyond its grid a direction has the delta of its infinite losses alone.
        np.maximum(deltas[: len(shorter)], shorter, out=deltas[: len(shorter)])
        np.maximum(deltas[len(shorter) :], shorter[-1], out=deltas[len(shorter) :])
    width = loss_distribution.composed(mechanism)[0].width
    return width * np.arange(len(deltas), dtype=np.float64), deltas
