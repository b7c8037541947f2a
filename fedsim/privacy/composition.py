"""Accountants by the composition of exact steps, whose epsilons and deltas add up."""

import math
from typing import ClassVar

import numpy as np

from adversaries.arrays import Floats
from adversaries.statistics.roots import find_root
from fedsim.privacy.accounting import Accountant, PrivacyLossAccountant, losses, rounded_note
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.renyi import MOST_KINDS


class BasicAccountant(Accountant):
    """Basic composition: exact steps' epsilons and deltas add up (Dwork et al., 2006, Thm 1)."""

    name = "basic"
    title = "basic composition"
    covers = PrivacyLossAccountant.covers
    searches = True

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        return super().note(mechanism, delta) or rounded_note(mechanism, MOST_KINDS, sampled=False)

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        # Every step gets an equal part of delta.
        epsilons, counts = _step_epsilons(mechanism, delta / mechanism.steps)
        return float(counts @ epsilons)

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        """Return the delta at which `_epsilon` is epsilon, at least 1e-290."""

        def excess(log_delta: float) -> float:
            return self._epsilon(mechanism, math.exp(log_delta)) - epsilon

        # Epsilon falls as delta grows; the search is over its logarithm, to resolve tiny deltas.
        lowest, highest = math.log(1e-290), math.log1p(-1e-12)
        if excess(highest) > 0:
            return 1.0
        if excess(lowest) <= 0:
            return math.exp(lowest)
        return math.exp(find_root(excess, lowest, highest, xtol=1e-13, rtol=1e-14))


class AdvancedAccountant(BasicAccountant):
    """Advanced composition: sqrt(2 ln(1/d') sum e^2) + sum e (exp(e) - 1) at sum d + d'.

    Dwork, Rothblum and Vadhan, 2010, Theorem III.3, with epsilon outside of the root.
    """

    name = "advanced"
    title = "advanced composition"
    shares: ClassVar[Floats] = 1 / (1 + np.exp(-np.linspace(-7, 7, 15)))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        best = math.inf
        for share in self.shares:
            # A share of delta is for the deviation of the sum, the rest is for the steps. The best
            # share is not known in advance, so several are tried: each gives a valid bound.
            each = (1 - share) * delta / mechanism.steps
            epsilons, counts = _step_epsilons(mechanism, each)
            with np.errstate(over="ignore"):  # an overflow to inf is the right value
                drift = counts @ (epsilons * np.expm1(epsilons))
            spread = math.sqrt(-2 * math.log(share * delta) * (counts @ epsilons**2))
            best = min(best, float(spread + drift))
        return best


def _step_epsilons(mechanism: Mechanism, delta: float) -> tuple[Floats, Floats]:
    """Return the epsilon of one step of each kind at delta, and how many steps there are."""
    groups = losses().coarsened(mechanism, MOST_KINDS).groups
    epsilons = [losses().step_epsilon(each, mechanism.neighbouring, delta) for each in groups]
    return np.array(epsilons), np.array([float(group.count) for group in groups])


ADVANCED = AdvancedAccountant()
BASIC = BasicAccountant()
