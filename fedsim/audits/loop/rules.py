"""The rules of a loop audit: what is wrong with a loop that uses Opacus, why, and how to mend it.

A rule is a function of the observations of honest runs that returns a finding or None. A new rule
is one function and one entry in `RULES`.
"""

from dataclasses import replace

from fedsim.audits.judgement.claim import Finding, Rule, objections
from fedsim.audits.loop.guarantee import LoopObservation
from fedsim.audits.steps import checks


def _alarm(findings: list[Finding], mend: str) -> Finding | None:
    return replace(findings[0], severity="alarm", mend=mend) if findings else None


def _data_dependent(runs: LoopObservation) -> Finding | None:
    if not runs.unlike:
        return None
    return Finding(
        f"{'; '.join(runs.unlike)}: the release reveals the number of records, and the scale of "
        f"the noise changes with it. Opacus takes the divisor int(n / m) and the rate 1 / m from "
        f"the number of records n, with m = ceil(n / b) batches of b",
        "fix the batch size, the number of steps and optimizer.expected_batch_size beforehand, "
        "or choose a number of records n with which the divisor and m are those of n - 1",
    )


def _data_dependent_records(runs: LoopObservation) -> Finding | None:
    if runs.displaced <= 1:
        return None
    found = runs.influence
    times = f" (record {found.copied} is in the loader {found.copies} times)"
    return Finding(
        f"if one record of the data changes, {runs.displaced} of the loader's records change"
        f"{times if found.copied >= 0 else ''}: the "
        "data set holds a record several times, or the loop reads the data before the first noisy "
        "step, to scale or to choose records",
        "hold each record once, and take means, scales and choices from public data",
    )


def _one_record_moves(runs: LoopObservation) -> Finding | None:
    if runs.moved == 1 and runs.entangled <= 1 and not runs.strays:
        return None
    found = runs.influence
    halves = (
        f"with half of all records replaced, {runs.strays} more of a step's gradients changed than "
        "it had replaced records; "
    )
    return Finding(
        f"{halves if runs.strays else ''}with one record replaced and the noise subtracted, a "
        f"step's sum moved by {found.moved:.3g} C and {found.gradients} of its gradients changed. "
        "If each record is in one gradient, clipped to C, at most 2 C and one gradient change",
        "compute each record's gradient from that record alone, and clip it once: average the "
        "gradients of augmented copies before clipping",
    )


def _sampler(runs: LoopObservation) -> Finding | None:
    wrong = runs.batches
    if not wrong:
        return None
    kind = f" ({samplers})" if (samplers := runs.present[0].samplers) else ""
    return Finding(
        f"the accountant assumes Poisson sampling, but the loader's batches{kind} contradict this: "
        + "; ".join(each.why for each in wrong),
        "leave poisson_sampling=True, or account for every step without amplification",
    )


def _rebuilt(runs: LoopObservation) -> Finding | None:
    charged = [step for step in runs.steps if step.charged is not None]
    statement = runs.present[0].statement
    if statement is None:
        return None
    mend = "keep one PrivacyEngine, or load the accountant's state into the next one"
    return _alarm(checks.uncounted(charged, statement.steps), mend)


def _multiplier(runs: LoopObservation) -> Finding | None:
    steps = [step for step in runs.steps if not step.adaptive]  # which has its own finding
    mend = (
        "scale the noise with the clipping norm of the whole gradient: the square root of the "
        "sum of the layers' squared norms"
    )
    return _alarm(checks.undercharged(steps), mend)


def _realised(runs: LoopObservation) -> Finding | None:
    off = runs.noise_off
    if off is None:
        return None
    where, measured = off
    return Finding(
        f"{where} the noise is {measured.low:.3g} to {measured.high:.3g} times the configured "
        "noise (chi-square, 99.99 % for all steps and tensors together)",
        "let Opacus's optimizer alone add noise, once for each step",
    )


def _clipping(runs: LoopObservation) -> Finding | None:
    mend = "clip every record's gradient before summation, as Opacus's optimizer does"
    return _alarm(checks.sums([step for run in runs.present for step in run.steps]), mend)


def _adaptive(runs: LoopObservation) -> Finding | None:
    if not any(step.adaptive for step in runs.steps):
        if "clipping norm" not in runs.varied:
            return None
        return Finding(
            "the clipping norm of the same step differs between runs: it depends on the data, "
            "and no accountant recorded this",
            "fix the clipping norm or its schedule beforehand, or add noise to the number that "
            "sets it, and account for that noise",
        )
    return Finding(
        "the clipping norm depends on the share of unclipped gradients. The denominator of this "
        "share, the true batch size, has no noise and is in no accountant",
        "divide by the expected size of a batch, or fix the clipping norm",
    )


def _no_noise(runs: LoopObservation) -> Finding | None:
    if not runs.steps:
        return None
    usual = min(step.noise_multiplier or 0.0 for step in runs.steps)
    if usual <= 0:
        return Finding("a step has a noise multiplier of 0", "set a noise multiplier above 0")
    if runs.noise.least >= usual * (1 - 1e-6):
        return None
    return Finding(
        f"in one of the trainings a step has a noise multiplier of {runs.noise.least:.3g}, and in "
        f"others at least {usual:.3g}",
        "use one noise multiplier, or one schedule, in every training",
    )


def _untold(runs: LoopObservation) -> Finding | None:
    if unnoised := runs.present[0].unnoised:
        return Finding(
            f"an ordinary optimizer took {unnoised} steps on the model, without noise",
            "on private data, take steps with Opacus's optimizer alone",
        )
    untold = sum(step.charged is None for step in runs.steps)
    queried = runs.present[0].statement is not None
    if not untold or not (queried or untold < len(runs.steps)):
        return None
    return Finding(
        f"no accountant recorded {untold} of {len(runs.steps)} steps",
        "attach the accountant's hook to every optimizer, as PrivacyEngine.make_private does, and "
        "call it in any hook that replaces it",
    )


def _unreleased(runs: LoopObservation) -> Finding | None:
    if not runs.changed or runs.present[0].unnoised:  # those steps have their own finding
        return None
    names = ", ".join(runs.changed[:3]) + (" and others" if len(runs.changed) > 3 else "")
    return Finding(
        "with other data but the same released steps, the final model still differs (tensor "
        f"{names}): something without noise changes it",
        "let Opacus's optimizer train every parameter that learns, freeze the others, and take "
        "buffers, learning rates and stopping from public data",
    )


def _seeded(runs: LoopObservation) -> Finding | None:
    if not runs.seeded:
        return None
    return Finding(
        "runs with different seeds, or two steps, have the same noise, or the same in other places "
        "or with the other sign: the loop sets its own seed, or uses noise again",
        "draw all noise from one generator without a constant seed, and never set it back",
    )


def _secure(runs: LoopObservation) -> Finding | None:
    if not runs.steps or all(step.randomness == "secure" for step in runs.steps):
        return None
    return Finding(
        "the noise comes from PyTorch's own generator, in floating point. This generator can be "
        "predicted",
        "for real records, use PrivacyEngine(secure_mode=True), which needs torchcsprng",
        severity="note",
    )


RULES: dict[str, Rule[LoopObservation]] = {
    "data-dependent-divisor": _data_dependent,
    "data-dependent-records": _data_dependent_records,
    "record-moves-step": _one_record_moves,
    "sampler": _sampler,
    "rebuilt-accountant": _rebuilt,
    "untold-steps": _untold,
    "noise-norm": _multiplier,
    "realised-noise": _realised,
    "clipping": _clipping,
    "adaptive-clipping": _adaptive,
    "no-noise": _no_noise,
    "unreleased-change": _unreleased,
    "seeded-noise": _seeded,
    "secure-noise": _secure,
}


def findings(runs: LoopObservation) -> tuple[Finding, ...]:
    return objections(RULES, runs)
