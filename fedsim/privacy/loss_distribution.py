"""The privacy loss distribution of Gaussian steps, discretised pessimistically and composed.

"Connect the dots" (Doroshenko et al., 2022) turns a step's delta(epsilon) into a distribution on a
grid that reveals no less. Their Fourier transforms multiply; full batches are one Gaussian.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from adversaries.arrays import Floats
from adversaries.statistics import gaussian
from adversaries.statistics.roots import find_root
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps

Deltas = Callable[[float, float, Floats], Floats]
"""Returns delta of one step for a noise multiplier, a sampling rate and epsilons >= 0."""

Kinds = tuple[tuple[tuple[float, float], int], ...]
"""((noise multiplier, sampling rate), number of steps) for every kind of step."""

MOST_KINDS = 1024
"""Kinds of sampled step that are composed exactly; a larger number is rounded to this."""

TRUNCATED = 1e-15
"""Probability of losses beyond the grid, counted as an infinite loss."""

ROUNDED = 0.1
"""Share of the resolution that is counted as an infinite loss, to cover rounding in the FFT."""


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """The distribution of log p_D/p_D' under D, by masses [n] at (lowest + i) width."""

    width: float
    lowest: int
    masses: Floats
    infinite: float

    @property
    def losses(self) -> Floats:
        """The finite losses [n], ascending."""
        return self.width * np.arange(self.lowest, self.lowest + len(self.masses), dtype=np.float64)

    def delta(self, epsilon: float) -> float:
        """Return E[(1 - e^(epsilon - loss))+] for any finite epsilon."""
        # Only losses above epsilon add to delta; the minimum below cuts off one that is not above.
        above = min(len(self.masses), max(0, math.floor(epsilon / self.width) - self.lowest))
        losses = self.width * (self.lowest + np.arange(above, len(self.masses)))
        kept = -np.expm1(np.minimum(epsilon - losses, 0.0))
        return float(self.infinite + np.sum(kept * self.masses[above:]))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 with delta(epsilon) <= delta; inf if none exists."""
        if self.infinite >= delta:
            return math.inf
        upper, weighted = self._sums()
        # delta at each l_(i-1). Epsilon lies in the interval after the last one above delta, where
        # delta(epsilon) = u_i - e^(epsilon - l_i) w_i is solved for epsilon.
        (above,) = np.nonzero(upper - math.exp(-self.width) * weighted > delta)
        if len(above) == 0:
            return 0.0
        i = int(above[-1])
        loss = self.losses[max(0, -self.lowest) + i]
        return max(0.0, float(loss + math.log((upper[i] - delta) / weighted[i])))

    def profile(self) -> Floats:
        """Return delta(epsilon) at 0, width, 2 width, ... up to the largest loss, float64 [n]."""
        upper, weighted = self._sums()
        deltas = np.append(upper[1:] - math.exp(-self.width) * weighted[1:], self.infinite)
        return np.maximum(deltas, self.infinite)  # which rounding may undercut

    def _sums(self) -> tuple[Floats, Floats]:
        """Return u and w at every loss l_i >= 0, float64 [n] each.

        Between l_(i-1) and l_i, delta(epsilon) = u_i - e^(epsilon - l_i) w_i, where u_i sums the
        masses from l_i on, and w_i the masses times e^(l_i - loss).
        """
        masses = self.masses[max(0, -self.lowest) :][::-1]
        upper = self.infinite + np.cumsum(masses)
        # w_i = m_i + e^-width w_(i+1), from the largest loss down.
        weighted = scipy.signal.lfilter([1.0], [1.0, -math.exp(-self.width)], masses)
        return upper[::-1], weighted[::-1]

    def tail(self, epsilon: float) -> float:
        """Return Pr[loss > epsilon] of the distribution that the grid stands for."""
        # delta' = -E[e^(epsilon - loss); loss > epsilon], so that delta - delta' is the tail. A
        # slope over two widths smooths the steps of the grid.
        slope = self.delta(epsilon + self.width) - self.delta(epsilon - self.width)
        return self.delta(epsilon) - slope / (2 * self.width)


def resolves(mechanism: Mechanism, delta: float) -> bool:
    """Return whether a loss distribution can answer: no overflow, and delta above rounding."""
    if mechanism.noiseless or delta < resolution(mechanism):
        return False
    # e^loss must stay below the largest float, e^709.
    return all(_largest_loss(*kind, mechanism.neighbouring) < 700 for kind, _ in _kinds(mechanism))


def resolution(mechanism: Mechanism) -> float:
    """Return the delta below which rounding errors of the composition by FFT show."""
    return max(1e-12, 1e-15 * mechanism.steps)


def is_coarse(mechanism: Mechanism) -> bool:
    """Return whether the number of steps forces a coarser grid than precision asks for."""
    return interval(mechanism) > _typical_deviation(_kinds(mechanism)) / 10


@lru_cache(maxsize=16)
def composed(mechanism: Mechanism) -> tuple[LossDistribution, ...]:
    """Return the losses of all steps: D against D', then D' against D unless it is equal."""
    kinds, width = _kinds(mechanism), interval(mechanism)
    directions: list[list[tuple[LossDistribution, int]]] = [[], []]
    for (z, q), count in kinds:
        # Under replace both directions are equal, and only one is computed.
        for losses, direction in zip(
            _step_losses(z, q, mechanism.neighbouring, width), directions, strict=False
        ):
            direction.append((losses, count))
    rounded = ROUNDED * resolution(mechanism)
    return tuple(_compose(direction, width, rounded) for direction in directions if direction)


def interval(mechanism: Mechanism) -> float:
    """Return the width of the grid: fine against a step's loss, coarse enough for memory.

    A loss between two points is split among them, which adds at most a quarter of the squared width
    to a step's variance: 6e-4 of it where the width is a twentieth of the deviation.
    """
    kinds = _kinds(mechanism)
    typical, few = _typical_deviation(kinds), len(kinds) <= 16
    total = typical * math.sqrt(sum(count for _, count in kinds))
    largest = max(_largest_loss(*kind, mechanism.neighbouring) for kind, _ in kinds)
    # Above rounding, and fine against one step's loss. Two limits of memory: at most 2^18 points
    # for one step, and 2^20 for 16 deviations of the sum.
    return max(
        1e-14,
        min(1e-4, typical / 50) if few else min(1e-2, typical / 20),
        largest / 2**18,
        16 * total / 2**20,
    )


def _typical_deviation(kinds: Kinds) -> float:
    """Return roughly the root mean square, over all steps, of the loss's standard deviation."""
    counts = np.array([count for _, count in kinds], dtype=np.float64)
    # 1/z without sampling. With it, about that of the likelihood ratio under D', which is q times
    # the root of the chi-square divergence e^(1/z^2) - 1.
    deviations = np.array(
        [min(1 / z, q * math.sqrt(math.expm1(min(50.0, z**-2)))) for (z, q), _ in kinds]
    )
    return math.sqrt(float(counts @ deviations**2) / counts.sum())


def step_epsilon(step: Steps, neighbouring: Neighbouring, delta: float) -> float:
    """Return the epsilon of a single step at delta, in (0, 1)."""
    z, q = step.noise_multiplier, step.sampling_rate
    if z == 0:
        return math.inf
    if q == 1:
        return gaussian.epsilon(1 / z, delta)
    # The record takes part with probability q only, so that delta = q needs no noise.
    if delta >= q:
        return 0.0
    if neighbouring is Neighbouring.ADD_REMOVE:
        # delta_q(log(1 - q + q e^t)) = q delta(t), as in `_remove_deltas`, the worse direction.
        return _sampled_loss(gaussian.epsilon(1 / z, delta / q), q)
    return _replace_epsilon(z, q, delta)


def _replace_epsilon(z: float, q: float, delta: float) -> float:
    def excess(epsilon: float) -> float:
        leaked = float(_replace_deltas(z, q, np.array([epsilon]))[0])
        return math.log(max(leaked, 1e-300)) - math.log(delta)

    highest = gaussian.epsilon(1 / z, delta)  # without sampling; sampling only lowers epsilon
    if excess(0.0) <= 0:
        return 0.0
    if excess(highest) >= 0:
        return highest
    return find_root(excess, 0.0, highest, xtol=1e-300, rtol=1e-14)


@lru_cache(maxsize=64)
def _kinds(mechanism: Mechanism) -> Kinds:
    """Return the kinds of step, with all full batches as one Gaussian first."""
    sampled = tuple(group for group in mechanism.groups if group.sampling_rate < 1)
    full = tuple(group for group in mechanism.groups if group.sampling_rate == 1)
    kinds = [((1 / Mechanism(full).mu, 1.0), 1)] if full else []
    if sampled:
        coarse = coarsened(Mechanism(sampled), MOST_KINDS).groups
        kinds += [((step.noise_multiplier, step.sampling_rate), step.count) for step in coarse]
    return tuple(kinds)


def coarsened(mechanism: Mechanism, most: int) -> Mechanism:
    """Return at most `most` kinds of step, which reveal no less, by cells of a grid."""
    full = [group for group in mechanism.groups if group.sampling_rate == 1]
    sampled = [group for group in mechanism.groups if group.sampling_rate < 1]
    if max(len(full), len(sampled)) <= most or mechanism.noiseless:
        return mechanism
    groups = _coarsened(full, most) + _coarsened(sampled, most)
    return Mechanism(tuple(groups), mechanism.neighbouring)


def _coarsened(groups: list[Steps], most: int) -> list[Steps]:
    """Return at most `most` groups, one for each non-empty cell of an even log-log grid."""
    if len(groups) <= most:
        return groups
    logs = np.log([[group.noise_multiplier, group.sampling_rate] for group in groups])
    spans = np.maximum(np.ptp(logs, axis=0), 1e-9)
    # Divide the cells in proportion to how far the values spread along each axis.
    along_noise = int(np.clip(math.sqrt(most * spans[0] / spans[1]), 1, most))
    cells = np.array([along_noise, most // along_noise])
    places = np.minimum((logs - logs.min(axis=0)) / spans * cells, cells - 1).astype(int)
    kinds: dict[tuple[int, ...], list[Steps]] = {}
    for group, place in zip(groups, places.tolist(), strict=True):
        kinds.setdefault(tuple(place), []).append(group)
    # The least noise and the highest rate of a cell reveal no less than any of its steps.
    return [
        Steps(
            min(group.noise_multiplier for group in alike),
            sum(group.count for group in alike),
            max(group.sampling_rate for group in alike),
        )
        for alike in kinds.values()
    ]


def _largest_loss(z: float, q: float, neighbouring: Neighbouring) -> float:
    """Return the loss of one step where the noise is ten standard deviations away."""
    if q == 1:
        # (x - 1/2)/z^2 at x = 1 + 10 z.
        return 10 / z + 0.5 / z**2
    if neighbouring is Neighbouring.REPLACE:
        s = 2 * z
        # The record's gradient, plus noise of ten deviations along it, has the largest loss.
        x = 1 + 10 * s
        return _sampled_loss((x - 0.5) / s**2, q) - _sampled_loss((-x - 0.5) / s**2, q)
    return _sampled_loss(10 / z + 0.5 / z**2, q)


def _sampled_loss(loss: float, q: float) -> float:
    """Return the loss log(1 - q + q e^loss) of a step that the record joins with probability q."""
    # The first form is exact near 0, the second does not overflow.
    if loss < 1:
        return math.log1p(q * math.expm1(loss))
    return float(np.logaddexp(math.log1p(-q), math.log(q) + loss))


@lru_cache(maxsize=4)
def _step_losses(
    z: float, q: float, neighbouring: Neighbouring, width: float
) -> tuple[LossDistribution, ...]:
    """Return a step's loss distribution in both directions, or once if both are equal."""
    largest = _largest_loss(z, q, neighbouring)
    if neighbouring is Neighbouring.REPLACE:
        masses = _masses(_full_deltas if q == 1 else _replace_deltas, z, q, largest, width)
        return (_losses(masses, masses, width),)
    if q == 1:
        masses = _masses(_full_deltas, z, q, largest, width)
        return (_losses(masses, masses, width),) * 2
    removed = _masses(_remove_deltas, z, q, largest, width)
    added = _masses(_add_deltas, z, q, largest, width)
    return _losses(removed, added, width), _losses(added, removed, width)


def _masses(
    deltas: Deltas, z: float, q: float, largest: float, width: float
) -> tuple[Floats, float]:
    """Return the mass of one step's loss at 1, 2, ... widths, and its mass at infinity.

    The masses whose delta touches the true one at every grid point and exceeds it between: "connect
    the dots", Algorithm 1.
    """
    # delta at 0, 1, 2, ... widths, and how far it falls in each interval.
    delta = deltas(z, q, width * np.arange(math.ceil(largest / width) + 1.0))
    falls = -np.diff(delta)
    # The mass at a point follows from the falls on either side of it.
    masses = (math.exp(width) * falls - np.append(falls[1:], 0.0)) / math.expm1(width)
    return _trim(masses), float(delta[-1])


def _trim(masses: Floats) -> Floats:
    """Drop masses that are rounding error or negligible: they would only lengthen the FFT."""
    return np.trim_zeros(np.where(masses < 1e-30, 0.0, masses), "b")


def _losses(
    forward: tuple[Floats, float], reverse: tuple[Floats, float], width: float
) -> LossDistribution:
    """Return a step's losses; the mass at -l is e^-l times the other direction's at l."""
    (above, infinite), (other, _) = forward, reverse
    below = _trim(other * np.exp(-width * np.arange(1, len(other) + 1)))
    zero = max(0.0, 1 - infinite - above.sum() - below.sum())
    masses = np.concatenate([below[::-1], [zero], above])
    return LossDistribution(width, -len(below), masses, infinite)


def _compose(
    parts: list[tuple[LossDistribution, int]], width: float, rounded: float
) -> LossDistribution:
    """Return the distribution of a sum of independent losses, each with its number of draws.

    Multiplies their Fourier transforms on a grid that holds all but `TRUNCATED` of the mass. They
    round masses by about 1e-16 of the largest: `rounded` is added to the mass at infinity.
    """
    pieces = [(part.masses, part.lowest, part.infinite, count) for part, count in parts]
    # The grid is wide enough for the sum, and as long as the longest part.
    low, high = _support([(masses, lower, n) for masses, lower, _, n in pieces])
    longest = max(high - low + 1, *(len(masses) for masses, *_ in pieces))
    size = scipy.fft.next_fast_len(longest, real=True)
    # The sum's transform is the product of its parts'.
    spectrum: npt.NDArray[np.complex128] = np.ones(size // 2 + 1, dtype=np.complex128)
    for masses, _, _, count in pieces:
        spectrum *= scipy.fft.rfft(masses, size) ** count
    total = scipy.fft.irfft(spectrum, size)
    # The transform counts from the sum of all lower ends, and wraps around: rotate it back.
    start = low - sum(lower * count for _, lower, _, count in pieces)
    losses = np.roll(total, -start)[: high - low + 1]
    # log of the probability that no part's loss is infinite.
    finite = sum(count * math.log1p(-infinite) for _, _, infinite, count in pieces)
    return LossDistribution(width, low, losses, TRUNCATED + rounded - math.expm1(finite))


def _support(pieces: list[tuple[Floats, int, int]]) -> tuple[int, int]:
    """Return an interval that the sum leaves with probability `TRUNCATED`, by Chernoff."""
    # The sum can never leave this interval.
    lower = sum(low * count for _, low, count in pieces)
    upper = sum((low + len(masses) - 1) * count for masses, low, count in pieces)
    variance = 0.0
    places = [np.arange(len(masses)) + float(low) for masses, low, _ in pieces]
    for (masses, _, count), place in zip(pieces, places, strict=True):
        # Not by `@`, whose threads would wait for a busy core.
        mean = float(np.sum(masses * place))
        variance += count * max(0.0, float(np.sum(masses * place**2)) - mean**2)
    # Orders to try: near the best one of a normal sum, and fixed shares of the longest part's.
    reach = math.log(2 / TRUNCATED)
    normal = math.sqrt(2 * reach / max(variance, 1e-300))
    longest = max(len(masses) for masses, _, _ in pieces)
    orders = np.array([1.0, 5.0, 20.0, 40.0]) / longest
    for order in [*orders, *normal * np.array([0.25, 0.5, 1.0])]:
        # log E e^(order sum) bounds the upper end, and log E e^(-order sum) the lower one.
        grown, shrunk = (
            sum(
                count * _log_mean(masses, sign * order * place)
                for (masses, _, count), place in zip(pieces, places, strict=True)
            )
            for sign in (1, -1)
        )
        upper = min(upper, math.ceil((grown + reach) / order))
        lower = max(lower, math.floor(-(shrunk + reach) / order))
    return lower, upper


def _log_mean(masses: Floats, exponents: Floats) -> float:
    """Return log(sum masses e^exponents), of exponents that rise or fall along the array."""
    top = float(max(exponents[0], exponents[-1]))
    return top + math.log(float(np.sum(masses * np.exp(exponents - top))))


def _full_deltas(z: float, q: float, epsilons: Floats) -> Floats:
    """Return delta of one step on a full batch, either way round, at epsilons >= 0."""
    return gaussian.deltas(1 / z, epsilons)


def _remove_deltas(z: float, q: float, epsilons: Floats) -> Floats:
    """Return delta of one step with the record against one without, at epsilons >= 0.

    (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2), where delta_q(log(1 - q + q e^t)) = q delta(t):
    Balle, Barthe and Gaboardi, "Privacy profiles and amplification by subsampling", 2020, Thm 9.
    """
    # Two formulas for the same t: one is precise near 0, the other does not overflow.
    near = np.log1p(np.expm1(np.minimum(epsilons, 1.0)) / q)
    far = epsilons - math.log(q) + np.log1p((q - 1) * np.exp(-epsilons))
    return q * gaussian.deltas(1 / z, np.where(epsilons < 1, near, far))


def _add_deltas(z: float, q: float, epsilons: Floats) -> Floats:
    """Return delta of one step without the record against one with it, at epsilons >= 0."""
    # The loss exceeds epsilon where the unsampled one exceeds -u, e^u = 1 + (e^-epsilon - 1)/q.
    # There delta_q = q e^(epsilon + u) delta(-u); no loss exceeds -log(1 - q).
    growth = np.expm1(-epsilons) / q
    possible = growth > -1
    unsampled = np.log1p(np.where(possible, growth, 0.0))
    sampled = q * np.exp(epsilons + unsampled) * gaussian.deltas(1 / z, -unsampled)
    return np.where(possible, sampled, 0.0)


def _replace_deltas(z: float, q: float, epsilons: Floats) -> Floats:
    """Return delta of one step with the record against one with its replacement, epsilons >= 0.

    In the worst case the two clipped gradients are opposite, 2C = 2 apart: (1-q) N(0, s^2) +
    q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2), with s = 2z. The loss exceeds epsilon beyond
    s^2 (arsinh(sinh(epsilon/2) e^{1/(2 s^2)} (1-q)/q) + epsilon/2), computed in log space.
    """
    # The observation at which the loss exceeds epsilon.
    s = 2 * z
    half = epsilons / 2
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-epsilons) / 2)
    # arsinh(e^r) = log(e^r + sqrt(e^(2 r) + 1)), where e^r may overflow.
    log_ratio = log_sinh + 0.5 / s**2 + math.log1p(-q) - math.log(q)
    arsinh = np.logaddexp(log_ratio, np.logaddexp(2 * log_ratio, 0.0) / 2)
    boundary = s**2 * (arsinh + half)
    # The excess where the record takes part, and (below 0) where it does not.
    ndtr, log_ndtr = scipy.special.ndtr, scipy.special.log_ndtr
    met = ndtr((1 - boundary) / s) - np.exp(epsilons + log_ndtr((-1 - boundary) / s))
    missed = np.expm1(-epsilons) * np.exp(epsilons + log_ndtr(-boundary / s))
    return np.maximum(q * met + (1 - q) * missed, 0.0)
