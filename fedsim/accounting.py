"""Accountants: how private a mechanism is, as epsilon at a delta or delta at an epsilon.

Every accountant answers the same two questions about the same `Mechanism`. They differ in how tight
they are: `pld` and `gdp` are exact up to rounding, `rdp` and `rdp-classic` are upper bounds. A new
accountant is a subclass of `Accountant` and one entry in `ACCOUNTANTS`.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import (
    DEFAULT_RDP_ORDERS,
    compute_delta,
    compute_epsilon,
)
from scipy.special import log_ndtr, ndtr

from fedsim import gaussian
from fedsim.errors import InputError
from fedsim.mechanism import Mechanism, Neighbouring
from fedsim.registry import lookup

Array = npt.NDArray[np.float64]
Deltas = Callable[[Mechanism, Array], Array]

# dp_accounting warns for every Renyi order that it leaves out. A missing order cannot make the
# minimum over orders wrong, only larger.
logging.getLogger("absl").addFilter(lambda record: "failed to converge" not in str(record.msg))


class Accountant(ABC):
    """Bounds the privacy of a mechanism. `name` is what a user types, `title` what a user reads."""

    name: ClassVar[str]
    title: ClassVar[str]

    def supports(self, mechanism: Mechanism) -> str | None:
        """Return None if this accountant covers the mechanism, else the reason why it does not."""
        return None

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        """Return what a reader must know about epsilon(mechanism, delta), None if nothing."""
        if mechanism.noise_multiplier == 0:
            return "no noise, no guarantee: epsilon is infinite"
        return None

    def epsilon(self, mechanism: Mechanism, delta: float) -> float:
        """Return an epsilon >= 0 at which the mechanism is (epsilon, delta)-private, or inf.

        Raises InputError unless 0 < delta < 1 and the mechanism is supported.
        """
        self._check(mechanism)
        if not 0 < delta < 1:
            raise InputError(f"delta is {delta}; give a probability above 0 and below 1")
        return math.inf if mechanism.noise_multiplier == 0 else self._epsilon(mechanism, delta)

    def delta(self, mechanism: Mechanism, epsilon: float) -> float:
        """Return a delta <= 1 at which the mechanism is (epsilon, delta)-private.

        Raises InputError unless epsilon >= 0 and the mechanism is supported.
        """
        self._check(mechanism)
        if not 0 <= epsilon < math.inf:
            raise InputError(f"epsilon is {epsilon}; give a finite number of at least 0")
        return 1.0 if mechanism.noise_multiplier == 0 else self._delta(mechanism, epsilon)

    def _check(self, mechanism: Mechanism) -> None:
        reason = self.supports(mechanism)
        if reason is not None:
            raise InputError(f"the accountant {self.name} does not apply: {reason}")

    @abstractmethod
    def _epsilon(self, mechanism: Mechanism, delta: float) -> float: ...

    @abstractmethod
    def _delta(self, mechanism: Mechanism, epsilon: float) -> float: ...


class GaussianAccountant(Accountant):
    """The closed form of Gaussian differential privacy (Dong, Roth and Su, 2019)."""

    name = "gdp"
    title = "Gaussian DP, closed form"

    def supports(self, mechanism: Mechanism) -> str | None:
        if mechanism.sampling_rate < 1:
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
    orders: ClassVar[Array] = np.array(DEFAULT_RDP_ORDERS)

    def supports(self, mechanism: Mechanism) -> str | None:
        if mechanism.sampling_rate < 1 and mechanism.neighbouring is Neighbouring.REPLACE:
            return (
                "the Rényi divergence of Poisson-sampled steps is known for add-remove "
                "neighbours only; use pld"
            )
        return None

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        return float(compute_epsilon(self.orders, self._curve(mechanism), delta)[0])

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        return float(compute_delta(self.orders, self._curve(mechanism), epsilon)[0])

    def _curve(self, mechanism: Mechanism) -> Array:
        step = GaussianDpEvent(mechanism.noise_multiplier)
        if mechanism.sampling_rate < 1:
            step = PoissonSampledDpEvent(mechanism.sampling_rate, step)
        curve = RdpAccountant(self.orders).compose(step, mechanism.steps).rdp
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
        return float(np.min(self._curve(mechanism) - math.log(delta) / (self.orders - 1)))

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        exponent = np.min((self.orders - 1) * (self._curve(mechanism) - epsilon))
        return math.exp(min(0.0, float(exponent)))


class PrivacyLossAccountant(Accountant):
    """The privacy loss distribution itself: discretised pessimistically, composed by FFT.

    Where nothing is subsampled the distribution is Gaussian and the closed form is used. Elsewhere
    there are deltas too small and losses too large for its arithmetic. There the moments bound
    answers, or the closed form without sampling where there is none: both hold but are looser, and
    `note` says so.
    """

    name = "pld"
    title = "loss distribution, tight"

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        if mechanism.noise_multiplier == 0 or _resolves(mechanism, delta):
            return super().note(mechanism, delta)
        instead, described = _fallback(mechanism)
        return (
            f"{'delta' if _resolves(mechanism, 1.0) else 'the noise'} is too small for the "
            f"distribution's arithmetic: bounded by {instead.name} instead"
            f"{' as if nothing were sampled' if described != mechanism else ''}"
        )

    def tail(self, mechanism: Mechanism, epsilon: float) -> float | None:
        """Return Pr_D[privacy loss > epsilon] of the composed mechanism, for finite epsilon >= 0.

        From Pr[loss > epsilon] = delta(epsilon) - d delta/d epsilon, with the derivative taken over
        one interval of the discretisation either way. Under the resolution of the distribution, the
        resolution instead: an upper bound. None where the noise is too small for any answer.
        """
        if mechanism.sampling_rate == 1 or mechanism.noise_multiplier == 0:
            return gaussian.tail(mechanism.mu, epsilon)
        if not _resolves(mechanism, 1.0):
            return None
        losses, width = _composed_losses(mechanism)[0], _interval(mechanism)
        before, here, after = (
            losses.get_delta_for_epsilon(epsilon + shift) for shift in (-width, 0.0, width)
        )
        probability = float(here - (after - before) / (2 * width))
        return min(1.0, max(_resolution(mechanism), probability))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        if mechanism.sampling_rate == 1:
            return gaussian.epsilon(mechanism.mu, delta)
        if self._delta(mechanism, 0.0) <= delta:
            return 0.0
        if not _resolves(mechanism, delta):
            instead, described = _fallback(mechanism)
            return instead.epsilon(described, delta)
        return max(
            float(losses.get_epsilon_for_delta(delta)) for losses in _composed_losses(mechanism)
        )

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        if mechanism.sampling_rate == 1:
            return gaussian.delta(mechanism.mu, epsilon)
        ceiling = mechanism.participation
        if _resolves(mechanism, 1.0):
            delta = max(
                float(losses.get_delta_for_epsilon(epsilon))
                for losses in _composed_losses(mechanism)
            )
            if _resolves(mechanism, delta):
                return min(ceiling, delta)
            ceiling = _resolution(mechanism)
        instead, described = _fallback(mechanism)
        return min(ceiling, instead.delta(described, epsilon))


PLD = PrivacyLossAccountant()
RENYI = RenyiAccountant()
GAUSSIAN = GaussianAccountant()

ACCOUNTANTS: dict[str, Accountant] = {
    each.name: each for each in (PLD, RENYI, ClassicRenyiAccountant(), GAUSSIAN)
}


def accountant(name: str) -> Accountant:
    """Return the accountant of this name. Raises InputError that offers the nearest valid name."""
    return lookup(ACCOUNTANTS, name, "the accountant")


def _resolves(mechanism: Mechanism, delta: float) -> bool:
    """Return whether a loss distribution can answer: nothing overflows, delta is above rounding."""
    return mechanism.sampling_rate == 1 or (
        delta >= _resolution(mechanism) and _largest_loss(mechanism) < 700
    )


def _resolution(mechanism: Mechanism) -> float:
    """Return the delta below which the rounding errors of the composition by FFT show."""
    return max(1e-12, 1e-15 * mechanism.steps)


def _fallback(mechanism: Mechanism) -> tuple[Accountant, Mechanism]:
    """Return an accountant, and the mechanism to give it, whose bound holds at any delta."""
    if RENYI.supports(mechanism) is None:
        return RENYI, mechanism
    return GAUSSIAN, replace(mechanism, sampling_rate=1.0)  # sampling only ever helps


@lru_cache(maxsize=8)
def _composed_losses(mechanism: Mechanism) -> tuple[DensePLDPmf, ...]:
    """Return the loss distributions of all steps: D against D', then D' against D.

    Only the first where the two are the same (replace).
    """
    width, steps = _interval(mechanism), mechanism.steps
    if mechanism.neighbouring is Neighbouring.REPLACE:
        masses = _masses(_replace_deltas, mechanism, width)
        return (_losses(masses, masses, width).self_compose(steps),)
    removed = _masses(_remove_deltas, mechanism, width)
    added = _masses(_add_deltas, mechanism, width)
    return (
        _losses(removed, added, width).self_compose(steps),
        _losses(added, removed, width).self_compose(steps),
    )


def _interval(mechanism: Mechanism) -> float:
    """Return the width of the discretisation: fine against one step's loss, bounded in memory."""
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    deviation = min(1 / z, q * math.sqrt(math.expm1(min(50.0, z**-2))))
    return max(
        1e-7,
        min(1e-4, deviation / 50),
        _largest_loss(mechanism) / 2**18,
        16 * deviation * math.sqrt(mechanism.steps) / 2**20,
    )


def _largest_loss(mechanism: Mechanism) -> float:
    """Return the loss of one step where the noise is ten standard deviations out."""
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    if mechanism.neighbouring is Neighbouring.REPLACE:
        s = 2 * z
        x = 1 + 10 * s
        return _sampled_loss((x - 0.5) / s**2, q) - _sampled_loss((-x - 0.5) / s**2, q)
    return _sampled_loss(10 / z + 0.5 / z**2, q)


def _sampled_loss(loss: float, q: float) -> float:
    """Return the loss log(1 - q + q e^loss) of a step that the record joins with probability q."""
    return float(np.logaddexp(math.log1p(-q), math.log(q) + loss))


def _masses(deltas: Deltas, mechanism: Mechanism, width: float) -> tuple[Array, float]:
    """Return the mass of one step's loss at 1, 2, ... widths, and its mass at infinity.

    The masses whose delta touches the true one at every grid point and exceeds it between: "connect
    the dots", Algorithm 1.
    """
    size = math.ceil(_largest_loss(mechanism) / width)
    delta = deltas(mechanism, width * np.arange(size + 1.0))
    falls = -np.diff(delta)
    masses = (math.exp(width) * falls - np.append(falls[1:], 0.0)) / math.expm1(width)
    return _trim(masses), float(delta[-1])


def _trim(masses: Array) -> Array:
    """Drop what is rounding error or too small to matter, which would only lengthen the FFT."""
    return np.trim_zeros(np.where(masses < 1e-30, 0.0, masses), "b")


def _losses(there: tuple[Array, float], back: tuple[Array, float], width: float) -> DensePLDPmf:
    """Return one step's loss distribution from the masses above zero of both directions.

    The mass at a loss -l is e^-l times the other direction's at l. To derive it from delta instead
    would take a difference of numbers near 1, whose rounding error many steps amplify.
    """
    (above, infinite), (other, _) = there, back
    below = _trim(other * np.exp(-width * np.arange(1, len(other) + 1)))
    zero = max(0.0, 1 - infinite - above.sum() - below.sum())
    masses = np.concatenate([below[::-1], [zero], above])
    return DensePLDPmf(width, -len(below), masses, infinite, pessimistic_estimate=True)


def _remove_deltas(mechanism: Mechanism, epsilons: Array) -> Array:
    """Return delta of one step with the record against one without, at epsilons >= 0.

    (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2), where delta_q(log(1 - q + q e^t)) = q delta(t):
    Balle, Barthe and Gaboardi, "Privacy profiles and amplification by subsampling", 2020, Thm 9.
    """
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    near = np.log1p(np.expm1(np.minimum(epsilons, 1.0)) / q)
    far = epsilons - math.log(q) + np.log1p((q - 1) * np.exp(-epsilons))
    return q * gaussian.deltas(1 / z, np.where(epsilons < 1, near, far))


def _add_deltas(mechanism: Mechanism, epsilons: Array) -> Array:
    """Return delta of one step without the record against one with it, at epsilons >= 0.

    The same pair the other way round: zero from -log(1-q), the largest loss, on.
    """
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    growth = np.expm1(-epsilons) / q
    possible = growth > -1
    unsampled = np.log1p(np.where(possible, growth, 0.0))
    sampled = q * np.exp(epsilons + unsampled) * gaussian.deltas(1 / z, -unsampled)
    return np.where(possible, sampled, 0.0)


def _replace_deltas(mechanism: Mechanism, epsilons: Array) -> Array:
    """Return delta of one step with the record against one with its replacement, epsilons >= 0.

    In the worst case the two clipped gradients are opposite, 2C = 2 apart: (1-q) N(0, s^2) +
    q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2), with s = 2z. The loss passes epsilon at
    s^2 (arsinh(sinh(epsilon/2) e^{1/(2 s^2)} (1-q)/q) + epsilon/2), worked out in log space.
    """
    s, q = 2 * mechanism.noise_multiplier, mechanism.sampling_rate
    half = epsilons / 2
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-epsilons) / 2)
    log_ratio = log_sinh + 0.5 / s**2 + math.log1p(-q) - math.log(q)
    arsinh = np.logaddexp(log_ratio, np.logaddexp(2 * log_ratio, 0.0) / 2)
    boundary = s**2 * (arsinh + half)
    met = ndtr((1 - boundary) / s) - np.exp(epsilons + log_ndtr((-1 - boundary) / s))
    missed = np.expm1(-epsilons) * np.exp(epsilons + log_ndtr(-boundary / s))
    return np.maximum(q * met + (1 - q) * missed, 0.0)
