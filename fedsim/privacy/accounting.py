"""Accountants: the epsilon of a mechanism at a delta, or its delta at an epsilon.

All answers are upper bounds: `gdp` is exact up to rounding, `pld` is a fraction of a percent above
the truth, and the others are looser.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import ClassVar

from adversaries.errors import InputError
from adversaries.registry import lookup
from adversaries.statistics import gaussian
from fedsim.common.by_use import ByUse
from fedsim.privacy.mechanism import Mechanism


def losses() -> ModuleType:
    """Return the module of sampled steps' distributions, imported only where there are some."""
    from fedsim.privacy import loss_distribution  # noqa: PLC0415

    return loss_distribution


class Accountant(ABC):
    """Bounds the privacy of a mechanism, if it `covers` the kind."""

    name: ClassVar[str]
    title: ClassVar[str]
    covers: ClassVar[str]
    searches: ClassVar[bool] = False  # whether delta is found by a root search of epsilon

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
        if losses().resolves(mechanism, delta):
            if losses().is_coarse(mechanism):
                return "so many steps need a coarse grid, which makes epsilon slightly larger"
            return rounded_note(mechanism, losses().MOST_KINDS, sampled=True)
        other, described = _fallback(mechanism, delta)
        small = "delta" if losses().resolves(mechanism, 1.0) else "the noise"
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
        if not losses().resolves(mechanism, 1.0):
            return None
        # Below the resolution of the arithmetic a probability means nothing: state the resolution
        # instead.
        probability = losses().composed(mechanism)[direction].tail(epsilon)
        return min(1.0, max(losses().resolution(mechanism), probability))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        if not mechanism.sampled:
            return gaussian.epsilon(mechanism.mu, delta)
        # Epsilon 0 suffices here, even where the distribution cannot resolve delta.
        if self._delta(mechanism, 0.0) <= delta:
            return 0.0
        if not losses().resolves(mechanism, delta):
            other, described = _fallback(mechanism, delta)
            return other.epsilon(described, delta)
        # The guarantee must hold in both directions.
        return max(losses.epsilon(delta) for losses in losses().composed(mechanism))

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        if not mechanism.sampled:
            return gaussian.delta(mechanism.mu, epsilon)
        # A record that takes part in no step leaks nothing, so no delta exceeds the probability
        # that it takes part.
        ceiling = mechanism.participation
        if losses().resolves(mechanism, 1.0):
            delta = max(losses.delta(epsilon) for losses in losses().composed(mechanism))
            if losses().resolves(mechanism, delta):
                return min(ceiling, delta)
            # The distribution only shows that delta is below its resolution; others may give less.
            ceiling = losses().resolution(mechanism)
        least = ceiling
        for each, described in _valid(mechanism):
            # A root search takes long: skip it unless it can lower the bound.
            rooted = each.searches and 0 < least < 1
            if not rooted or each.epsilon(described, least) <= epsilon:
                least = min(least, each.delta(described, epsilon))
        return least


def rounded_note(mechanism: Mechanism, most: int, sampled: bool) -> str | None:
    """Return a note that kinds of step were rounded; None where they were not.

    Args:
        mechanism: all steps together.
        most: number of kinds that are computed with.
        sampled: whether full batches need no rounding.
    """
    counted = [group.sampling_rate < 1 for group in mechanism.groups]
    kinds = sum(counted) if sampled else max(sum(counted), len(counted) - sum(counted))
    if kinds <= most:
        return None
    return (
        f"{kinds} kinds of step are rounded to at most {most}: noise down and sampling rates up, "
        "so that the bound holds and is slightly looser"
    )


PLD = PrivacyLossAccountant()
GAUSSIAN = GaussianAccountant()

ACCOUNTANTS: Mapping[str, Accountant] = ByUse(
    {
        "pld": "fedsim.privacy.accounting:PLD",
        "gdp": "fedsim.privacy.accounting:GAUSSIAN",
        "rdp": "fedsim.privacy.renyi:RENYI",
        "rdp-classic": "fedsim.privacy.renyi:CLASSIC_RENYI",
        "advanced": "fedsim.privacy.composition:ADVANCED",
        "basic": "fedsim.privacy.composition:BASIC",
    }
)
"""By their names in privacy.accountant."""


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
        *((ACCOUNTANTS[name], mechanism) for name in ("rdp", "advanced", "basic")),
    ]
    return [pair for pair in candidates if pair[0].supports(pair[1]) is None]
