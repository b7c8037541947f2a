"""Sums in integers modulo 2^32, as secure aggregation needs them, and what their rounding costs.

Every client rounds its clean sum and its noise to a grid of step g = 2^e and sends the integer
(round(F/g) + round(N/g)) mod 2^32, N ~ N(0, sigma^2/m). What is accounted:

*Sensitivity.* Rounding moves each of the P coordinates of a clean sum by at most g/2, so the
rounded sums of neighbours differ by at most Delta' = Delta + g sqrt(P). The noise is scaled to
Delta', sigma = z Delta': the noise multiplier keeps its meaning, and rounding costs noise.

*Noise.* One rounded message is a function of F + N, since F is on the grid, but a sum of rounded
noises is not the rounded sum. With h the density of N + U, U uniform on [-g/2, g/2], the law of
round(N/g) is g h at the grid's points, and its characteristic function is sum_l a_l(t), a_l(t) =
exp(-s^2 (t + 2 pi l)^2 / 2) sinc(t/2 + pi l), s = sigma/(sqrt(m) g) (Poisson summation). That of
the sum of m' of them is (sum_l a_l)^m', while sum_l a_l^m' belongs to round((N_1 + ... + N_m' +
V)/g) with V the sum of m' - 1 independent uniforms: continuous noise of the full variance, then V
and a rounding that know nothing of the data, hence no less private than the Gaussian mechanism. The
two functions differ by at most (m + 1) B, B = 2 sum_{l >= 1} exp(-s^2 pi^2 (2 l - 1)^2 / 2), so the
probabilities of each point do too; over the points within K, and with the tails beyond, this bounds
the total variation between what is released and that mechanism. It holds for the sum of all clients
as for that of the ones whose noise the adversary does not know (cf. Kairouz, Liu and Steinke, 2021,
Theorem 11, for sums of discrete Gaussians).

*Range.* A client whose message leaves [-c, c] refuses to send it. c >= n C + 12 sigma/sqrt(m), so
that a sum of at most n clipped gradients is refused with probability 2 Q(12) per coordinate at
most, which the bound counts as if a refusal gave everything away.

All in all a guarantee (epsilon, delta) of the Gaussian mechanism becomes (epsilon, delta + (1 +
e^epsilon) tau) with tau = `FixedPoint.total_variation(k)` for k rounds. `check` refuses a run where
that adds more than a thousandth of delta. Refusals alone keep tau above 1e-33, so that an epsilon
of more than about 50 cannot be stated for sums of integers, whatever the grid.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.config.objects import Scheme
from fedsim.privacy.mechanism import sensitivity as global_sensitivity
from fedsim.privacy.participation.histories import most_together

MODULUS_BITS = 32
"""Messages are integers modulo 2^32, the most that Flower's SecAgg+ takes."""

SUM_BITS = 31
"""Room for the sum of all messages: one bit less, so that not even their range reaches 2^32."""

TAIL = 12.0
"""How many standard deviations of its noise a client's message has room for."""

NEGLIGIBLE = 1e-3
"""The largest (1 + e^epsilon) tau over delta."""

Words = npt.NDArray[np.uint32]


class OutOfRangeError(RuntimeError):
    """A client's message does not fit the range that was agreed; nothing of it was sent."""


@dataclass(frozen=True)
class FixedPoint:
    """The grid of a federation's sums and the noise that goes with it.

    Attributes:
        step: g, a power of two.
        bits: a client's integers are -2^(bits-1) to 2^(bits-1).
        sensitivity: Delta', that of a rounded sum.
        noise_std: sigma, of all clients' noise together.
        clients: m.
        parameters: P.
        growth: (Delta' - Delta)/Delta.
        expected: how many clients together add the noise; None for all m. Where only some join a
            round, m is the most that do, and the noise that of as many as are expected.
    """

    step: float
    bits: int
    sensitivity: float
    noise_std: float
    clients: int
    parameters: int
    growth: float
    expected: float | None = None

    @property
    def limit(self) -> float:
        """The largest absolute value c of a coordinate that a client may send."""
        return self.step * 2.0 ** (self.bits - 1)

    @property
    def share_std(self) -> float:
        """The standard deviation of one client's noise, sigma/sqrt(m)."""
        return self.noise_std / math.sqrt(self.expected or self.clients)

    def nearest(self, values: Tensor) -> Tensor:
        """Return the nearest points of the grid, float64; a half goes to the even one."""
        return torch.round(values.double() / self.step) * self.step

    def message(self, values: npt.NDArray[np.float64]) -> Words:
        """Return points of the grid as integers modulo 2^32.

        Sums of points are points, to the last bit: their integers are far below 2^53.

        values: points of the grid, of any shape.
        Raises OutOfRangeError if one is beyond `limit`, or NaN.
        """
        largest = np.abs(values).max(initial=0)
        if not largest <= self.limit:  # NaN is not, either
            raise OutOfRangeError(
                f"a coordinate of {largest:g} is outside of +-{self.limit:g}, the range that "
                "messages of this federation have; this client has more records than data.records, "
                "or its gradients are not clipped"
            )
        return (values / self.step).astype(np.int64).astype(np.uint32)

    def values(self, words: Words) -> npt.NDArray[np.float64]:
        """Return the real numbers that integers modulo 2^32 stand for: a message or a sum."""
        return words.view(np.int32).astype(np.float64) * self.step

    def check_range(self, words: Words, messages: int) -> None:
        """Check that integers can be the sum of so many messages: |w| <= m c/g.

        words: the integers modulo 2^32.
        Raises ValueError if they cannot.
        """
        most = messages << (self.bits - 1)
        values = words.view(np.int32)
        if values.max(initial=0) > most or values.min(initial=0) < -most:
            raise ValueError("it is beyond the range that messages have")

    def total_variation(self, rounds: int) -> float:
        """Return tau: how far a training is from the Gaussian mechanism, as the module says.

        Returns: 0 to 1; 0.0 where it is below what a double can hold.
        """
        each = _aliasing(self.share_std / self.step, self.clients)
        refused = self.clients * math.erfc(TAIL / math.sqrt(2))
        return min(1.0, rounds * self.parameters * (each + refused))


def message_bits(clients: int) -> int:
    """Return how many bits a client's integers have, so that the sum of all cannot wrap."""
    return min(SUM_BITS - math.ceil(math.log2(clients)), 30)


def choose(
    noise_multiplier: float,
    sensitivity: float,
    clipping_norm: float,
    records: int,
    clients: int,
    parameters: int,
    expected: float | None = None,
) -> FixedPoint:
    """Return the finest grid on which no sum of all clients' messages can wrap.

    records: n, of how many clipped gradients a client's sum is made at most.
    expected: how many clients together add the noise; None for all m.
    Raises InputError if no grid has room for noise that large, or for so many clients.
    """
    bits = message_bits(clients)
    if bits < 2:
        raise InputError(f"{clients} clients cannot be summed in {MODULUS_BITS} bits")
    # A wider range has a coarser grid, whose rounding needs more noise, which needs more range.
    exponent = math.ceil(math.log2(records * clipping_norm))
    for limit in (2.0**power for power in range(exponent, exponent + 200)):
        step = limit / 2.0 ** (bits - 1)
        rounded = sensitivity + step * math.sqrt(parameters)
        std = noise_multiplier * rounded
        share = std / math.sqrt(expected or clients)
        if records * clipping_norm + step + TAIL * share <= limit:
            growth = rounded / sensitivity - 1
            return FixedPoint(step, bits, rounded, std, clients, parameters, growth, expected)
    raise InputError(
        f"noise of multiplier {noise_multiplier:g} does not fit into integers of {bits} bits; "
        "lower the noise, or choose trust 'central' or 'local'"
    )


def agreed(scheme: Scheme, noise_multiplier: float, parameters: int) -> FixedPoint:
    """Return the grid that the clients and the server of a federation all come to by themselves."""
    training = scheme.training
    return choose(
        noise_multiplier,
        global_sensitivity(scheme.privacy.neighbouring, training.clipping_norm),
        training.clipping_norm,
        # A client sends the sum of at most n clipped gradients, or one clipped update.
        1 if scheme.privacy.unit == "client" else scheme.records + scheme.copies - 1,
        most_together(scheme.participation, scheme.training.rounds),
        parameters,
        scheme.participation.expected_clients,
    )


def check(fixed_point: FixedPoint, rounds: int, delta: float, epsilon: float) -> None:
    """Check that what rounding may give away is negligible beside delta.

    epsilon: at delta, of all rounds, at the vantage point where it is largest.
    Raises InputError if it is not.
    """
    tau = fixed_point.total_variation(rounds)  # above 0, because a client may refuse
    leaked = math.log(tau) + float(np.logaddexp(0.0, epsilon))
    if leaked > math.log(NEGLIGIBLE * delta):
        digits = min(0.0, leaked) / math.log(10)
        raise InputError(
            f"the noise of one client is {fixed_point.share_std / fixed_point.step:.2g} steps of "
            f"the grid of secure aggregation and epsilon is {epsilon:.4g}: integers may then leak "
            f"delta 1e{digits:+.0f}, not negligible beside privacy.delta = {delta:g}; raise the "
            "noise or lower data.records or training.rounds"
        )


def summed(messages: Iterable[Words]) -> Words:
    """Return the sum of at least one message modulo 2^32."""
    first, *others = messages
    total = first.copy()
    for message in others:
        total += message  # unsigned integers wrap at 2^32, which is what is wanted
    return total


def _aliasing(share: float, clients: int) -> float:
    """Return the bound of one coordinate; share: s, the noise of one client in steps."""
    if share < 1:  # where rounding is anything but negligible
        return 1.0
    terms = (
        2 * math.exp(-((share * math.pi * (2 * index - 1)) ** 2) / 2) for index in range(1, 20)
    )
    differs = (clients + 1) * sum(terms)
    # Q(38) = 3e-316. Rounding moves a sum by at most m/2 steps.
    deviations = 38.0
    within = 2 * (deviations * share * math.sqrt(clients) + clients) + 1
    beyond = 2 * math.erfc(deviations / math.sqrt(2))
    return min(1.0, (within * differs + beyond) / 2)
