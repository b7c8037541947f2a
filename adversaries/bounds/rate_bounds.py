"""What limits of a decision's error rates prove: about (epsilon, delta), mu, or a noise scale.

`lower_bounds.clopper_pearson_bound` and `clopper_pearson_split` count the decisions.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scipy.special import ndtri

from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import EpsilonBound

TRUE_LOW, FALSE_HIGH = "true_positive_rate_low", "false_positive_rate_high"
"""Details of a bound: a lower limit of TPR and an upper limit of FPR that hold together."""


@dataclass(frozen=True)
class NoiseFamily:
    """A mechanism at every scale of its noise.

    Attributes:
        scales: considered scales, ascending and fixed in advance; 1 is the claimed noise.
        miss_rate: (scale, false positive rate) -> a lower bound on the false negative rate that the
            mechanism allows; never falls as the scale grows, up to rounding.
        epsilon: (scale, delta) -> the guarantee of the mechanism.
    """

    scales: Sequence[float]
    miss_rate: Callable[[float, float], float]
    epsilon: Callable[[float, float], float]


def by_mu(bound: EpsilonBound) -> EpsilonBound:
    """Return what counted rates prove about a mechanism that composes to a Gaussian one.

    If TPR >= t and FPR <= f hold together, mu is at least Phi^-1(t) - Phi^-1(f). The bound holds at
    any scale of the noise, as of full batches.

    Args:
        bound: from counts, with the limits in its details; delta in (0, 1).

    Source: Nasr et al., "Tight auditing of differentially private machine learning", 2023,
    Section 4.
    """
    true, false = bound.details.get(TRUE_LOW, 0), bound.details.get(FALSE_HIGH, 1)
    mu = max(0.0, float(ndtri(true) - ndtri(false)))
    return replace(
        bound,
        epsilon=gaussian_epsilon(mu, bound.delta),
        method=f"mu of Gaussian privacy from {bound.method}",
        assumes=f"{bound.assumes}, a mechanism that composes to a Gaussian one",
        details=bound.details | {"mu_low": mu},
    )


def by_scale(bound: EpsilonBound, family: NoiseFamily) -> EpsilonBound:
    """Return what counted rates prove about a family of mechanisms: 0 if no scale is refuted.

    A noise scale is refuted if the largest FNR is less than the mechanism allows at the largest
    FPR, and all larger scales with it.

    Args:
        bound: from counts, with the limits in its details.
        family: the mechanism at every scale of its noise that is considered.
    """
    missed, false = 1 - bound.details.get(TRUE_LOW, 0), bound.details.get(FALSE_HIGH, 1)

    def refuted(scale: float) -> bool:
        return family.miss_rate(scale, false) > missed

    # A mechanism with more noise than the last scale counts as perfectly private.
    least = len(family.scales)
    # More noise forces more errors. So all scales above a refuted one are refuted too, and
    # bisection finds the first. Error rates of guessing, which add up to 1 or more, refute nothing.
    if not bound.reason and false + missed < 1:
        least = bisect.bisect_left(family.scales, True, key=refuted)
    scale = family.scales[least] if least < len(family.scales) else math.inf
    found = {"noise_scale_high": scale} if math.isfinite(scale) else {}
    return replace(
        bound,
        epsilon=family.epsilon(scale, bound.delta) if found else 0.0,
        method=f"the noise whose trade-off curve still allows the {bound.method}",
        assumes=f"{bound.assumes}, the claimed mechanism, up to one scale for all its noise",
        details=bound.details | found,
    )
