"""What an audit of a loop could have shown, by its measured noise or by its attack."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, norm

from adversaries.statistics.intervals import ALARM_CONFIDENCE, binomial_high, binomial_low
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.loop import guarantee
from fedsim.audits.loop.guarantee import NOISE_TAIL, LoopObservation
from fedsim.audits.results.rows import Noise
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

BESIDE = (
    "besides its weights, the model has numbers that differ between honest runs ({}); return a "
    "state dict of weights alone"
)

UNEVEN = (
    "the noise of the steps is not independent Gaussian noise of one scale (p below 1e-4), and "
    "theory covers no other noise"
)

UNREPEATED = "two runs with one seed on the same records end with different models"

STRICT = (
    "at least {0.at_least:.3g} of the configured noise was measured ({0.confidence:.0%} "
    "confidence, {0.runs} runs). At that noise, epsilon is {0.epsilon:.4g}, above the claimed "
    "{1:.4g}, and --strict asks for the claim at the measured noise. More --trials narrow this"
)

SHORT = (
    "only {0.at_least:.3g} of the configured noise was measured ({0.confidence:.0%} confidence, "
    "{0.runs} runs), below {1:.2g}; give more --trials"
)

COMPUTED = (
    "the loader's data set, a {}, computes its records, so that one record may be in several of "
    "them; use a TensorDataset of the records, or a data set that returns them unchanged"
)

MORE_RECORDS = "the loader has {} records and the data {}, so that a record may be there twice"

OTHER_ROWS = (
    "a step sums {} gradients, but the loader drew {} records for it; take one gradient of each"
)

SEVERAL_ITEMS = "one replaced record changed the gradients of {} of the loader's records"

ELSEWHERE = (
    "with half of all records replaced, {} gradients of a step changed whose records were not "
    "replaced; keep the batch's records in the order in which the loader drew them"
)

ALIKE = (
    "{} of the loader's records equal others and are no given records, so that a record may be "
    "there twice"
)

NOT_COMPARED = "the audit cannot tell how far one record moves a step: {}"

OWN_NOISE = (
    "the loop's own code adds the noise, and no measurement shows that it is fresh in every step "
    "of every training; let Opacus's optimizer add it"
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
    def ratio(self) -> Noise:
        """The measured noise over the configured noise, of which the low end is known."""
        return Noise(self.at_least, math.inf, self.confidence)

    @property
    def missed_below(self) -> float:
        """Share of trainings with missing noise below which all `runs` had noise by chance."""
        return float(1 - (1 - POWER) ** (1 / max(1, self.runs)))


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
    if epsilon is not None:
        return []
    if beside := observation.beside:
        return [BESIDE.format("; ".join(beside))]
    if observation.steps and not observation.one_scale:
        return [UNEVEN]
    if observation.changed is None:
        return [UNREPEATED]
    return [UNKNOWN]


def doubts(observation: LoopObservation) -> list[str]:
    """Return what theory takes for granted about records and noise, and the audit cannot check."""
    run, found = observation.present[0], observation.influence
    seen = [step for step in run.steps if step.rows is not None and step.batch is not None]
    other = next((step for step in seen if step.rows != step.batch), None)
    reasons = {
        COMPUTED.format(run.computed): bool(run.computed),
        MORE_RECORDS.format(run.size, observation.records): (run.size > observation.records),
        OTHER_ROWS.format(other and other.rows, other and other.batch): other is not None,
        NOT_COMPARED.format(found.unseen): bool(found.unseen),
        SEVERAL_ITEMS.format(found.items): found.items > 1,
        ELSEWHERE.format(found.elsewhere): found.elsewhere > 0,
        ALIKE.format(found.alike): found.alike > 0,
        OWN_NOISE: not observation.noise.own,
    }
    return [reason for reason, holds in reasons.items() if holds]


def short(noise: MeasuredNoise | None, claim: Claim, strict: bool) -> list[str]:
    """Return why the measured noise does not support a claim; empty where it does.

    Args:
        strict: whether the claim must hold at the measured noise, not at the configured one.
    """
    if noise is None or noise.epsilon is None:
        return [UNKNOWN]
    if strict:
        return [] if claim.allows(noise.epsilon) else [STRICT.format(noise, claim.epsilon)]
    least = of_noise.LEAST_SHARE
    return [] if noise.at_least >= least else [SHORT.format(noise, least)]
