"""Accountants: how private a mechanism is, as epsilon at a delta or delta at an epsilon.

Every accountant answers the same two questions about the same `Mechanism`, whose steps may differ
from each other. All are upper bounds: `gdp` is exact up to rounding, `pld` a fraction of a percent
above the truth, the others looser. A new accountant is a subclass of `Accountant` and one entry in
`ACCOUNTANTS`.
"""

import math
from functools import cached_property
from types import ModuleType
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from adversaries.registry import lookup
from adversaries.statistics import gaussian
from fedsim.privacy import loss_distribution, renyi
from fedsim.privacy.accountant import Accountant
from fedsim.privacy.mechanism import Mechanism, Neighbouring

Array = npt.NDArray[np.float64]

MOST_KINDS = 256
"""Kinds of step that the slower accountants take as they are; more are rounded to fewer."""


def _rdp() -> ModuleType:
    """Return dp_accounting's Rényi accountant, which takes half a second to import.

    Flower starts a client's process for each message, and few of them ask for an epsilon.
    """
    from dp_accounting.rdp import rdp_privacy_accountant  # noqa: PLC0415

    return rdp_privacy_accountant


class GaussianAccountant(Accountant):
    """The closed form of Gaussian differential privacy (Dong, Roth and Su, 2019)."""

    name = "gdp"
    title = "Gaussian DP, closed form"
    covers = "full batches; add-remove and replace"

    def supports(self, mechanism: Mechanism) -> str | None:
        if mechanism.sampled:
            return "there is no closed form for a sampling rate below 1; use pld"
        return None

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        return gaussian.epsilon(mechanism.mu, delta)

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        return gaussian.delta(mechanism.mu, epsilon)


class RenyiAccountant(Accountant):
    """Renyi DP with the conversion of Canonne, Kamath and Steinke, 2020, Proposition 12."""

    name = "rdp"
    title = "Rényi DP, or moments"
    covers = "full batches, add-remove and replace; Poisson samples, add-remove"

    @cached_property
    def orders(self) -> Array:
        """The orders at which divergences are computed."""
        return np.array(_rdp().DEFAULT_RDP_ORDERS)

    def supports(self, mechanism: Mechanism) -> str | None:
        if mechanism.sampled and mechanism.neighbouring is Neighbouring.REPLACE:
            return (
                "the Rényi divergence of Poisson-sampled steps is known for add-remove "
                "neighbours only; use pld"
            )
        return None

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        return self.converted(self.curve(mechanism), delta)

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        return float(_rdp().compute_delta(self.orders, self.curve(mechanism), epsilon)[0])

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        return super().note(mechanism, delta) or _rounded_note(mechanism, MOST_KINDS, sampled=True)

    def converted(self, divergences: Array, delta: float) -> float:
        """Return the epsilon at delta of what has these divergences.

        Args:
            divergences: float64 [orders], in nats.
            delta: in (0, 1).
        """
        return float(_rdp().compute_epsilon(self.orders, divergences, delta)[0])

    def curve(self, mechanism: Mechanism) -> Array:
        """Return the Rényi divergence in nats at every one of `orders`, float64 [orders]."""
        full = tuple(group for group in mechanism.groups if group.sampling_rate == 1)
        # Together one Gaussian, of divergence order mu^2 / 2.
        curve = self.orders * (Mechanism(full).mu ** 2 / 2 if full else 0.0)
        for group in mechanism.coarsened(MOST_KINDS).groups:
            if group.sampling_rate < 1:
                curve = curve + group.count * renyi.sampled_divergence(group, self.orders)
        # Below its rounding error a divergence may come out as 0 or less, which would read as
        # perfect privacy.
        return np.maximum(curve, 1e-14 * mechanism.steps)


class ClassicRenyiAccountant(RenyiAccountant):
    """Renyi DP with the conversion epsilon_RDP - ln(delta)/(alpha - 1) (Mironov, 2017, Prop. 3).

    The conversion and the orders behind the numbers of Bernau et al. (TensorFlow Privacy 0.5.1).
    """

    name = "rdp-classic"
    title = "Rényi DP as in the paper"
    orders = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        return float(np.min(self.curve(mechanism) - math.log(delta) / (self.orders - 1)))

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        exponent = np.min((self.orders - 1) * (self.curve(mechanism) - epsilon))
        return math.exp(min(0.0, float(exponent)))


class PrivacyLossAccountant(Accountant):
    """The privacy loss distribution itself: discretised pessimistically, composed by FFT.

    Where nothing is subsampled the distribution is Gaussian and the closed form is used. Elsewhere
    there are deltas too small and losses too large for its arithmetic. There the least bound of
    the other accountants answers, that of the closed form without sampling among them: they hold
    but are looser, and `note` says so.
    """

    name = "pld"
    title = "loss distribution, tight"
    covers = "full batches and Poisson samples; add-remove and replace"

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        if mechanism.noiseless or not mechanism.sampled:
            return super().note(mechanism, delta)
        if loss_distribution.resolves(mechanism, delta):
            if loss_distribution.is_coarse(mechanism):
                return "so many steps need a coarse grid, which makes epsilon slightly larger"
            return _rounded_note(mechanism, loss_distribution.MOST_KINDS, sampled=True)
        instead, described = _fallback(mechanism, delta)
        more = instead.note(described, delta)
        return (
            f"{'delta' if loss_distribution.resolves(mechanism, 1.0) else 'the noise'} is too "
            f"small for the distribution's arithmetic: bounded by {instead.name} instead"
            f"{' as if nothing were sampled' if described != mechanism else ''}"
            f"{f'; {more}' if more else ''}"
        )

    def tail(self, mechanism: Mechanism, epsilon: float) -> float | None:
        """Return Pr_D[privacy loss > epsilon] of the composed mechanism.

        Args:
            mechanism: as one vantage point faces it.
            epsilon: any finite number.

        Returns:
            The probability; under the resolution of the distribution, the resolution instead: an
            upper bound. None where the noise is too small for any answer.
        """
        return self._tail(mechanism, 0, epsilon)

    def tail_prime(self, mechanism: Mechanism, epsilon: float) -> float | None:
        """Return Pr_D'[log p_D/p_D' > epsilon]: as `tail`, but when the data were D'.

        Args:
            mechanism: as one vantage point faces it.
            epsilon: any finite number.
        """
        # Of the loss log p_D'/p_D, it is the part below -epsilon.
        above = self._tail(mechanism, -1, -epsilon)
        return None if above is None else 1 - above

    def _tail(self, mechanism: Mechanism, direction: int, epsilon: float) -> float | None:
        if not mechanism.sampled or mechanism.noiseless:
            return gaussian.tail(mechanism.mu, epsilon)
        if not loss_distribution.resolves(mechanism, 1.0):
            return None
        probability = loss_distribution.composed(mechanism)[direction].tail(epsilon)
        return min(1.0, max(loss_distribution.resolution(mechanism), probability))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        if not mechanism.sampled:
            return gaussian.epsilon(mechanism.mu, delta)
        if self._delta(mechanism, 0.0) <= delta:
            return 0.0
        if not loss_distribution.resolves(mechanism, delta):
            instead, described = _fallback(mechanism, delta)
            return instead.epsilon(described, delta)
        return max(losses.epsilon(delta) for losses in loss_distribution.composed(mechanism))

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        if not mechanism.sampled:
            return gaussian.delta(mechanism.mu, epsilon)
        ceiling = mechanism.participation
        if loss_distribution.resolves(mechanism, 1.0):
            delta = max(losses.delta(epsilon) for losses in loss_distribution.composed(mechanism))
            if loss_distribution.resolves(mechanism, delta):
                return min(ceiling, delta)
            ceiling = loss_distribution.resolution(mechanism)
        least = ceiling
        for each, described in _valid(mechanism):
            # Composition's delta is a root of its epsilon, searched for only where it is less.
            rooted = isinstance(each, BasicAccountant) and 0 < least < 1
            if not rooted or each.epsilon(described, least) <= epsilon:
                least = min(least, each.delta(described, epsilon))
        return least


class BasicAccountant(Accountant):
    """Basic composition: the epsilons add up, and so do the deltas (Dwork et al., 2006, Thm 1).

    Every step is accounted exactly, Poisson sampling included, at an equal share of delta.
    """

    name = "basic"
    title = "basic composition"
    covers = PrivacyLossAccountant.covers

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        return super().note(mechanism, delta) or _rounded_note(mechanism, MOST_KINDS, sampled=False)

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        epsilons, counts = _step_epsilons(mechanism, delta / mechanism.steps)
        return float(counts @ epsilons)

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        """Return the root of `_epsilon` in delta, never below the smallest that it can be."""

        def excess(log_delta: float) -> float:
            return self._epsilon(mechanism, math.exp(log_delta)) - epsilon

        lowest, highest = math.log(1e-290), math.log1p(-1e-12)
        if excess(highest) > 0:
            return 1.0
        if excess(lowest) <= 0:
            return math.exp(lowest)
        return math.exp(scipy.optimize.brentq(excess, lowest, highest, xtol=1e-13, rtol=1e-14))


class AdvancedAccountant(BasicAccountant):
    """Advanced composition: sqrt(2 ln(1/d') sum e^2) + sum e (exp(e) - 1) at sum d + d'.

    Dwork, Rothblum and Vadhan, "Boosting and differential privacy", 2010, Theorem III.3; epsilon
    belongs outside of the root. The share of delta that pays for d' is the best of a grid.
    """

    name = "advanced"
    title = "advanced composition"
    shares: ClassVar[Array] = 1 / (1 + np.exp(-np.linspace(-7, 7, 15)))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        best = math.inf
        for share in self.shares:
            each = (1 - share) * delta / mechanism.steps
            epsilons, counts = _step_epsilons(mechanism, each)
            with np.errstate(over="ignore"):  # inf is what the formula then says
                drift = counts @ (epsilons * np.expm1(epsilons))
            spread = math.sqrt(-2 * math.log(share * delta) * (counts @ epsilons**2))
            best = min(best, float(spread + drift))
        return best


def _step_epsilons(mechanism: Mechanism, delta: float) -> tuple[Array, Array]:
    """Return the epsilon of one step of each kind at delta, and how many steps there are."""
    groups = mechanism.coarsened(MOST_KINDS).groups
    epsilons = [
        loss_distribution.step_epsilon(group, mechanism.neighbouring, delta) for group in groups
    ]
    return np.array(epsilons), np.array([float(group.count) for group in groups])


def _rounded_note(mechanism: Mechanism, most: int, sampled: bool) -> str | None:
    """Say that kinds of step were rounded; of sampled ones alone where full batches are exact."""
    counted = [group.sampling_rate < 1 for group in mechanism.groups]
    kinds = sum(counted) if sampled else max(sum(counted), len(counted) - sum(counted))
    if kinds <= most:
        return None
    return (
        f"{kinds} kinds of step, rounded to at most {most}: noise down and sampling rates up, so "
        "that the bound holds and is slightly looser"
    )


PLD = PrivacyLossAccountant()
RENYI = RenyiAccountant()
CLASSIC_RENYI = ClassicRenyiAccountant()
GAUSSIAN = GaussianAccountant()

ADVANCED = AdvancedAccountant()
BASIC = BasicAccountant()

ACCOUNTANTS: dict[str, Accountant] = {
    each.name: each for each in (PLD, GAUSSIAN, RENYI, CLASSIC_RENYI, ADVANCED, BASIC)
}


def accountant(name: str) -> Accountant:
    """Return the accountant of this name.

    Raises InputError for an unknown name, with the nearest valid one; code that was not allowed.

    Args:
        name: one of `ACCOUNTANTS`, or a user's own "package.module:name".
    """
    return lookup(ACCOUNTANTS, name, "the accountant")


def _fallback(mechanism: Mechanism, delta: float) -> tuple[Accountant, Mechanism]:
    """Return the accountant, and the mechanism to give it, of the least epsilon at delta.

    Every one holds at any delta; forgoing the sampling does, too.
    """
    return min(_valid(mechanism), key=lambda pair: pair[0].epsilon(pair[1], delta))


def _valid(mechanism: Mechanism) -> list[tuple[Accountant, Mechanism]]:
    """Return the accountants beside the distribution's, and what to give them, that hold."""
    candidates: list[tuple[Accountant, Mechanism]] = [
        (GAUSSIAN, mechanism.unsampled()),
        *((each, mechanism) for each in (RENYI, ADVANCED, BASIC)),
    ]
    return [pair for pair in candidates if pair[0].supports(pair[1]) is None]
