"""What an audit of a loop could have shown, by its measured noise or by its attack."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binom, norm

from adversaries.statistics.intervals import ALARM_CONFIDENCE, binomial_high, binomial_low
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.loop import guarantee
from fedsim.audits.loop.guarantee import NOISE_TAIL, LoopObservation
from fedsim.audits.run import detectable
from fedsim.audits.run.detectable import POWER
from fedsim.audits.steps import noise as of_noise

LARGEST = 50.0
"""Largest mu considered; above it all trials are won."""

LARGEST_EPSILON = 700.0
"""Largest epsilon with a finite exponential; no number of trials convicts it."""

THRESHOLDS = np.linspace(-6.0, 12.0, 181)


@dataclass(frozen=True)
class Power:
    """What counts of trials could detect in a loop whose noise was not observed.

    Attributes:
        apart: distance of the judged runs' worlds by all steps, in standard deviations.
        needed: distance for a conviction in 95 % of audits; inf where no distance would do.
    """

    apart: float
    needed: float

    @property
    def share(self) -> float:
        """Share of the present noise below which these trials would convict the loop."""
        return min(1.0, self.apart / self.needed)

    def as_json(self) -> dict[str, Any]:
        needed = self.needed if math.isfinite(self.needed) else None
        return asdict(self) | {"needed": needed, "share": self.share, "seen_with": POWER}


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
    miss, tail = (1 - POWER) / 2, (1 - ALARM_CONFIDENCE) / 4  # two bounds, each of two rates
    # Unluckily few true and unluckily many false positives: each worse with probability `miss`.
    true = binom.ppf(miss, with_it, norm.sf(THRESHOLDS - mu))
    false = binom.ppf(1 - miss, without, norm.sf(THRESHOLDS))
    right, wrong = binomial_low(true, with_it, tail), binomial_high(false, without, tail)
    limit = math.exp(min(epsilon, LARGEST_EPSILON))
    # TPR <= e^epsilon FPR + delta, and the same inequality for TNR and FNR.
    above = (right - delta > limit * wrong) | (1 - wrong - delta > limit * (1 - right))
    return bool(above.any())


UNKNOWN = (
    "theory does not know the loop. Theory covers loops in which Opacus's optimizer takes every "
    "step, and which return the model that these steps made"
)

SUPPORTED = (
    "noise at least {0.at_least:.1%} of the configured noise, at which epsilon is "
    "{0.epsilon:.4g} ({0.confidence:.0%} confidence). A training without noise that happens less "
    "often than once in {1:,} would have been missed. For the change by other records, {2.places} "
    "were replaced one at a time, and half of all records in {2.halves} runs"
)

ABOVE = (
    "the attack measured epsilon of at least {:.3g}, above the claimed {:.3g}, with {:.0%} "
    "confidence"
)

MOVED = (
    "one record moved every step that it was in by at least {:.3g} C, with C the clipping norm; "
    "at most 2 C are accounted for"
)


@dataclass(frozen=True)
class MeasuredNoise:
    """The measured noise of all steps, against the configured noise.

    Attributes:
        at_least: lower bound on the share of the configured noise that was added; at most 1.
        epsilon: by theory at that share; None where theory does not know the loop.
        seen_below: share below which the rule `realised-noise` objects with probability 95 %.
        numbers: number of coordinates of noise that were measured.
    """

    at_least: float
    confidence: float
    epsilon: float | None
    seen_below: float
    numbers: int
    runs: int

    @property
    def missed_below(self) -> float:
        """Share of trainings with missing noise below which all `runs` had noise by chance."""
        return float(1 - (1 - POWER) ** (1 / max(1, self.runs)))

    def as_json(self) -> dict[str, Any]:
        seen = {"missed_below": self.missed_below, "seen_with": POWER}
        return asdict(self) | seen


def measured(observation: LoopObservation, delta: float, confidence: float) -> MeasuredNoise | None:
    """Return the measured noise; None where no step with noise was observed."""
    sums = observation.noise
    if not sums.steps or not observation.steps:
        return None
    least = min(1.0, of_noise.worst(sums, 1 - confidence))
    return MeasuredNoise(
        at_least=least,
        confidence=confidence,
        epsilon=guarantee.epsilon(observation, delta, least),
        seen_below=detectable.by_energy(sums.freedom, NOISE_TAIL) * (1 - of_noise.TOLERANCE),
        numbers=sums.freedom,
        runs=round(sums.steps / len(observation.steps)),
    )


def unknown(observation: LoopObservation, epsilon: float | None) -> list[str]:
    """Return why theory has no epsilon; empty where it has one."""
    beside = "; ".join(observation.beside)
    reasons = {
        "besides its weights, the model has numbers that differ between honest runs "
        f"({beside}); return a state dict of weights alone": bool(beside),
        "the noise of the steps is not independent Gaussian noise of one scale (p below 1e-4), and "
        "theory covers no other noise": bool(observation.steps) and not observation.one_scale,
        "two runs with one seed on the same records end with different models": (
            observation.changed is None
        ),
        UNKNOWN: True,
    }
    return [] if epsilon is not None else [next(why for why, holds in reasons.items() if holds)]


def doubts(observation: LoopObservation) -> list[str]:
    """Return what theory takes for granted about records and noise, and the audit cannot check."""
    run, found = observation.present[0], observation.influence
    seen = [step for step in run.steps if step.rows is not None and step.batch is not None]
    rows, batch = next(
        ((step.rows, step.batch) for step in seen if step.rows != step.batch), (None, None)
    )
    reasons = {
        f"the loader's data set, a {run.computed}, computes its records, so that one record may be "
        "in several of them; use a TensorDataset of the records, or a data set that returns them "
        "unchanged": bool(run.computed),
        f"the loader has {run.size} records and the data {observation.records}, so that a record "
        "may be there twice": run.size > observation.records,
        f"a step sums {rows} gradients, but the loader drew {batch} records for it; take one "
        "gradient of each": rows is not None,
        f"the audit cannot tell how far one record moves a step: {found.unseen}": bool(
            found.unseen
        ),
        f"one replaced record changed the gradients of {found.items} of the loader's records": (
            found.items > 1
        ),
        f"with half of all records replaced, {found.elsewhere} gradients of a step changed whose "
        "records were not replaced; keep the batch's records in the order in which the loader drew "
        "them": found.elsewhere > 0,
        f"{found.alike} of the loader's records equal others and are no given records, so that a "
        "record may be there twice": found.alike > 0,
        "the loop's own code adds the noise, and no measurement shows that it is fresh in every "
        "step of every training; let Opacus's optimizer add it": not observation.noise.own,
    }
    return [reason for reason, holds in reasons.items() if holds]


def short(noise: MeasuredNoise | None, claim: Claim, strict: bool) -> list[str]:
    """Return why the measured noise does not support a claim; empty where it does.

    strict: whether the claim must hold at the measured noise, not at the configured one.
    """
    if noise is None or noise.epsilon is None:
        return [UNKNOWN]
    sure = f"({noise.confidence:.0%} confidence, {noise.runs} runs)"
    least = of_noise.LEAST_SHARE
    reasons = {
        f"at least {noise.at_least:.3g} of the configured noise was measured {sure}. At that "
        f"noise, epsilon is {noise.epsilon:.4g}, above the claimed {claim.epsilon:.4g}, and "
        "--strict asks for the claim at the measured noise. More --trials narrow this": (
            strict and not claim.allows(noise.epsilon)
        ),
        f"only {noise.at_least:.3g} of the configured noise was measured {sure}, below "
        f"{least:.2g}; give more --trials": not strict and noise.at_least < least,
    }
    return [reason for reason, holds in reasons.items() if holds]
