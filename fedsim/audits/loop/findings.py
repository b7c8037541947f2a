"""What is wrong with a loop, what an audit cannot tell about it, and how much noise it measured."""

import math
from dataclasses import dataclass

from fedsim.audits.judgement.claim import Finding, Rule, objections
from fedsim.audits.loop import observation as theory
from fedsim.audits.loop.observation import NOISE_TAIL, LoopObservation
from fedsim.audits.results.numbers import Real
from fedsim.audits.results.rows import Noise
from fedsim.audits.run import detectable
from fedsim.audits.run.detectable import POWER
from fedsim.audits.steps import checks
from fedsim.audits.steps import noise as of_noise


def _untold(seen: LoopObservation) -> str:
    if unnoised := seen.present[0].unnoised:
        return f"an ordinary optimizer took {unnoised} steps on the model, without noise"
    untold = sum(step.charged is None for step in seen.steps)
    queried = seen.present[0].statement is not None
    if not untold or not (queried or untold < len(seen.steps)):
        return ""
    return f"no accountant recorded {untold} of {len(seen.steps)} steps"


def _adaptive(seen: LoopObservation) -> str:
    if any(step.adaptive for step in seen.steps):
        return "follows the share of unclipped gradients, whose denominator, the true batch size,"
    return "of a step differs between runs: it depends on the data, which" * (
        "clipping norm" in seen.varied
    )


def _without_noise(seen: LoopObservation) -> str:
    usual = min((step.noise_multiplier or 0.0 for step in seen.steps), default=math.inf)
    if usual <= 0:
        return "0"
    less = bool(seen.steps) and seen.noise.least < usual * (1 - 1e-6)
    return f"{seen.noise.least:.3g} in one training, and at least {usual:.3g} in others" * less


def _unreleased(seen: LoopObservation) -> str:
    # Steps without noise have their own finding.
    names = () if seen.present[0].unnoised else seen.changed or ()
    return ", ".join(names[:3]) + " and others" * (len(names) > 3)


RULES: dict[str, Rule] = {
    "data-dependent-divisor": Rule(
        lambda seen: "; ".join(seen.unlike),
        "{0}: the release reveals the number of records, and the scale of the noise changes with "
        "it. Opacus takes the divisor int(n / m) and the rate 1 / m from the number of records n, "
        "with m = ceil(n / b) batches of b",
        "fix the batch size, the number of steps and optimizer.expected_batch_size beforehand, or "
        "choose a number of records n with which the divisor and m are those of n - 1",
    ),
    "data-dependent-records": Rule(
        lambda seen: seen.displaced if seen.displaced > 1 else 0,
        "if one record of the data changes, {0} of the loader's records change: the data set holds "
        "a record several times, or the loop reads the data before the first noisy step, to scale "
        "or to choose records",
        "hold each record once, and take means, scales and choices from public data",
    ),
    "record-moves-step": Rule(
        lambda seen: seen.influence if seen.entangled else None,
        "with one record replaced and the noise subtracted, a step's sum moved by {0.moved:.3g} C "
        "and {0.gradients} of its gradients changed; with half of all records replaced, {0.strays} "
        "more gradients of a step changed than it had replaced records. If each record is in one "
        "gradient, clipped to C, at most 2 C, one gradient and no more change",
        "compute each record's gradient from that record alone, and clip it once: average the "
        "gradients of augmented copies before clipping",
    ),
    "untold-steps": Rule(
        _untold,
        "{0}",
        "take every step with Opacus's optimizer, and leave the accountant's hook attached to it, "
        "as PrivacyEngine.make_private does",
    ),
    "realised-noise": Rule(
        lambda seen: seen.noise_off,
        "{0[0]} the noise is {0[1].low:.3g} to {0[1].high:.3g} times the configured noise "
        "(chi-square, 99.99 % for all steps and tensors together)",
        "let Opacus's optimizer alone add noise, once for each step",
    ),
    "adaptive-clipping": Rule(
        _adaptive,
        "the clipping norm {0} has no noise and is in no accountant",
        "fix the clipping norm or its schedule beforehand, or add noise to the number that sets "
        "it, and account for that noise",
    ),
    "no-noise": Rule(
        _without_noise,
        "the noise multiplier of a step is {0}",
        "use one noise multiplier above 0, or one schedule, in every training",
    ),
    "unreleased-change": Rule(
        _unreleased,
        "with other data but the same released steps, the final model still differs (tensor {0}): "
        "something without noise changes it",
        "let Opacus's optimizer train every parameter that learns, freeze the others, and take "
        "buffers, learning rates and stopping from public data",
    ),
    "seeded-noise": Rule(
        lambda seen: seen.seeded,
        "runs with different seeds, or two steps, have the same noise, or the same in other places "
        "or with the other sign: the loop sets its own seed, or uses noise again",
        "draw all noise from one generator without a constant seed, and never set it back",
    ),
    "secure-noise": Rule(
        lambda seen: any(step.randomness != "secure" for step in seen.steps),
        "the noise comes from PyTorch's own generator, in floating point, which can be predicted",
        "for real records, use PrivacyEngine(secure_mode=True), which needs torchcsprng",
        "note",
    ),
}


def findings(seen: LoopObservation) -> tuple[Finding, ...]:
    """Return what the rules find in a loop, and the checks of its steps."""
    made = [*seen.batches, *checks.undercharged(seen.steps), *checks.sums(seen.all_steps)]
    statement = seen.present[0].statement
    if statement is not None:
        charged = [step for step in seen.steps if step.charged is not None]
        made += checks.uncounted(charged, statement.steps)
    return (*objections(RULES, seen), *made)


# Measured noise


@dataclass(frozen=True)
class MeasuredNoise:
    """The measured noise of all steps, against the configured noise."""

    at_least: Real
    """Lower bound on the share of the configured noise that was added; at most 1."""
    confidence: Real
    epsilon: Real | None
    """Epsilon at the least noise that was measured; None where theory does not know the loop."""
    seen_below: Real
    """Share below which the rule `realised-noise` objects with probability 95 %."""
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


def measured(seen: LoopObservation, delta: float, confidence: float) -> MeasuredNoise | None:
    """Return the measured noise; None where no step with noise was observed."""
    sums = seen.noise
    if not sums.steps or not seen.steps:
        return None
    least = min(1.0, of_noise.worst(sums, 1 - confidence))
    return MeasuredNoise(
        at_least=least,
        confidence=confidence,
        epsilon=theory.epsilon(seen, delta, least),
        seen_below=detectable.by_energy(sums.freedom, NOISE_TAIL) * (1 - of_noise.TOLERANCE),
        numbers=sums.freedom,
        runs=round(sums.steps / len(seen.steps)),
    )


# Reasons of a verdict

UNKNOWN = (
    "theory does not know the loop. Theory covers loops in which Opacus's optimizer takes every "
    "step, and which return the model that these steps made"
)


def unknown(seen: LoopObservation, epsilon: float | None) -> list[str]:
    """Return why theory has no epsilon; empty where it has one."""
    reasons = {
        "besides its weights, the model has numbers that differ between honest runs "
        f"({'; '.join(seen.beside)}); return a state dict of weights alone": bool(seen.beside),
        "the noise of the steps is not independent Gaussian noise of one scale (p below 1e-4), and "
        "theory covers no other noise": bool(seen.steps) and not seen.one_scale,
        "two runs with one seed on the same records end with different models": (
            seen.changed is None
        ),
        UNKNOWN: True,
    }
    return [] if epsilon is not None else [next(why for why, holds in reasons.items() if holds)]


def doubts(seen: LoopObservation) -> list[str]:
    """Return what theory takes for granted about records and noise, and the audit cannot check."""
    run, found = seen.present[0], seen.influence
    known = [step for step in run.steps if step.rows is not None and step.batch is not None]
    reasons = {
        f"the loader's data set, a {run.computed}, computes its records, so that one record may be "
        "in several of them; use a TensorDataset of the records, or a data set that returns them "
        "unchanged": bool(run.computed),
        f"the loader has {run.size} records and the data {seen.records}, so that a record may be "
        "there twice": run.size > seen.records,
        "a step sums more or fewer gradients than the loader drew records for it; take one "
        "gradient of each": any(step.rows != step.batch for step in known),
        f"the audit cannot tell how far one record moves a step: {found.unseen}": bool(
            found.unseen
        ),
        f"with half of all records replaced, {found.elsewhere} gradients of a step changed whose "
        "records were not replaced; keep the batch's records in the order in which the loader drew "
        "them": found.elsewhere > 0,
        "the loop's own code adds the noise, and no measurement shows that it is fresh in every "
        "step of every training; let Opacus's optimizer add it": not seen.noise.own,
    }
    return [reason for reason, holds in reasons.items() if holds]


def short(noise: MeasuredNoise | None) -> list[str]:
    """Return why the measured noise does not support a claim; empty where it does."""
    if noise is None or noise.epsilon is None:
        return [UNKNOWN]
    if noise.at_least >= of_noise.LEAST_SHARE:
        return []
    return [
        f"only {noise.at_least:.3g} of the configured noise was measured ({noise.confidence:.0%} "
        f"confidence, {noise.runs} runs), below {of_noise.LEAST_SHARE:.2g}; give more --trials"
    ]
