"""Accountants: the epsilon of a mechanism at a delta, or its delta at an epsilon.

All answers are upper bounds: `gdp` is exact up to rounding, `pld` is a fraction of a percent above
the truth, and the others are looser.
"""

import logging
import math
import sys
from abc import ABC, abstractmethod
from functools import cached_property, lru_cache
from types import ModuleType
from typing import ClassVar

import numpy as np

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.registry import lookup
from adversaries.statistics import gaussian
from adversaries.statistics.roots import find_root
from fedsim.privacy.mechanism import Mechanism, Neighbouring

MOST_KINDS = 256
"""Kinds of step that the slower accountants compute with; a larger number is rounded to this."""


def _rdp() -> ModuleType:
    """Import dp_accounting's Rényi accountant (half a second) only where it is needed."""
    from dp_accounting.rdp import rdp_privacy_accountant  # noqa: PLC0415

    return rdp_privacy_accountant


def _losses() -> ModuleType:
    """Import the distributions of sampled steps only where there are some."""
    from fedsim.privacy import loss_distribution  # noqa: PLC0415

    return loss_distribution


class Accountant(ABC):
    """Bounds the privacy of a mechanism, if it `covers` the kind."""

    name: ClassVar[str]
    title: ClassVar[str]
    covers: ClassVar[str]

    def supports(self, mechanism: Mechanism) -> str | None:
        """Return None if this accountant covers the mechanism, else the reason why it does not."""
        return None

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        """Return what a reader must know about epsilon(mechanism, delta), or None.

        Args:
            mechanism: any mechanism that is supported.
            delta: of the epsilon, in (0, 1).
        """
        if mechanism.noiseless:
            return "no noise, no guarantee: epsilon is infinite"
        return None

    def epsilon(self, mechanism: Mechanism, delta: float) -> float:
        """Return an epsilon >= 0 for a delta, or inf.

        Args:
            mechanism: all steps together.
            delta: in (0, 1).

        Raises:
            InputError: the mechanism is unsupported, or delta is out of range.
        """
        self._check(mechanism)
        gaussian.check_positive_delta(delta)
        return math.inf if mechanism.noiseless else self._epsilon(mechanism, delta)

    def delta(self, mechanism: Mechanism, epsilon: float) -> float:
        """Return a delta in (0, 1] for an epsilon.

        Args:
            mechanism: all steps together.
            epsilon: finite, at least 0.

        Raises:
            InputError: the mechanism is unsupported, or epsilon is out of range.
        """
        self._check(mechanism)
        if not 0 <= epsilon < math.inf:
            raise InputError(f"epsilon is {epsilon}; give a finite number of at least 0")
        if mechanism.noiseless:
            # Where the record is in no sample, nothing depends on it.
            return mechanism.participation
        # No finite noise reaches delta = 0; this is the smallest normal float above it.
        return max(self._delta(mechanism, epsilon), sys.float_info.min)

    def _check(self, mechanism: Mechanism) -> None:
        if (reason := self.supports(mechanism)) is not None:
            raise InputError(f"the accountant {self.name} does not apply: {reason}")

    @abstractmethod
    def _epsilon(self, mechanism: Mechanism, delta: float) -> float: ...

    @abstractmethod
    def _delta(self, mechanism: Mechanism, epsilon: float) -> float: ...


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
    """Rényi DP with the conversion of Canonne, Kamath and Steinke, 2020, Proposition 12."""

    name = "rdp"
    title = "Rényi DP, or moments"
    covers = "full batches, add-remove and replace; Poisson samples, add-remove"

    @cached_property
    def orders(self) -> Floats:
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

    def converted(self, divergences: Floats, delta: float) -> float:
        """Return the epsilon at delta that follows from Rényi divergences.

        Args:
            divergences: float64 [orders], in nats.
            delta: in (0, 1).
        """
        return float(_rdp().compute_epsilon(self.orders, divergences, delta)[0])

    def curve(self, mechanism: Mechanism) -> Floats:
        """Return the Rényi divergence in nats at every one of `orders`, float64 [orders]."""
        full = tuple(group for group in mechanism.groups if group.sampling_rate == 1)
        # Full batches compose to one Gaussian, of divergence order mu^2 / 2.
        curve = self.orders * (Mechanism(full).mu ** 2 / 2 if full else 0.0)
        for group in mechanism.coarsened(MOST_KINDS).groups:
            if group.sampling_rate < 1:
                step = _sampled(group.noise_multiplier, group.sampling_rate, tuple(self.orders))
                curve = curve + group.count * step
        # Rounding may turn a tiny divergence into 0 or less, which would read as perfect privacy.
        return np.maximum(curve, 1e-14 * mechanism.steps)


@lru_cache(maxsize=256)
def _sampled(noise_multiplier: float, sampling_rate: float, orders: tuple[float, ...]) -> Floats:
    """Return the Rényi divergence of one Poisson-sampled step, for add-remove neighbours.

    At fractional orders it is the series of dp_accounting: an upper bound, infinite where the
    series does not converge. Such an order can only make the minimum over orders larger.
    """
    # The import takes half a second: only a process that needs it pays.
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent  # noqa: PLC0415
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415

    library = RdpAccountant(orders)
    library.compose(PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(noise_multiplier)))
    return np.array(library.rdp)


# dp_accounting warns about every order whose series does not converge.
logging.getLogger("absl").addFilter(lambda record: "failed to converge" not in str(record.msg))


class ClassicRenyiAccountant(RenyiAccountant):
    """Rényi DP with the conversion epsilon_RDP - ln(delta)/(alpha - 1) (Mironov, 2017, Prop. 3)."""

    name = "rdp-classic"
    title = "Rényi DP as in the paper"
    orders = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        return float(np.min(self.curve(mechanism) - math.log(delta) / (self.orders - 1)))

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        # The conversion holds at every order, so the best order counts.
        exponent = np.min((self.orders - 1) * (self.curve(mechanism) - epsilon))
        return math.exp(min(0.0, float(exponent)))


class PrivacyLossAccountant(Accountant):
    """The privacy loss distribution, discretised pessimistically and composed by FFT.

    Without sampling the closed form is used. With sampling, where some deltas are too small and
    some losses too large for the FFT, the answer is the least bound of the other accountants.
    """

    name = "pld"
    title = "loss distribution, tight"
    covers = "full batches and Poisson samples; add-remove and replace"

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        if mechanism.noiseless or not mechanism.sampled:
            return super().note(mechanism, delta)
        if _losses().resolves(mechanism, delta):
            if _losses().is_coarse(mechanism):
                return "so many steps need a coarse grid, which makes epsilon slightly larger"
            return _rounded_note(mechanism, _losses().MOST_KINDS, sampled=True)
        other, described = _fallback(mechanism, delta)
        small = "delta" if _losses().resolves(mechanism, 1.0) else "the noise"
        reason = f"{small} is too small for the distribution's arithmetic"
        instead = " as if nothing were sampled" if described != mechanism else ""
        more = other.note(described, delta)
        bounded = f"epsilon is bounded by {other.name} instead{instead}"
        return f"{reason}, so {bounded}{f'; {more}' if more else ''}"

    def tail(self, mechanism: Mechanism, epsilon: float) -> float | None:
        """Return Pr_D[privacy loss > epsilon] of the composed mechanism.

        Args:
            mechanism: the mechanism that one vantage point faces.
            epsilon: any finite number.

        Returns: an upper bound; None where the noise is too small to compute the distribution.
        """
        return self._tail(mechanism, 0, epsilon)

    def tail_prime(self, mechanism: Mechanism, epsilon: float) -> float | None:
        """Return Pr_D'[log p_D/p_D' > epsilon], the same tail when the data were D'.

        Args:
            mechanism: the mechanism that one vantage point faces.
            epsilon: any finite number.
        """
        # This is one minus the tail of log p_D'/p_D above -epsilon.
        above = self._tail(mechanism, -1, -epsilon)
        return None if above is None else 1 - above

    def _tail(self, mechanism: Mechanism, direction: int, epsilon: float) -> float | None:
        if not mechanism.sampled or mechanism.noiseless:
            return gaussian.tail(mechanism.mu, epsilon)
        if not _losses().resolves(mechanism, 1.0):
            return None
        # Below the resolution of the arithmetic a probability means nothing: state the resolution
        # instead.
        probability = _losses().composed(mechanism)[direction].tail(epsilon)
        return min(1.0, max(_losses().resolution(mechanism), probability))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        if not mechanism.sampled:
            return gaussian.epsilon(mechanism.mu, delta)
        # Epsilon 0 suffices here, even where the distribution cannot resolve delta.
        if self._delta(mechanism, 0.0) <= delta:
            return 0.0
        if not _losses().resolves(mechanism, delta):
            other, described = _fallback(mechanism, delta)
            return other.epsilon(described, delta)
        # The guarantee must hold in both directions.
        return max(losses.epsilon(delta) for losses in _losses().composed(mechanism))

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        if not mechanism.sampled:
            return gaussian.delta(mechanism.mu, epsilon)
        # A record that takes part in no step leaks nothing, so no delta exceeds the probability
        # that it takes part.
        ceiling = mechanism.participation
        if _losses().resolves(mechanism, 1.0):
            delta = max(losses.delta(epsilon) for losses in _losses().composed(mechanism))
            if _losses().resolves(mechanism, delta):
                return min(ceiling, delta)
            # The distribution only shows that delta is below its resolution; others may give less.
            ceiling = _losses().resolution(mechanism)
        least = ceiling
        for each, described in _valid(mechanism):
            # Composition finds its delta by a root search: skip that unless it can lower the bound.
            rooted = isinstance(each, BasicAccountant) and 0 < least < 1
            if not rooted or each.epsilon(described, least) <= epsilon:
                least = min(least, each.delta(described, epsilon))
        return least


class BasicAccountant(Accountant):
    """Basic composition: exact steps' epsilons and deltas add up (Dwork et al., 2006, Thm 1)."""

    name = "basic"
    title = "basic composition"
    covers = PrivacyLossAccountant.covers

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        return super().note(mechanism, delta) or _rounded_note(mechanism, MOST_KINDS, sampled=False)

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
    groups = mechanism.coarsened(MOST_KINDS).groups
    epsilons = [_losses().step_epsilon(each, mechanism.neighbouring, delta) for each in groups]
    return np.array(epsilons), np.array([float(group.count) for group in groups])


def _rounded_note(mechanism: Mechanism, most: int, sampled: bool) -> str | None:
    """Return a note that kinds of step were rounded; `sampled`: full batches need no rounding."""
    counted = [group.sampling_rate < 1 for group in mechanism.groups]
    kinds = sum(counted) if sampled else max(sum(counted), len(counted) - sum(counted))
    if kinds <= most:
        return None
    return (
        f"{kinds} kinds of step are rounded to at most {most}: noise down and sampling rates up, "
        "so that the bound holds and is slightly looser"
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
    """Return the accountant of this name, or a user's own "package.module:name".

    Raises InputError if the name is unknown, or the user did not allow this code.
    """
    return lookup(ACCOUNTANTS, name, "the accountant")


def _fallback(mechanism: Mechanism, delta: float) -> tuple[Accountant, Mechanism]:
    """Return the accountant, with its mechanism, that gives the least epsilon at delta."""
    return min(_valid(mechanism), key=lambda pair: pair[0].epsilon(pair[1], delta))


def _valid(mechanism: Mechanism) -> list[tuple[Accountant, Mechanism]]:
    """Return accountants other than `PLD`, each with a mechanism that it can bound."""
    candidates: list[tuple[Accountant, Mechanism]] = [
        (GAUSSIAN, mechanism.unsampled()),
        *((each, mechanism) for each in (RENYI, ADVANCED, BASIC)),
    ]
    return [pair for pair in candidates if pair[0].supports(pair[1]) is None]
