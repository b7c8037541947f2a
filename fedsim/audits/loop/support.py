"""What an audit of a loop could have shown, by its measured noise or by its attack."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binom, norm

from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, binomial_high, binomial_low
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.loop import guarantee, measurement
from fedsim.audits.loop.guarantee import NOISE_TAIL, LoopObservation
from fedsim.audits.loop.measurement import FULL, Learnt
from fedsim.privacy.mechanism import Neighbouring, sensitivity

SEEN_WITH = 0.95
"""Probability that an audit convicts noise as small as it states."""

LARGEST = 50.0
"""Largest mu considered; above it all trials are won."""

LARGEST_EPSILON = 700.0
"""Largest epsilon with a finite exponential; no number of trials convicts it."""

THRESHOLDS = np.linspace(-6.0, 12.0, 181)


@dataclass(frozen=True)
class Power:
    """What an audit could detect.

    Attributes:
        apart: distance of the judged runs' worlds by all steps, in standard deviations.
        needed: distance for a conviction in 95 % of audits; inf where no distance would do.
        multiplier: noise multiplier of a row below which the claim is convicted; 0 for none.
        of_steps: share of the noise that the claim needs, below which an audit convicts that has
            the sums of all steps, with the target in each; 0 for none.
    """

    learnt: Learnt
    apart: float
    needed: float
    multiplier: float
    of_steps: float

    @property
    def share(self) -> float:
        return min(1.0, self.apart / self.needed)

    def as_json(self) -> dict[str, Any]:
        needed = self.needed if math.isfinite(self.needed) else None
        return asdict(self) | {"needed": needed, "share": self.share, "seen_with": SEEN_WITH}


def power(
    learnt: Learnt, apart: float, trials: int, claim: Claim, neighbouring: Neighbouring
) -> Power:
    """Return what an audit of `trials` runs could detect in a loop without observed noise."""
    needed = least_apart(trials, claim.epsilon, claim.delta)
    multiplier = of_steps = 0.0
    if math.isfinite(needed):
        rate = 1.0 if learnt.rate >= FULL else learnt.rate
        # Central limit theorem of sampled Gaussian steps, as in `Direction.distance`.
        squared = (needed / rate) ** 2 / learnt.rows
        z = 1 / math.sqrt(squared if rate == 1 else math.log1p(squared))
        multiplier = z * sensitivity(neighbouring, 1.0)
        limit = gaussian.mu_of_epsilon(claim.epsilon, claim.delta)
        of_steps = min(1.0, limit / needed)
    return Power(learnt, apart, needed, multiplier, of_steps)


def least_apart(trials: int, epsilon: float, delta: float) -> float:
    """Return the smallest mu at which counting convicts a claim in `POWER` of audits; inf for none.

    The scores of the worlds are normal and mu apart, and the threshold is the best one. Each rate
    is at a quantile of its count, so that both hold with probability `POWER`.
    """
    if not _convicts(LARGEST, trials, epsilon, delta):
        return math.inf
    low, high = 0.0, LARGEST
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if _convicts(middle, trials, epsilon, delta) else (middle, high)
    return high


def _convicts(mu: float, trials: int, epsilon: float, delta: float) -> bool:
    with_it, without = (trials + 1) // 2, trials // 2
    miss, tail = (1 - SEEN_WITH) / 2, (1 - ALARM_CONFIDENCE) / 4  # two bounds, each of two rates
    # Unluckily few true and unluckily many false positives: each worse with probability `miss`.
    true = binom.ppf(miss, with_it, norm.sf(THRESHOLDS - mu))
    false = binom.ppf(1 - miss, without, norm.sf(THRESHOLDS))
    right, wrong = binomial_low(true, with_it, tail), binomial_high(false, without, tail)
    limit = math.exp(min(epsilon, LARGEST_EPSILON))
    # TPR <= e^epsilon FPR + delta, and the same inequality for TNR and FNR.
    above = (right - delta > limit * wrong) | (1 - wrong - delta > limit * (1 - right))
    return bool(above.any())


HALVINGS = 16


UNKNOWN = (
    "theory does not know the loop, and the attack disproved nothing. Theory covers loops in "
    "which Opacus's optimizer takes every step, and which return the model that these steps made"
)

BESIDE = (
    "besides its weights, the model carries content that differs between honest runs, or that "
    "cannot be read ({}); return a state dict of weights alone"
)

UNEVEN = (
    "the noise of the steps is not independent Gaussian noise of one scale (p below 1e-4), and "
    "theory covers no other noise"
)

LEAST = (
    "at least {0.at_least:.3g} of the configured noise was measured ({0.confidence:.0%} "
    "confidence, {0.runs} runs). At that noise, epsilon is {0.epsilon:.4g}, above the claimed "
    "{1:.4g}. "
)

MORE = (
    "About {} more runs would decide with 80 % probability, if the noise is as configured: give "
    "--trials {}"
)

NO_ROOM = (
    "No number of runs would decide, because the claim leaves no room for a measurement error; "
    "these runs support a claim of {:.4g}"
)


@dataclass(frozen=True)
class MeasuredNoise:
    """The measured noise of all steps, against the configured noise.

    Attributes:
        at_least: lower bound on the share of the configured noise that was added; at most 1.
        epsilon: by theory at that share; None where theory does not know the loop.
        seen_below: share below which the rule `realised-noise` objects with probability 95 %.
        numbers: number of coordinates of noise that were measured.
        runs_more: further runs that support the claim with probability 80 %, if the noise is as
            configured. 0: none are needed, or the noise is less. inf: no number would do.
    """

    at_least: float
    confidence: float
    epsilon: float | None
    seen_below: float
    numbers: int
    runs: int
    runs_more: float = 0

    def as_json(self) -> dict[str, Any]:
        more = self.runs_more if math.isfinite(self.runs_more) else None
        return asdict(self) | {"runs_more": more, "seen_with": measurement.SEEN}


def measured(
    observation: LoopObservation, delta: float, confidence: float, claim: float | None
) -> MeasuredNoise | None:
    """Return the measured noise; None where no step with noise was observed."""
    sums = observation.noise
    if not sums.steps or not observation.steps:
        return None
    tail = 1 - confidence
    least = min(1.0, measurement.worst(sums, tail))
    runs = sums.steps / len(observation.steps)
    epsilon = guarantee.epsilon(observation, delta, least)
    more = 0.0
    short = claim is not None and epsilon is not None and epsilon > claim
    if short and observation.noise_off is None:
        assert claim is not None
        low, high = least, 1.0  # bisection for the share at which epsilon is the claimed one
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = (guarantee.epsilon(observation, delta, middle) or math.inf) > claim
            low, high = (middle, high) if above else (low, middle)
        # Every tensor must have a high limit, so both errors are divided among them.
        needed = measurement.freedom_for(
            high, tail / len(sums.sizes), (1 - measurement.POWER) / len(sums.sizes)
        )
        smallest = min(size for size in sums.sizes if size)
        more = max(1.0, needed / smallest / len(observation.steps) - runs)
    return MeasuredNoise(
        at_least=least,
        confidence=confidence,
        epsilon=epsilon,
        seen_below=measurement.least_seen(sums.freedom, NOISE_TAIL),
        numbers=sums.freedom,
        runs=round(runs),
        runs_more=math.ceil(more) if math.isfinite(more) else math.inf,
    )


def not_judged(
    observation: LoopObservation,
    epsilon: float | None,
    noise: MeasuredNoise | None,
    claim: float,
    trials: int,
) -> str:
    """Return why a claim is not judged that nothing contradicts."""
    if beside := observation.beside:
        return BESIDE.format("; ".join(beside))
    if observation.steps and not observation.one_scale:
        return UNEVEN
    if epsilon is None or noise is None or noise.epsilon is None:
        return UNKNOWN
    least = LEAST.format(noise, claim)
    if math.isinf(noise.runs_more):
        return least + NO_ROOM.format(noise.epsilon)
    return least + MORE.format(int(noise.runs_more), int(trials + noise.runs_more))
