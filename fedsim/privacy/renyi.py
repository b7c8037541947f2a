"""The Rényi divergence of a Poisson-sampled Gaussian step, at every order.

`dp_accounting` sums a series at fractional orders. It is cut where its terms stop falling, which
leaves the divergence up to a half too large near order 1, or infinite; these orders are the best
ones of long trainings. The integral has neither fault and costs no more.
"""

import logging
import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from fedsim.privacy.mechanism import Steps

Array = npt.NDArray[np.float64]

WIDTH = 14.0
"""Standard deviations of noise on either side of which nothing of the integrand is left: e^-98."""

LEAST_NOISE = 0.05
"""Noise multiplier below which the grid would be too fine; the series bounds such steps."""

LARGEST_ORDER = 32.0
"""Fractional orders above it, which no list of orders here has, are left to the series."""


# dp_accounting warns of every order that its series leaves out. A missing order cannot make the
# minimum over orders wrong, only larger.
logging.getLogger("absl").addFilter(lambda record: "failed to converge" not in str(record.msg))


def sampled_divergence(steps: Steps, orders: Array) -> Array:
    """Return the Rényi divergence of one sampled step for add-remove neighbours, at every order.

    At whole orders it is a finite binomial sum, which dp_accounting has; at fractional ones the
    integral is taken.

    steps: noise multiplier and sampling rate below 1; the number of steps plays no part.
    orders: float64 [orders], all above 1.
    Returns: float64 [orders], in nats; up to rounding it is exact, or an upper bound where the
    series is used.
    """
    return np.array(_sampled_divergence(steps.noise_multiplier, steps.sampling_rate, tuple(orders)))


@lru_cache(maxsize=256)
def _sampled_divergence(
    noise_multiplier: float, sampling_rate: float, wanted: tuple[float, ...]
) -> Array:
    """Return the same; whoever asks for delta at many epsilons asks for it as often."""
    steps, orders = Steps(noise_multiplier, 1, sampling_rate), np.array(wanted)
    fractional = (orders != np.round(orders)) & (orders <= LARGEST_ORDER)
    if steps.noise_multiplier < LEAST_NOISE:
        fractional[:] = False
    divergences = np.empty(orders.size)
    if fractional.any():
        divergences[fractional] = _integral(steps, orders[fractional])
    if not fractional.all():
        # Half a second, which a process pays that asks for it.
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent  # noqa: PLC0415
        from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415

        library = RdpAccountant(orders[~fractional])
        step = GaussianDpEvent(steps.noise_multiplier)
        library.compose(PoissonSampledDpEvent(steps.sampling_rate, step))
        divergences[~fractional] = library.rdp
    return divergences


def _integral(steps: Steps, orders: Array) -> Array:
    """Return log E_{z ~ N(0, s²)} [((1 - q) + q e^((2z - 1) / 2s²))^α] / (α - 1).

    Mironov, Talwar and Zhang, "Rényi differential privacy of the sampled Gaussian mechanism", 2019,
    section 3.3; of the two directions it is the larger (Theorem 5). The trapezoidal rule converges
    geometrically: the integrand is analytic but for the zeros of its base, πs² off the real line.
    """
    q, s = steps.sampling_rate, steps.noise_multiplier
    spacing = min(s / 8, s * s / 4)
    low, high = -WIDTH * s, orders.max() + WIDTH * s  # at order α its mass lies about 0 and about α
    z = np.arange(low, high + spacing, spacing)
    log_density = -(z**2) / (2 * s * s) - math.log(s * math.sqrt(2 * math.pi))
    log_base = np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * s * s))
    moments = logsumexp(log_density + orders[:, None] * log_base, axis=1) + math.log(spacing)
    return np.asarray(moments / (orders - 1), dtype=np.float64)
