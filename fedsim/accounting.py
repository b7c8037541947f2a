"""Accountants: how private a mechanism is, as epsilon at a delta or delta at an epsilon.

Every accountant answers the same two questions about the same `Mechanism`. They differ in how tight
they are: `pld` and `gdp` are exact up to rounding, `rdp` and `rdp-classic` are upper bounds. A new
accountant is a subclass of `Accountant` and one entry in `ACCOUNTANTS`.
"""

import difflib
import logging
import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.pld_pmf import PLDPmf, create_pmf_pessimistic_connect_dots_fixed_gap
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

Array = npt.NDArray[np.float64]

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
    title = "Gaussian DP (exact closed form)"

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
    title = "Rényi DP / moments"
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
    title = "Rényi DP, classic conversion (the paper's)"
    orders = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        return float(np.min(self._curve(mechanism) - math.log(delta) / (self.orders - 1)))

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        exponent = np.min((self.orders - 1) * (self._curve(mechanism) - epsilon))
        return math.exp(min(0.0, float(exponent)))


class PrivacyLossAccountant(Accountant):
    """The privacy loss distribution itself, discretised pessimistically and composed by FFT.

    Discretisation and composition are dp_accounting's ("connect the dots", Doroshenko et al.,
    2022). Where nothing is subsampled the distribution is Gaussian and the closed form is used.
    """

    name = "pld"
    title = "Privacy loss distribution (tight)"

    # The FFT's rounding error and dp_accounting's truncation stay well below this delta.
    resolution: ClassVar[float] = 1e-12

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        if mechanism.sampling_rate == 1 or delta >= self.resolution:
            return super().note(mechanism, delta)
        fallback = (
            "the moments bound (rdp)"
            if RENYI.supports(mechanism) is None
            else "the bound without sampling"
        )
        return f"delta is below {self.resolution:g}, the distribution's resolution: {fallback}"

    def tail(self, mechanism: Mechanism, epsilon: float) -> float:
        """Return Pr_D[privacy loss > epsilon] of the composed mechanism, for finite epsilon >= 0.

        From the identity Pr[loss > epsilon] = delta(epsilon) - delta'(epsilon), with the derivative
        taken over one interval of the discretisation.
        """
        if mechanism.sampling_rate == 1 or mechanism.noise_multiplier == 0:
            return gaussian.tail(mechanism.mu, epsilon)
        losses, width = _composed_losses(mechanism)[0], _interval(mechanism)
        before, here, after = (
            losses.get_delta_for_epsilon(epsilon + shift) for shift in (-width, 0.0, width)
        )
        return min(1.0, max(0.0, float(here - (after - before) / (2 * width))))

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        if mechanism.sampling_rate == 1:
            return gaussian.epsilon(mechanism.mu, delta)
        if delta < self.resolution:
            if RENYI.supports(mechanism) is None:
                return RENYI.epsilon(mechanism, delta)
            return gaussian.epsilon(mechanism.mu, delta)
        if self._delta(mechanism, 0.0) <= delta:
            return 0.0
        return max(
            float(losses.get_epsilon_for_delta(delta)) for losses in _composed_losses(mechanism)
        )

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        if mechanism.sampling_rate == 1:
            return gaussian.delta(mechanism.mu, epsilon)
        delta = max(
            float(losses.get_delta_for_epsilon(epsilon)) for losses in _composed_losses(mechanism)
        )
        if delta >= self.resolution:
            return min(1.0, delta)
        if RENYI.supports(mechanism) is None:
            return min(self.resolution, RENYI.delta(mechanism, epsilon))
        return min(self.resolution, gaussian.delta(mechanism.mu, epsilon))


PLD = PrivacyLossAccountant()
RENYI = RenyiAccountant()

ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant
    for accountant in (PLD, RENYI, ClassicRenyiAccountant(), GaussianAccountant())
}


def accountant(name: str) -> Accountant:
    """Return the accountant of this name. Raises InputError that offers the nearest valid name."""
    if name not in ACCOUNTANTS:
        nearest = difflib.get_close_matches(name, ACCOUNTANTS, n=1, cutoff=0.0)[0]
        raise InputError(
            f"there is no accountant {name!r}; did you mean {nearest!r}? "
            f"Choose one of {', '.join(ACCOUNTANTS)}"
        )
    return ACCOUNTANTS[name]


@lru_cache(maxsize=8)
def _composed_losses(mechanism: Mechanism) -> tuple[PLDPmf, ...]:
    """Return the loss distributions of all steps: D against D' first, then D' against D.

    One distribution where the two are the same (replace).
    """
    low, high = _loss_range(mechanism)
    if mechanism.neighbouring is Neighbouring.REPLACE:
        directions = [(low, high, _replace_profile)]
    else:
        directions = [(low, high, _remove_profile), (-high, -low, _add_profile)]
    width, composed = _interval(mechanism), []
    for lowest, highest, profile in directions:
        first, last = math.floor(lowest / width), math.ceil(highest / width)
        deltas = profile(mechanism, np.arange(first, last + 1) * width)
        step = create_pmf_pessimistic_connect_dots_fixed_gap(
            width, first, last, np.clip(deltas, 0.0, 1.0)
        )
        composed.append(step.self_compose(mechanism.steps))
    return tuple(composed)


def _interval(mechanism: Mechanism) -> float:
    """Return the width of the discretisation: fine against one step's loss, bounded in memory."""
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    deviation = min(1 / z, q * math.sqrt(math.expm1(min(50.0, z**-2))))
    low, high = _loss_range(mechanism)
    return max(
        1e-7,
        min(1e-4, deviation / 50),
        (high - low) / 2**19,
        16 * deviation * math.sqrt(mechanism.steps) / 2**20,
    )


def _loss_range(mechanism: Mechanism) -> tuple[float, float]:
    """Return the losses of one step, D against D', at ten noise deviations on either side."""
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    if mechanism.neighbouring is Neighbouring.REPLACE:
        s = 2 * z
        x = 1 + 10 * s
        high = _sampled_loss((x - 0.5) / s**2, q) - _sampled_loss((-x - 0.5) / s**2, q)
        return -high, high
    reach = 10 / z + 0.5 / z**2
    return _sampled_loss(-reach, q), _sampled_loss(reach, q)


def _sampled_loss(loss: float, q: float) -> float:
    """Return log(1 - q + q e^loss): the loss of a step that the record joins with probability q."""
    return float(np.logaddexp(math.log1p(-q), math.log(q) + loss))


def _unsampled_loss(loss: Array, q: float) -> Array:
    """Return the inverse of `_sampled_loss`, -inf at and below its infimum log(1 - q)."""
    inside = np.maximum(loss, math.log1p(-q))
    with np.errstate(divide="ignore"):
        near = np.log1p(np.maximum(np.expm1(np.minimum(inside, 1.0)) / q, -1.0))
    far = np.maximum(inside, 1.0) - math.log(q) + np.log1p((q - 1) * np.exp(-np.maximum(inside, 1)))
    return np.where(inside < 1, near, far)


def _remove_profile(mechanism: Mechanism, epsilons: Array) -> Array:
    """Return delta of (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2), one step's D against D'.

    delta_q(log(1 - q + q e^t)) = q delta(t): Balle, Barthe and Gaboardi, 2020, Theorem 9.
    """
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    sampled = q * gaussian.privacy_profile(1 / z, _unsampled_loss(epsilons, q))
    return np.where(epsilons > math.log1p(-q), sampled, -np.expm1(np.minimum(epsilons, 0.0)))


def _add_profile(mechanism: Mechanism, epsilons: Array) -> Array:
    """Return delta of the same pair the other way round, D' against D."""
    z, q = mechanism.noise_multiplier, mechanism.sampling_rate
    unsampled = _unsampled_loss(-epsilons, q)
    return q * np.exp(epsilons + unsampled) * gaussian.privacy_profile(1 / z, -unsampled)


def _replace_profile(mechanism: Mechanism, epsilons: Array) -> Array:
    """Return delta of (1-q) N(0, s^2) + q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2), s = 2z.

    The two records' clipped gradients are opposite, 2C = 2 apart. The loss passes epsilon above
    s^2 (asinh(sinh(epsilon/2) e^{1/(2 s^2)} (1-q)/q) + epsilon/2), worked out in log space.
    """
    s, q = 2 * mechanism.noise_multiplier, mechanism.sampling_rate
    half = np.abs(epsilons) / 2
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
    log_ratio = log_sinh + 0.5 / s**2 + math.log1p(-q) - math.log(q)
    arsinh = np.logaddexp(log_ratio, np.logaddexp(2 * log_ratio, 0.0) / 2)
    boundary = s**2 * np.sign(epsilons) * (arsinh + half)
    upper = q * ndtr((1 - boundary) / s) + (1 - q) * ndtr(-boundary / s)
    log_lower = np.logaddexp(
        math.log(q) + log_ndtr((-1 - boundary) / s), math.log1p(-q) + log_ndtr(-boundary / s)
    )
    delta: Array = upper - np.exp(epsilons + log_lower)
    return delta
