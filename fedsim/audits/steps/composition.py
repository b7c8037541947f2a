"""The composition of DP-SGD steps, over all engines and accountants of a training."""

import math
from collections import Counter
from collections.abc import Sequence

from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps


def epsilon(multipliers: Sequence[float], rates: Sequence[float], delta: float) -> float:
    """Return epsilon of Gaussian steps, each of a Poisson sample; infinite without noise."""
    return math.inf if 0.0 in multipliers else PLD.epsilon(mechanism(multipliers, rates), delta)


def mechanism(
    multipliers: Sequence[float],
    rates: Sequence[float],
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
) -> Mechanism:
    # Equal steps differ in the last digits, because they were computed differently.
    kinds = Counter(
        (float(f"{z:.9g}"), float(f"{q:.12g}")) for z, q in zip(multipliers, rates, strict=True)
    )
    steps = tuple(Steps(z, count, min(1.0, q)) for (z, q), count in kinds.items())
    return Mechanism(steps, neighbouring)
