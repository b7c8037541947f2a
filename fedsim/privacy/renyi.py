"""Accountants by Rényi divergences, at many orders."""

import logging
import math
from functools import cached_property, lru_cache
from types import ModuleType

import numpy as np

from adversaries.arrays import Floats
from fedsim.privacy.accounting import Accountant, losses, rounded_note
from fedsim.privacy.mechanism import Mechanism, Neighbouring

MOST_KINDS = 256
"""Kinds of step that the slower accountants compute with; a larger number is rounded to this."""


def _rdp() -> ModuleType:
    """Import dp_accounting's Rényi accountant (half a second) only where it is needed."""
    from dp_accounting.rdp import rdp_privacy_accountant  # noqa: PLC0415

    return rdp_privacy_accountant


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
        return super().note(mechanism, delta) or rounded_note(mechanism, MOST_KINDS, sampled=True)

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
        for group in losses().coarsened(mechanism, MOST_KINDS).groups:
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


RENYI = RenyiAccountant()
CLASSIC_RENYI = ClassicRenyiAccountant()
