"""What was trained, and how it was audited."""

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Block, Prose
from fedsim.report.document.wording import plain
from fedsim.report.sections.facts import (
    is_client,
    is_clipped,
    is_halves,
    is_sampled,
    takes_local_steps,
    trials_of,
)
from fedsim.report.sections.section import Section

AUDIT_MODES = {
    "participant": "The beliefs were computed by the adversary itself, from what a client receives "
    "and the background knowledge of the threat model.",
    "oracle": "The beliefs were computed by the auditor, from the noise that was drawn; they "
    "are the adversary's, which it would have computed at greater cost.",
}


def scope(report: Report) -> str:
    """Return the size and the setting of the run in one line."""
    local_steps = report.mechanism.local_steps
    return " · ".join(
        (
            trials_of(report),
            f"{report.rounds} rounds",
            f"{report.clients} clients",
            f"{report.trust} trust",
            f"vantage: {report.vantage}",
            f"neighbouring: {report.neighbouring}",
            *(["unit of privacy: a client's whole data"] * is_client(report)),
            *([f"sampling rate {_rate(report)}"] * is_sampled(report)),
            *([f"{local_steps} local steps"] * (local_steps > 1)),
        )
    )


def _optimizer_settings(report: Report) -> dict[str, dict[str, float]]:
    """Return the settings of each optimiser as they are named, by the optimiser."""
    training = report.training
    return {
        "sgd": {"momentum": training.momentum},
        "adam": {"β₁": training.beta1, "β₂": training.beta2, "ε": training.adam_epsilon},
    }


def _rate(report: Report) -> str:
    return plain(report.mechanism.sampling_rate)


def _step(report: Report) -> str:
    """Say what a round's step is."""
    if report.mechanism.joining_rate < 1 and not is_client(report):
        return _round_of_joining_clients(report)
    if is_sampled(report) and not is_client(report):
        return _sampled_step(report)
    if takes_local_steps(report):
        return (
            f"In each of {report.rounds} rounds every client took {report.mechanism.local_steps} "
            f"noisy steps on a model of its own: {report.mechanism.steps} noisy steps are "
            "accounted. The adversary sees only their sum, and decides by a linearised attack's "
            "score."
        )
    if is_halves(report):
        return (
            f"In each of {report.rounds} rounds the records of the trial's secret candidate took "
            "part, one of several random halves of the records of all clients but the adversary."
        )
    if is_client(report):
        return _round_of_clients(report)
    return f"In each of {report.rounds} rounds every record took part, in one step."


def _sampled_step(report: Report) -> str:
    if takes_local_steps(report):
        return (
            f"In each of {report.rounds} rounds every client took {report.mechanism.local_steps} "
            "noisy steps on a model of its own (local DP-SGD), each on a Poisson sample of its "
            f"records at rate {_rate(report)}: {report.mechanism.steps} noisy sampled steps are "
            "accounted, all rounds together. The adversary sees only a round's sum and is taken to "
            "know whom else was sampled; it decides by the score of an attack, for which no closed "
            "form is known."
        )
    return (
        f"In each of {report.rounds} rounds every record took part with probability "
        f"{_rate(report)}, by itself (Poisson sampling). The bounds count on it that nobody "
        "learns whether the challenge record did; the adversary is taken to know of all others."
    )


def _round_of_joining_clients(report: Report) -> str:
    joining, steps = plain(report.mechanism.joining_rate), report.mechanism.steps
    of_record = f", and of its records each with probability {_rate(report)}" * is_sampled(report)
    return (
        f"In each of {report.rounds} rounds every client joined with probability {joining}, by "
        f"itself{of_record}. Who joins shows in the sum to whoever knows a client's other records, "
        "so that it is taken for public: a record is charged for the rounds that its client "
        f"joined, at most {steps} of them here, and only its own coin amplifies."
    )


def _round_of_clients(report: Report) -> str:
    training = report.training
    epochs, size, most = training.local_epochs, training.batch_size, training.local_batches
    long = (
        f"{epochs} epoch{'s' * (epochs != 1)} in "
        if not most
        else f"{most} step{'s' * (most != 1)} in "
    )
    more = f", with momentum {plain(training.local_momentum)}" if training.local_momentum else ""
    if training.proximal_term:
        term = plain(training.proximal_term)
        more += f", drawn back to the round's model by a proximal term of {term}"
    sampled, joining = "", report.mechanism.joining_rate
    if joining < 1:
        sampled = (
            f" Each joined with probability {plain(joining)}, by itself. Clients add the noise, so "
            "that its size, or the server, shows who joined: that is taken for public, nothing is "
            "amplified, and a client is charged for the rounds that it joined, by the noise that "
            f"was there: {report.mechanism.steps} of them here."
        )
    if is_sampled(report):
        sampled = (
            f" Each took part with probability {_rate(report)}, by itself (Poisson sampling). The "
            "bounds count on it that nobody learns whether the target client did; the adversary is "
            "taken to know of all others, whose coins all trials share: what is measured is given "
            "these coins."
        )
    return (
        f"In each of {report.rounds} rounds {'clients' if sampled else 'every client'} trained a "
        f"copy of the model on {'their' if sampled else 'its'} own records, without noise, for "
        f"{long}{f'batches of {size}' if size else 'one batch'}{more}, and sent how far "
        f"{'they' if sampled else 'it'} came, clipped as a whole. Only that is accounted for, "
        f"whatever the client did in between.{sampled}"
    )


def _optimisation(report: Report) -> str:
    training = report.training
    named = _optimizer_settings(report).get(training.optimizer, {})
    settings = ", ".join(f"{name} {plain(value)}" for name, value in named.items() if value)
    warmup, local_rate = training.warmup_rounds, training.local_learning_rate
    return (
        f"The server's optimiser was {training.optimizer}{f' ({settings})' if settings else ''}, "
        f"its learning rate {plain(training.learning_rate)} on the schedule {training.schedule}"
        f"{f' after {warmup} rounds of warm-up' if warmup else ''}"
        f"{f', that of the clients {plain(local_rate)}' if local_rate else ''}. It works on what "
        "is released anyway and costs no privacy."
    )


def _gradients(report: Report) -> str:
    """Say in which precision and by which rules per-example gradients were clipped."""
    sentence = f"Forward and backward passes ran in {report.precision}"
    fallbacks = report.model.gradient_fallbacks
    if not fallbacks:
        clipped = is_clipped(report) and not is_client(report)
        what = "was clipped" if clipped else "gave its gradients"
        return f"{sentence}; every layer {what} by its own rule."
    layers = "; ".join(f"{name} ({reason})" for name, reason in fallbacks.items())
    return f"{sentence}; layers whose gradients went through torch.func: {layers}."


def _words(report: Report) -> list[Block]:
    audited = AUDIT_MODES.get(report.audit_mode, "")
    said = [_step(report), _optimisation(report), audited, _gradients(report)]
    return [Prose(sentence) for sentence in said if sentence]


SECTION = Section("What was trained, and how it was audited", _words)
