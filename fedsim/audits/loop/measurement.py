"""Measurements of a loop's runs, without any code of the loop, and the noise of its steps."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Literal

import numpy as np
from pydantic import TypeAdapter
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import chi2, norm

from adversaries.arrays import Floats
from adversaries.statistics.intervals import Interval
from fedsim.audits.child_process.channel import Channel, ProcessReply
from fedsim.audits.loop.step_sums import NO_INFLUENCE, Influence

FEATURES = ("sampled", "total", "last", "largest", "energy", "steps")
"""Features of every attacked run, in the order of `Features`.

sampled: log-likelihood ratio of all steps, by the pilots' influence, noise and participation rate.
total, last, largest: shift of all steps, of the last and of the farthest along the target's
direction. energy: logarithm of the released numbers' squared length. steps: number of steps.
"""

Features = tuple[float, ...]
FULL = 0.95
Form = Literal["watched", "model", "models", "steps"]
"""What a loop releases: steps of Opacus's optimizer, one model, the model after each step, or the
steps themselves."""

LEAST_OVERLAP, LONGEST_NOISE = 1000, 2**20
"""Products of noise at one distance that a test of repetition needs, and numbers that it takes."""

SHOWN = 4
"""Coordinates of a step's noise by which two noises are compared."""


@dataclass(frozen=True)
class Learnt:
    """Knowledge of a pair of worlds, learnt from pilots.

    Attributes:
        distance: approximate distance of the worlds, in standard deviations.
        rows: k, the number of rows released.
        rate: share of rows in which the target takes part, in (0, 1].
    """

    distance: float
    form: Form
    rows: int
    rate: float


@dataclass(frozen=True)
class StepSeen:
    """A step of Opacus's optimizer.

    Attributes:
        noise_norm: norm that scales the noise.
        sensitivity: largest L2 norm of a clipped gradient.
        divisor: divisor of the noised sum.
        sizes: number of coordinates of each of the model's tensors.
        noise_energies: squared length of the noise added to each of them.
        noise: first coordinates of the noise.
        clipped: whether the sum is that of the records' clipped gradients; None where gradients of
            single records are not visible.
        records: number of records drawn for the step, with repetitions; -1 without a loader.
        repeated: how often the most frequent of them was drawn.
        rows: number of summed gradients; -1 where they are not visible.
        own: whether Opacus's own code drew the noise.
        sampler: kind of sampler; "" without one, or if the data had another length before.
        rate: rate of a Poisson sampler, else 0.
        told: whether an accountant recorded the step.
        told_rate: sampling rate that it recorded, 0 without one.
        told_multiplier: noise multiplier that it recorded, 0 without one.
        adaptive: whether the clipping norm follows the gradients.
        secure: whether the noise is drawn in Opacus's secure mode.
    """

    optimizer: str
    noise_multiplier: float
    noise_norm: float
    sensitivity: float
    divisor: float
    sizes: tuple[int, ...]
    noise_energies: tuple[float, ...]
    noise: tuple[float, ...]
    clipped: bool | None
    records: int
    repeated: int
    rows: int
    own: bool
    sampler: str
    rate: float
    told: bool
    told_rate: float
    told_multiplier: float
    adaptive: bool
    secure: bool


@dataclass(frozen=True)
class LoopStatement:
    epsilon: float
    delta: float
    steps: int


@dataclass(frozen=True)
class ObservedRun:
    """Observations of one run.

    Attributes:
        steps: steps of Opacus's optimizers, () without any.
        statement: None where the loop did not query an accountant.
        counts: how often each record was drawn, [n]; () without a loader.
        records: checksums of the records of a loader, sorted; () where they are not known.
        computed: class of a loader's data set that computes its records; "" for any other.
        explained: whether those steps alone moved the model.
        epochs: passes over the data that steps drew from, unfinished ones included; 0 without a
            loader.
        beside: names and checksums of the model's integer tensors.
        unnoised: steps of an ordinary optimizer on the same model, after the first of them.
        start: checksum of the model before the first step, and of its parts that no step changes.
        released: checksum of all releases.
        values: number of different numbers in the releases.
    """

    steps: tuple[StepSeen, ...]
    statement: LoopStatement | None
    counts: tuple[int, ...]
    records: tuple[str, ...]
    computed: str
    explained: bool
    epochs: int
    beside: tuple[tuple[str, str], ...]
    unnoised: int
    start: str
    released: str
    values: int

    @property
    def samplers(self) -> str:
        return ", then ".join(dict.fromkeys(step.sampler for step in self.steps if step.sampler))


LEAST_SHARE = 0.97
"""Share of the configured noise that must have been measured in a supported loop."""

UNLUCKY = 0.001
"""Probability that correct noise of the planned number of runs does not show that share."""

SEEN = 0.95
"""Probability with which an audit detects the deviation that it states as detectable."""

TOLERANCE = 1e-3
"""Relative shortfall of noise that is due to rounding in float32 and in generators."""


@dataclass(frozen=True)
class NoiseSums:
    """Sums of observed noise over steps.

    Attributes:
        sizes: number of coordinates of each of the model's tensors, () before the first step.
        energies: squared lengths of the tensors' noise, in units of the configured variance.
        logs: sum of the logarithms of the steps' squared lengths.
        least: smallest configured noise multiplier of any step.
        own: whether Opacus's own code drew the noise of every step.
    """

    steps: int = 0
    sizes: tuple[int, ...] = ()
    energies: tuple[float, ...] = ()
    logs: float = 0.0
    least: float = math.inf
    own: bool = True

    @property
    def freedom(self) -> int:
        return self.steps * sum(self.sizes)

    def enough(self, confidence: float) -> bool:
        """Return whether no further runs are needed, also where there is no noise to observe."""
        sizes = [size for size in self.sizes if size]
        if not sizes:
            return True
        # Every tensor must show the share, so that they divide both errors.
        tail, miss = (1 - confidence) / len(sizes), UNLUCKY / len(sizes)
        return min(sizes) * self.steps >= freedom_for(LEAST_SHARE, tail, miss)

    def __add__(self, other: "NoiseSums") -> "NoiseSums":
        least, own = min(self.least, other.least), self.own and other.own
        if not self.steps or not other.steps:
            return replace(self if self.steps else other, least=least, own=own)
        if self.sizes != other.sizes:  # the noise of models of several sizes cannot be added
            return NoiseSums(least=least, own=own)
        energies = tuple(a + b for a, b in zip(self.energies, other.energies, strict=True))
        logs = self.logs + other.logs
        return NoiseSums(self.steps + other.steps, self.sizes, energies, logs, least, own)


NOTHING = NoiseSums()


def summed(steps: Iterable[StepSeen]) -> NoiseSums:
    """Return the sums over independent steps; no sums if a step is configured without noise."""
    parts = []
    for step in steps:
        std = step.noise_multiplier * step.noise_norm
        if std <= 0:
            return NoiseSums(least=0.0)
        energies = tuple(each / std**2 for each in step.noise_energies)
        log = math.log(max(sum(energies), 1e-300))
        parts.append(NoiseSums(1, step.sizes, energies, log, step.noise_multiplier, step.own))
    return total(parts)


def total(parts: Iterable[NoiseSums]) -> NoiseSums:
    return reduce(NoiseSums.__add__, parts, NoiseSums())


def at_least(energy: float, freedom: float, tail: float) -> float:
    """Return the lower limit of realised over configured noise, wrong with probability `tail`."""
    return math.sqrt(energy / chi2.isf(tail, freedom))


def interval(energy: float, freedom: float, tail: float) -> Interval:
    high = math.sqrt(energy / chi2.ppf(tail, freedom))
    return Interval(at_least(energy, freedom, tail), high, 1 - 2 * tail)


def least_seen(freedom: float, tail: float) -> float:
    """Return the share of the configured noise below which an audit raises an alarm with 95 %."""
    # A share s of the noise has an energy of s^2 times a chi-square. The alarm needs an energy
    # below the `tail` quantile, which s^2 times the 95 % quantile must reach.
    share = math.sqrt(chi2.ppf(tail, freedom) / chi2.ppf(SEEN, freedom))
    return min(share, 1.0) * (1 - TOLERANCE)


@cache
def freedom_for(share: float, tail: float, miss: float) -> float:
    """Return how many numbers of correct noise show that it is at least a share of the configured.

    Args:
        share: in (0, 1).
        tail: probability that the shown lower limit is wrong.
        miss: probability that so many numbers do not show the share.
    """
    freedom = 1.0
    # Correct noise whose energy is unluckily low must still have this lower limit.
    while chi2.ppf(miss, freedom) < share**2 * chi2.isf(tail, freedom):
        freedom *= 1.01
    return freedom


def shape_p_value(noise: NoiseSums) -> float:
    """Return an upper bound on the probability that Gaussian lengths are as uneven, or as even.

    The statistic is the likelihood ratio of one scale for all steps against one for each. The scale
    itself cancels. Steps of several scales, and dependent numbers, make the lengths more uneven;
    numbers of constant size make them more even. The statistic has the moments of a Dirichlet
    distribution. Chernoff's bound from them holds for any number of steps.
    """
    half, steps = sum(noise.sizes) / 2, noise.steps
    if steps < 2 or not half:
        return 1.0
    whole = half * steps
    # half * sum log(share of step i in all energy): the shares are Dirichlet, whatever the scale.
    ratio = half * noise.logs - whole * math.log(sum(noise.energies) or 1e-300)

    def bound(power: float) -> float:
        # log E e^(power R) - power * ratio (Chernoff), by the moments of a Dirichlet law.
        each = gammaln(half * (1 + power)) - gammaln(half)
        return float(steps * each + gammaln(whole) - gammaln(whole * (1 + power)) - power * ratio)

    # Negative powers bound the lower tail, of uneven steps; positive ones bound the upper tail.
    exponents = [
        minimize_scalar(bound, bounds=ends, method="bounded", options={"xatol": 1e-6}).fun
        for ends in ((-1 + 1e-6, 0.0), (0.0, 20.0))
    ]
    return float(min(1.0, 2 * np.exp(min(0.0, *exponents))))


def echo_p_value(noise: Floats) -> float:
    """Return the probability that fresh Gaussian noise [N] repeats itself as much at any distance.

    It repeats itself where the same numbers are used again, also reversed or moved: a product of
    numbers at one distance then has a mean other than 0. The normal approximation needs at least
    `LEAST_OVERLAP` products; Bonferroni's factor is for the distances.
    """
    distances = len(noise) - LEAST_OVERLAP
    if distances < 1:
        return 1.0
    spectrum = np.fft.rfft(noise, 2 * len(noise))
    sums = np.fft.irfft(np.abs(spectrum) ** 2)[1 : distances + 1]
    overlaps = len(noise) - np.arange(1, distances + 1)
    farthest = float(np.abs(sums / np.sqrt(overlaps)).max()) / float(np.mean(noise**2))
    return float(min(1.0, 2 * norm.sf(farthest) * distances))


def worst(noise: NoiseSums, tail: float) -> float:
    """Return the lower limit of the tensor with the least noise, which holds for all tensors."""
    return min(at_least(*each, tail / len(noise.sizes)) for each in of_tensors(noise))


def of_tensors(noise: NoiseSums) -> Sequence[tuple[float, int]]:
    return [
        (energy, size * noise.steps)
        for energy, size in zip(noise.energies, noise.sizes, strict=True)
        if size
    ]


World = Literal["present", "absent", "twin", "stranger"]


@dataclass(frozen=True)
class LoopOrder:
    function: str
    data: str
    records: int
    target: str
    neighbouring: str
    seed: int


@dataclass(frozen=True)
class LoopRequest:
    """A request after the order was answered.

    Attributes:
        kind: "observe" a run for each seed, "replay" one, "replace" single records in one, learn
            from "pilots", or "measure" runs; "share" what the pilots showed, or "take" it from
            another process.
        pair: index of the pair of worlds.
        world: world of observed runs.
        worlds: whether the target is in the data, for each measured run.
        direction: what another process shared.
    """

    kind: Literal["observe", "replay", "replace", "pilots", "measure", "share", "take"]
    pair: int
    seeds: tuple[int, ...]
    world: World = "present"
    worlds: tuple[bool, ...] = ()
    direction: str = ""


@dataclass(frozen=True)
class LoopAnswer(ProcessReply):
    pairs: tuple[str, ...] = ()
    many: bool = False
    learnt: Learnt | None = None
    runs: tuple[ObservedRun, ...] = ()
    echo: float = 1.0
    features: tuple[Features, ...] = ()
    noise: NoiseSums = NOTHING
    changed: tuple[str, ...] | None = ()
    influence: Influence = NO_INFLUENCE
    runs_made: int = 0
    direction: str = ""


ORDER, REQUEST, ANSWER = TypeAdapter(LoopOrder), TypeAdapter(LoopRequest), TypeAdapter(LoopAnswer)

LONGEST_DIRECTION = 2**30
"""Most bytes of a direction that processes share: about 100 million parameters."""


class LoopProcess:
    def __init__(self, order: LoopOrder, channel: Channel) -> None:
        self._channel, self.runs, self.noise = channel, 0, NoiseSums()
        answer = channel.ask(order, ANSWER)
        self.name, self.pairs, self.many = order.function, answer.pairs, answer.many

    def observed(
        self, pair: int, world: World, seeds: Sequence[int]
    ) -> tuple[tuple[ObservedRun, ...], float]:
        """Return honest runs, and the p-value of their noise's repetition."""
        self.runs += len(seeds)
        request = LoopRequest("observe", pair, tuple(seeds), world)
        answer = self._channel.ask(request, ANSWER)
        if len(answer.runs) != len(seeds):
            raise self._channel.no_measurement()
        return answer.runs, answer.echo

    def changed(self, pair: int, seed: int) -> tuple[str, ...] | None:
        self.runs += 4
        return self._channel.ask(LoopRequest("replay", pair, (seed,)), ANSWER).changed

    def influence(self, seed: int) -> Influence:
        """Return what a replaced record changes in the steps of a run with this seed."""
        answer = self._channel.ask(LoopRequest("replace", 0, (seed,)), ANSWER)
        self.runs += answer.runs_made
        return answer.influence

    def pilot(self, pair: int, seeds: Sequence[int]) -> Learnt:
        """Make the process learn a pair's direction from two runs a seed; return what it learnt."""
        self.runs += 2 * len(seeds)
        learnt = self._channel.ask(LoopRequest("pilots", pair, tuple(seeds)), ANSWER).learnt
        if learnt is None:
            raise self._channel.no_measurement()
        return learnt

    def take(self, pair: int, other: "LoopProcess") -> None:
        """Make the process measure as another one does, whose pilots it does not repeat."""
        # A direction has the size of the model.
        share = LoopRequest("share", pair, ())
        shared = other._channel.ask(share, ANSWER, LONGEST_DIRECTION).direction
        self._channel.ask(LoopRequest("take", pair, (), direction=shared), ANSWER)

    def features(
        self, pair: int, worlds: Sequence[bool], seeds: Sequence[int]
    ) -> tuple[tuple[Features, ...], NoiseSums]:
        """Return the features of each run, and the noise of their steps."""
        self.runs += len(seeds)
        request = LoopRequest("measure", pair, tuple(seeds), worlds=tuple(map(bool, worlds)))
        answer = self._channel.ask(request, ANSWER)
        if len(answer.features) != len(seeds):
            raise self._channel.no_measurement()
        return answer.features, answer.noise
