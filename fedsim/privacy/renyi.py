"""The Rényi divergence of a Poisson-sampled Gaussian step.

At fractional orders near 1 the series of `dp_accounting` may be 50 % too large, or infinite; the
integral here is not.
"""

import logging
import math
from functools import lru_cache

import numpy as np
import scipy

from adversaries.arrays import Floats
from fedsim.privacy.mechanism import Steps

WIDTH = 14.0
"""Standard deviations of noise beyond which the integrand is negligible: e^-98."""

LEAST_NOISE = 0.05
"""Noise multiplier below which the grid would be too fine; the series bounds such steps."""

LARGEST_ORDER = 32.0
"""Largest fractional order for the integral; the series handles larger ones, which are not used."""


# dp_accounting warns about every order that its series leaves out. A missing order can only make
# the minimum over orders larger, so the bound still holds.
logging.getLogger("absl").addFilter(lambda record: "failed to converge" not in str(record.msg))


def sampled_divergence(steps: Steps, orders: Floats) -> Floats:
    """Return the Rényi divergence of one sampled step for add-remove neighbours.

    steps: a sampling rate below 1; the number of steps is ignored.
    orders: float64 [orders], all above 1.
    Returns: float64 [orders], in nats; exact up to rounding, or an upper bound from the series.
    """
    return np.array(_sampled_divergence(steps.noise_multiplier, steps.sampling_rate, tuple(orders)))


@lru_cache(maxsize=256)
def _sampled_divergence(
    noise_multiplier: float, sampling_rate: float, all_orders: tuple[float, ...]
) -> Floats:
    steps, orders = Steps(noise_multiplier, 1, sampling_rate), np.array(all_orders)
    # At whole orders the series of the library is a finite binomial sum, which is exact.
    fractional = (orders != np.round(orders)) & (orders <= LARGEST_ORDER)
    if steps.noise_multiplier < LEAST_NOISE:
        fractional[:] = False
    divergences = np.empty(orders.size)
    if fractional.any():
        divergences[fractional] = _integral(steps, orders[fractional])
    if not fractional.all():
        # The import takes half a second: only a process that needs it pays.
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent  # noqa: PLC0415
        from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415

        library = RdpAccountant(orders[~fractional])
        step = GaussianDpEvent(steps.noise_multiplier)
        library.compose(PoissonSampledDpEvent(steps.sampling_rate, step))
        divergences[~fractional] = library.rdp
    return divergences


def _integral(steps: Steps, orders: Floats) -> Floats:
    """Return log E_{z ~ N(0, s²)} [((1 - q) + q e^((2z - 1) / 2s²))^α] / (α - 1).

    This is the larger of the two directions (Mironov, Talwar and Zhang, "Rényi differential privacy
    of the sampled Gaussian mechanism", 2019, section 3.3 and Theorem 5). The trapezoidal rule
    converges geometrically: the zeros of the integrand's base are πs² off the real line.
    """
    q, s = steps.sampling_rate, steps.noise_multiplier
    # Fine against the noise (s) and against the change of the exponent (s^2).
    spacing = min(s / 8, s * s / 4)
    low, high = -WIDTH * s, orders.max() + WIDTH * s  # at order α the mass lies about 0 and α
    z = np.arange(low, high + spacing, spacing)
    log_density = -(z**2) / (2 * s * s) - math.log(s * math.sqrt(2 * math.pi))
    # The log of the likelihood ratio of a sampled step: a mixture of "record absent" and "record
    # present".
    log_base = np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * s * s))
    # In logs, because at high orders the integrand exceeds the largest float.
    log_terms = log_density + orders[:, None] * log_base
    moments = scipy.special.logsumexp(log_terms, axis=1) + math.log(spacing)
    return np.asarray(moments / (orders - 1), dtype=np.float64)
