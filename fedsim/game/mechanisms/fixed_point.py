"""Sums in integers modulo 2^32, as secure aggregation needs them, and the cost of their rounding.

Every client rounds its clean sum and its noise to a grid of step g = 2^e, and sends the integer
(round(F/g) + round(N/g)) mod 2^32 with N ~ N(0, sigma^2/m). The accounting has three parts.

*Sensitivity.* Rounding moves each of the P coordinates of a clean sum by at most g/2. The rounded
sums of neighbours therefore differ by at most Delta' = Delta + g sqrt(P). The noise is scaled to
Delta', sigma = z Delta': the noise multiplier keeps its meaning, and rounding costs more noise.

*Noise.* One rounded message is a function of F + N, since F is on the grid. But a sum of rounded
noises is not the rounded sum. Let h be the density of N + U with U uniform on [-g/2, g/2]. The law
of round(N/g) is g h at the points of the grid. By Poisson summation its characteristic function is
sum_l a_l(t) with a_l(t) = exp(-s^2 (t + 2 pi l)^2 / 2) sinc(t/2 + pi l), s = sigma/(sqrt(m) g). The
sum of m' of them has (sum_l a_l)^m'. On the other hand sum_l a_l^m' belongs to
round((N_1 + ... + N_m' + V)/g), where V is the sum of m' - 1 independent uniforms. This is
continuous noise of the full variance, followed by V and a rounding that do not depend on the data.
Hence it is no less private than the Gaussian mechanism. The two functions differ by at most
(m + 1) B with B = 2 sum_{l >= 1} exp(-s^2 pi^2 (2 l - 1)^2 / 2), and so do the probabilities of
each point. Over the points within K, and with the tails beyond, this bounds the total variation
distance between the release and that mechanism. The bound holds for the sum of all clients, and
for the sum of those whose noise the adversary does not know (cf. Kairouz, Liu and Steinke, 2021,
Theorem 11, for sums of discrete Gaussians).

*Range.* A message is within [-c, c], where c >= n C + 12 sigma/sqrt(m). A client shortens its clean
sum to the length n C, which brings no two sums further apart, because a ball is convex. So its
sensitivity holds for a client with more than n records too, and no answer tells their number. The
noise then exceeds the room with probability at most 2 Q(12) per coordinate, and the coordinate is
cut off at c. The bound counts this as if it revealed everything.

Together, a guarantee (epsilon, delta) of the Gaussian mechanism becomes
(epsilon, delta + (1 + e^epsilon) tau), where tau = `FixedPoint.total_variation(k)` for k rounds.
`check_rounding` refuses a run where this adds more than a thousandth of delta. Cut-offs alone keep
tau above 1e-33, so that no grid can state an epsilon above about 50 for sums of integers.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.errors import InputError
from fedsim.configuration import Config
from fedsim.privacy import mechanism
from fedsim.privacy.mechanism import sensitivity as global_sensitivity
from fedsim.privacy.participation.histories import most_together

MODULUS_BITS = 32
"""Messages are integers modulo 2^32, the largest modulus of Flower's SecAgg+."""

SUM_BITS = 31
"""Bits for the sum of all messages: one less, so that their range also stays below 2^32."""

TAIL = 12.0
"""Standard deviations of its noise for which a client's message has room."""

DEVIATIONS = 38.0
"""Standard deviations within which a sum of noises is; Q(38) = 3e-316."""

NEGLIGIBLE = 1e-3
"""Largest (1 + e^epsilon) tau over delta."""

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class FixedPoint:
    """The grid of a federation's sums, and its noise, which `expected` clients add together.

    Attributes:
        longest: n C, the length to which a client shortens its clean sum.
    """

    step: float
    bits: int
    sensitivity: float
    noise_std: float
    clients: int
    parameters: int
    growth: float
    expected: float | None = None
    longest: float = math.inf

    @property
    def limit(self) -> float:
        """Largest absolute value c of a coordinate that a client may send."""
        return self.step * 2.0 ** (self.bits - 1)

    @property
    def share_std(self) -> float:
        """Standard deviation of one client's noise, sigma/sqrt(m)."""
        return self.noise_std / math.sqrt(self.expected or self.clients)

    def nearest(self, values: Tensor) -> Tensor:
        """Return the nearest points of the grid, float64; ties go to the even point."""
        return torch.round(values.double() / self.step) * self.step

    def clean(self, total: Tensor) -> Tensor:
        """Return clean sums [T, P], shortened to `longest`, at the nearest points of the grid."""
        norms = torch.linalg.vector_norm(total, dim=-1, keepdim=True)
        return self.nearest(total * (self.longest / norms).clamp(max=1.0))

    def message(self, values: Floats) -> Words:
        """Return points of the grid modulo 2^32, cut off at `limit`. NaN is not allowed."""
        within = np.clip(values, -self.limit, self.limit)
        # The step is a power of two, so the division is exact. The cast of a negative integer to
        # unsigned is its remainder modulo 2^32.
        return (within / self.step).astype(np.int64).astype(np.uint32)

    def values(self, words: Words) -> Floats:
        """Return the real numbers of integers modulo 2^32: a message or a sum."""
        # The upper half of the range stands for negative numbers; no sum of messages leaves +-2^31.
        return words.view(np.int32).astype(np.float64) * self.step

    def check_range(self, words: Words, messages: int) -> None:
        """Raise ValueError unless integers can be the sum of this many messages: |w| <= m c/g."""
        most = messages << (self.bits - 1)
        values = words.view(np.int32)
        if values.max(initial=0) > most or values.min(initial=0) < -most:
            raise ValueError("a value is beyond the range of messages")

    def total_variation(self, rounds: int) -> float:
        """Return tau in [0, 1]: the distance of a training from the Gaussian mechanism."""
        each = _aliasing(self.share_std / self.step, self.clients)
        # erfc(t/sqrt 2) = 2 Q(t): beyond the room for the noise at either end.
        cut_off = self.clients * math.erfc(TAIL / math.sqrt(2))
        return min(1.0, rounds * self.parameters * (each + cut_off))


def message_bits(clients: int) -> int:
    """Return the number of bits of a client's integers, such that the sum of all cannot wrap."""
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

    records: n, the largest number of clipped gradients in a client's sum.
    expected: number of clients that add the noise together; None for all m.
    Raises InputError if no grid has room for the noise, or for this many clients.
    """
    bits = message_bits(clients)
    if bits < 2:
        raise InputError(f"{clients} clients cannot be summed in {MODULUS_BITS} bits")
    # A wider range has a coarser grid, whose rounding needs more noise, and so a wider range.
    exponent = math.ceil(math.log2(records * clipping_norm))
    for limit in (2.0**power for power in range(exponent, exponent + 200)):
        step = limit / 2.0 ** (bits - 1)
        # Rounding moves each coordinate of both neighbours' sums by at most half a step.
        rounded = sensitivity + step * math.sqrt(parameters)
        std = noise_multiplier * rounded
        share = std / math.sqrt(expected or clients)
        # Room for the clean sum, its rounding, and `TAIL` deviations of one client's noise.
        if records * clipping_norm + step + TAIL * share <= limit:
            growth = rounded / sensitivity - 1
            longest = records * clipping_norm
            return FixedPoint(
                step, bits, rounded, std, clients, parameters, growth, expected, longest
            )
    raise InputError(
        f"noise of multiplier {noise_multiplier:g} does not fit into integers of {bits} bits; "
        "lower the noise, or choose trust 'central' or 'local'"
    )


def agreed(config: Config, noise_multiplier: float, parameters: int) -> FixedPoint:
    """Return the grid that the clients and the server of a federation each compute."""
    training = config.training
    return choose(
        noise_multiplier,
        global_sensitivity(config.privacy.neighbouring, training.clipping_norm),
        training.clipping_norm,
        # A client sends the sum of at most n clipped gradients, or one clipped update.
        1 if config.privacy.unit == "client" else config.data.records,
        most_together(config.participation, config.training.rounds),
        parameters,
        config.participation.expected_clients,
    )


def check_rounding(fixed_point: FixedPoint, rounds: int, delta: float, epsilon: float) -> None:
    """Raise InputError unless rounding leaks a negligible delta, at epsilon of all rounds."""
    tau = fixed_point.total_variation(rounds)  # above 0, because noise may be cut off
    # (1 + e^epsilon) tau in logs, since e^epsilon may overflow.
    leaked = math.log(tau) + float(np.logaddexp(0.0, epsilon))
    if leaked > math.log(NEGLIGIBLE * delta):
        digits = min(0.0, leaked) / math.log(10)
        raise InputError(
            f"the noise of one client is {fixed_point.share_std / fixed_point.step:.2g} steps of "
            f"the grid of secure aggregation, and epsilon is {epsilon:.4g}. Integers may then leak "
            f"delta 1e{digits:+.0f}, which is not negligible beside privacy.delta = {delta:g}; "
            "raise the noise, or lower data.records or training.rounds"
        )


def summed(messages: Iterable[Words]) -> Words:
    """Return the sum of at least one message modulo 2^32."""
    first, *others = messages
    total = first.copy()
    for message in others:
        total += message  # unsigned integers wrap at 2^32 as intended
    return total


def _aliasing(share: float, clients: int) -> float:
    """Return the bound for one coordinate; share: s, the noise of one client in steps."""
    if share < 1:  # rounding is not negligible
        return 1.0
    terms = (
        2 * math.exp(-((share * math.pi * (2 * index - 1)) ** 2) / 2) for index in range(1, 20)
    )
    differs = (clients + 1) * sum(terms)
    within = 2 * reach(share, clients) + 1
    beyond = 2 * math.erfc(DEVIATIONS / math.sqrt(2))
    # Total variation is half of the differences: of the points within, and of both laws' tails.
    return min(1.0, (within * differs + beyond) / 2)


def reach(share: float, clients: int) -> float:
    """Return K: a sum of noises is within K steps but for a probability of 2 Q(DEVIATIONS).

    Rounding moves the sum of m noises by at most m/2 steps, and m uniforms do no more.
    """
    return DEVIATIONS * share * math.sqrt(clients) + clients


def grid(config: Config, noise_multiplier: float, parameters: int) -> FixedPoint | None:
    """Return the grid of clients' messages; None where they are floats. Raises InputError."""
    if not config.federation.trust.model.summed_securely:
        return None
    return agreed(config, noise_multiplier, parameters)


def sensitivity(config: Config, noise_multiplier: float, parameters: int) -> float:
    """Return how far the target moves the sum, rounding included: the scale of the noise."""
    chosen = grid(config, noise_multiplier, parameters)
    if chosen is not None:
        return chosen.sensitivity
    return mechanism.sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
