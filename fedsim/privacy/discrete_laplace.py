"""Counts under discrete Laplace noise: an exact sampler, and a bound on the error.

P(k) is proportional to exp(-|k| epsilon / sensitivity) for every whole number k. The sampler uses
integers from the operating system's entropy only: floating-point noise can reveal what it hides.
"""

import math
import secrets
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from fedsim.privacy.mechanism import Neighbouring

Below = Callable[[int], int]
"""Draws a whole number uniformly, from 0 to below its argument."""

SENSITIVITY = {Neighbouring.ADD_REMOVE: 1, Neighbouring.REPLACE: 2}
"""Largest L1 distance between the counts of neighbours, where each record is in one cell."""

NEGLIGIBLE = 1e-15
"""Probability that is cut off at each end of a draw when draws are added up."""


def draw(scale: Fraction, below: Below = secrets.randbelow) -> int:
    """Return a draw with P(k) proportional to exp(-|k| / scale).

    Source: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020),
    Algorithm 2; scale is the sensitivity over epsilon.
    """
    top, bottom = scale.numerator, scale.denominator
    while True:
        # A uniform part that is kept with probability exp(-part/top), plus a geometric number of
        # wholes: part + top * whole is geometric with ratio exp(-1/top).
        part = below(top)
        if not _coin(part, top, below):
            continue
        whole = 0
        while _coin(1, 1, below):
            whole += 1
        # Dividing by the denominator, rounded down, leaves the ratio exp(-bottom/top).
        size = (part + top * whole) // bottom
        negative = below(2)
        # Zero has no sign: refuse one of its two signs, or it would be twice as likely.
        if size or not negative:
            return -size if negative else size


def _coin(numerator: int, denominator: int, below: Below) -> bool:
    """Return True with probability exp(-numerator/denominator), a ratio in [0, 1] (Algorithm 1)."""
    # P[count > n] = ratio^n/n!, so that an odd count has the series of exp(-ratio).
    count = 1
    while below(denominator * count) < numerator:
        count += 1
    return count % 2 == 1


def most(scale: float, terms: int, tail: float) -> int:
    """Return the least b that the sum of draws of a scale exceeds with probability <= tail."""
    if not terms:
        return 0
    # P(one draw > reach) = r^(reach + 1) / (1 + r), with r = exp(-1 / scale).
    reach = max(1, math.ceil(-math.log(NEGLIGIBLE) * scale))
    each = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    each /= each.sum()
    size = 2 * reach * terms + 1
    long = next_fast_len(size, real=True)
    # The law of the sum by Fourier transform, long enough that it does not wrap around.
    total = irfft(rfft(each, long) ** terms, long)[:size].clip(0)
    above = np.cumsum(total[::-1])[::-1] - total  # P(sum > place)
    return int(np.argmax(above <= tail * (1 - 1e-6))) - reach * terms
