"""The table of rules on a training's steps, which every source of steps runs.

A loop that an auditor runs, an app's clients and a recorded loop fill an `Observation`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedsim.audits.judgement.claim import Finding, Severity
from fedsim.audits.steps import sampling
from fedsim.audits.steps.observation import Observation
from fedsim.audits.steps.watch import POISSON

EXCESS = 1e-3
"""Share by which a sum may exceed the clipping norm: gradients are clipped in single precision."""


Found = Callable[[Any], Any]
"""Returns what shows a mistake in a subject; falsy without one."""


@dataclass(frozen=True)
class Rule:
    """A mistake that an audit looks for.

    Attributes:
        name: of the mistake, which several rules may find.
        found: what it finds in a subject; falsy without a mistake.
        why: the mistake, as a sentence without a full stop; {0} is what was found, or {0}, {1} and
            so on the members of a tuple.
        mend: the change that mends it.
        severity: "alarm" where the guarantee is weaker than claimed: no claim is then supported.
            Else "caution" or "note".
    """

    name: str
    found: Found
    why: str
    mend: str = ""
    severity: Severity = "alarm"


def objections(rules: Iterable[Rule], subject: Any) -> tuple[Finding, ...]:
    """Return what the rules find in a subject, in their order."""
    found = [(rule, rule.found(subject)) for rule in rules]
    return tuple(
        Finding(_said(rule.why, each), rule.mend, rule.severity, rule.name)
        for rule, each in found
        if each
    )


def _said(sentence: str, found: Any) -> str:
    return sentence.format(*(found if isinstance(found, tuple) else (found,)))


@lru_cache(maxsize=2)  # theory asks for single rules
def findings(seen: Observation) -> tuple[Finding, ...]:
    """Return what the rules on steps find in a training."""
    return objections(OF_STEPS if seen.recorded else (*OF_RUNS, *OF_STEPS), seen)


def broken(seen: Observation, rule: str) -> bool:
    """Return whether a rule of this name finds anything."""
    return any(each.rule == rule for each in findings(seen))


def amplified(seen: Observation) -> bool:
    """Return whether recorded steps are declared Poisson samples, and nothing contradicts it."""
    return all(step.sample_rate for step in seen.steps) and not broken(seen, "sampler")


def _adaptive(seen: Observation) -> str:
    if any(step.adaptive for step in seen.steps):
        return "follows the share of unclipped gradients, whose denominator, the true batch size,"
    return "of a step differs between runs: it depends on the data, which" * (
        "clipping norm" in seen.varied
    )


def _untold(seen: Observation) -> tuple[int, int] | None:
    untold, steps = sum(step.charged is None for step in seen.steps), len(seen.steps)
    queried = seen.present[0].statement is not None
    known = seen.present[0].unnoised or not untold or not (queried or untold < steps)
    return None if known else (untold, steps)


def _without_noise(seen: Observation) -> str:
    usual = min((step.noise_multiplier or 0.0 for step in seen.steps), default=math.inf)
    if usual <= 0:
        return "0"
    less = bool(seen.steps) and seen.noise.least < usual * (1 - 1e-6)
    return f"{seen.noise.least:.3g} in one training, and at least {usual:.3g} in others" * less


def _unreleased(seen: Observation) -> str:
    # Steps without noise have their own finding.
    names = () if seen.present[0].unnoised else seen.changed or ()
    return ", ".join(names[:3]) + " and others" * (len(names) > 3)


def _unclipped(seen: Observation) -> tuple[int, int] | None:
    unclipped = sum(step.clipped is False for step in seen.all_steps)
    return (unclipped, len(seen.all_steps)) if unclipped else None


def _too_long(seen: Observation) -> tuple[float, int] | None:
    longest = max(
        (
            (step.sum_length / (step.batch * step.clipping_norm), step.batch)
            for step in seen.all_steps
            if step.sum_length and step.batch and step.clipping_norm
        ),
        default=(0.0, 0),
    )
    return longest if longest[0] > 1 + EXCESS else None


def _divisor_of_a_neighbour(seen: Observation) -> tuple[float, float] | None:
    return next(
        (
            (step.divisor, step.neighbour_divisor)
            for step in seen.steps
            if step.neighbour_divisor not in (None, step.divisor)
        ),
        None,
    )


def _undercharged(seen: Observation) -> tuple[float, float] | None:
    """Return an accountant's noise multiplier above that of its step; adaptive steps aside."""
    pairs = (
        (step.charged.noise_multiplier, step.noise_multiplier)
        for step in seen.steps
        if step.charged is not None and step.noise_multiplier is not None and not step.adaptive
    )
    return next((pair for pair in pairs if pair[0] > pair[1] * (1 + EXCESS)), None)


def _uncounted(seen: Observation) -> tuple[int, int, str] | None:
    """Return the steps that an accountant's last answer counts, if they are not all."""
    steps = [step for step in seen.steps if seen.recorded or step.charged is not None]
    last = seen.steps[-1].charged if seen.recorded and steps else seen.present[0].statement
    if last is None or last.steps >= len(steps):
        return None
    engines = len({step.engine for step in steps})
    return last.steps, len(steps), f" ({engines} engines)" * (engines > 1)


def _other_sampler(seen: Observation) -> tuple[float, str] | None:
    unlike = (step for step in seen.steps if step.sampling not in ("", POISSON))
    rates = ((step.charged_rate, step.sampling) for step in unlike if 0 < step.charged_rate < 1)
    return next(rates, None)


SAMPLER = "leave poisson_sampling=True, or account for every step without amplification"
CLIP = "clip every record's gradient before summation, as Opacus's optimizer does"
EXPECTED = "divide by the expected size of a batch, fixed beforehand"

OF_RUNS = (
    Rule(
        "data-dependent-divisor",
        lambda seen: "; ".join(seen.unlike),
        "{0}: the release reveals the number of records. Opacus takes the divisor int(n / m) and "
        "the rate 1 / m from the number of records n, with m = ceil(n / b) batches of b",
        "fix the number of steps and optimizer.expected_batch_size beforehand, or choose a number "
        "of records n with which the divisor and m are those of n - 1",
    ),
    Rule(
        "data-dependent-records",
        lambda seen: seen.displaced if seen.displaced > 1 else 0,
        "if one record changes, {0} of the loader's records change: a record is there several "
        "times, or the loop scales or chooses records by the data",
        "hold each record once, and take means, scales and choices from public data",
    ),
    Rule(
        "record-moves-step",
        lambda seen: seen.influence if seen.entangled else None,
        "with one record replaced, a step's sum moved by {0.moved:.3g} C, without noise, and "
        "{0.gradients} of its gradients changed; with half of them replaced, {0.strays} more "
        "gradients changed than records. One gradient a record, clipped to C, moves at most 2 C",
        "compute each record's gradient from that record alone, and clip it once: average the "
        "gradients of augmented copies before clipping",
    ),
    Rule(
        "untold-steps",
        lambda seen: seen.present[0].unnoised,
        "an ordinary optimizer took {0} steps on the model, without noise",
        "take every step with Opacus's optimizer",
    ),
    Rule(
        "untold-steps",
        _untold,
        "no accountant recorded {0} of {1} steps",
        "leave the accountant's hook attached to the optimizer, as make_private does",
    ),
    Rule(
        "realised-noise",
        lambda seen: seen.noise_off,
        "{0} the noise is {1.low:.3g} to {1.high:.3g} times the configured noise (99.99 %)",
        "let Opacus's optimizer alone add noise, once for each step",
    ),
    Rule(
        "adaptive-clipping",
        _adaptive,
        "the clipping norm {0} has no noise and is in no accountant",
        "fix the clipping norm or its schedule beforehand",
    ),
    Rule(
        "no-noise",
        _without_noise,
        "the noise multiplier of a step is {0}",
        "use one noise multiplier above 0, or one schedule, in every training",
    ),
    Rule(
        "unreleased-change",
        _unreleased,
        "with other data but the same released steps, the final model still differs (tensor {0})",
        "let Opacus's optimizer train every parameter that learns, freeze the others, and take "
        "buffers, learning rates and stopping from public data",
    ),
    Rule(
        "seeded-noise",
        lambda seen: seen.seeded,
        "runs with different seeds, or two steps, have the same noise, in other places too or with "
        "the other sign",
        "draw all noise from one generator without a constant seed, and never set it back",
    ),
    Rule(
        "secure-noise",
        lambda seen: any(step.randomness != "secure" for step in seen.steps),
        "the noise comes from PyTorch's own generator, in floating point, which can be predicted",
        "for real records, use PrivacyEngine(secure_mode=True), which needs torchcsprng",
        "note",
    ),
)
"""Rules that need runs of the auditor's own, such as a replay or replaced records."""

OF_STEPS = (
    Rule(
        "sampler",
        lambda seen: seen.recorded and _other_sampler(seen),
        "the accountant assumes Poisson samples of rate {0:g}, but batches come from {1}. "
        "Amplification by sampling is not proven",
        SAMPLER,
        "caution",
    ),
    Rule(
        "sampler",
        lambda seen: (most := max([1, *(step.accumulated for step in seen.steps)])) > 1 and most,
        "one step combines {0} batches, and a record may be in several of them. Amplification by "
        "sampling is not proven",
        SAMPLER,
        "caution",
    ),
    Rule(
        "sampler",
        lambda seen: not seen.kept_by_chance and sampling.sizes(seen.sampled),
        "the sizes of the batches contradict Poisson sampling at {0:.4g} (p = {3:.2g}). Their mean "
        "is that of rate {1:.4g}, and their variance {2:.3g} times that of Poisson sampling. "
        "Amplification by sampling is not proven",
        SAMPLER,
    ),
    Rule(
        "sampler",
        lambda seen: any(step.repeated > 1 for step in seen.sampled),
        "a record was twice in one step, and may change the sum by twice the clipping norm",
        SAMPLER,
    ),
    Rule(
        "sampler",
        lambda seen: not seen.kept_by_chance and sampling.favoured(seen.sampled),
        "a record was in {} of {} batches, too many for a sampling rate of {:.4g}: its rate is at "
        "least {:.3g} (99.99 % confidence, for all records together)",
        SAMPLER,
    ),
    Rule(
        "clipping",
        _unclipped,
        "in {0} of {1} steps the noised sum is not the sum of each record's clipped gradient",
        CLIP,
    ),
    Rule(
        "clipping",
        _too_long,
        "the clipped sum is up to {0:.4g} times as long as that of {1} clipped gradients can be: "
        "they are clipped to more than the norm that scales the noise, or part by part",
        CLIP,
    ),
    Rule(
        "data-dependent-divisor",
        _divisor_of_a_neighbour,
        "the divisor is {0:g}, but {1:g} with one record fewer, which no epsilon here covers. If "
        "the size of the data set is public, record with size_public=True",
        EXPECTED,
    ),
    Rule(
        "data-dependent-divisor",
        lambda seen: seen.divides_by_batch,
        "the divisor is the size of the drawn batch, so that neighbours also differ in the scale "
        "of the noise, which no accountant here covers",
        EXPECTED,
    ),
    Rule(
        "noise-norm",
        _undercharged,
        "the accountant recorded a noise multiplier of {0:.4g}, but the release had {1:.4g}",
        "scale the noise with the clipping norm of the whole gradient: the square root of the sum "
        "of the layers' squared norms",
    ),
    Rule(
        "rebuilt-accountant",
        _uncounted,
        "the accountant counts {0} of {1} steps: it was restarted{2}; this audit composes all",
        "keep one PrivacyEngine, or load the accountant's state into the next one",
        "caution",
    ),
)
"""Rules that the steps of one run can show, recorded or not."""


# Reasons of a verdict

UNKNOWN = (
    "theory covers only loops in which Opacus's optimizer takes every step, and which return the "
    "model that these steps made"
)

UNKNOWNS: Mapping[str, Found] = {
    "besides its weights, the model has numbers that differ between honest runs ({0}); return a "
    "state dict of weights alone": lambda seen: "; ".join(seen.beside),
    "the noise of the steps is not independent Gaussian noise of one scale (p below 1e-4)": (
        lambda seen: bool(seen.steps) and not seen.one_scale
    ),
    "two runs with one seed on the same records end with different models": (
        lambda seen: seen.changed is None
    ),
    UNKNOWN: lambda seen: True,
}
"""Why theory has no epsilon; the first that applies counts."""

DOUBTS: Mapping[str, Found] = {
    "the loader's data set, a {0}, computes its records, so that one record may be in several of "
    "them; use a TensorDataset of the records, or a data set that returns them unchanged": (
        lambda seen: seen.present[0].computed
    ),
    "the loader has {0} records and the data {1}, so that a record may be there twice": (
        lambda seen: (size := seen.present[0].size) > seen.records and (size, seen.records)
    ),
    "a step sums more or fewer gradients than the loader drew records for it": lambda seen: any(
        None not in (step.rows, step.batch) and step.rows != step.batch for step in seen.steps
    ),
    "the audit cannot tell how far one record moves a step: {0}": (
        lambda seen: seen.influence.unseen
    ),
    "with half of all records replaced, {0} gradients of a step changed whose records were not "
    "replaced; keep the batch's records in the order in which the loader drew them": (
        lambda seen: seen.influence.elsewhere
    ),
    "the loop's own code adds the noise, and no measurement shows that it is fresh in every step "
    "of every training; let Opacus's optimizer add it": lambda seen: (
        not (seen.recorded or seen.noise.own)
    ),
    "the audit cannot tell whether batches are Poisson samples: their sizes or the number of "
    "records were not recorded, or too few were recorded to exclude one fixed size; record more "
    "steps, or call the recorder on the Opacus engine before make_private": lambda seen: (
        seen.recorded and amplified(seen) and not sampling.tested(seen.steps)
    ),
}
"""What theory takes for granted about records and noise, and the audit cannot check."""


def reasons(table: Mapping[str, Found], seen: Observation) -> tuple[str, ...]:
    """Return the sentences of a table that apply, by what each finds."""
    found = {why: one(seen) for why, one in table.items()}
    return tuple(_said(why, each) for why, each in found.items() if each)
