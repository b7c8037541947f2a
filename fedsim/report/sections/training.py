"""The section about the training and the audit of a run."""

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
    """Return sentences about the step of a round."""
    if report.mechanism.joining_rate < 1 and not is_client(report):
        return _round_of_joining_clients(report)
    if is_sampled(report) and not is_client(report):
        return _sampled_step(report)
    if takes_local_steps(report):
        return (
            f"In each of {report.rounds} rounds, every client took {report.mechanism.local_steps} "
            f"noisy steps on its own copy of the model: {report.mechanism.steps} noisy steps are "
            "accounted. The adversary sees only their sum, and decides by the score of a "
            "linearised attack."
        )
    if is_halves(report):
        return (
            f"In each of {report.rounds} rounds, the records of the trial's secret candidate took "
            "part. The candidates are random halves of the records of all clients except the "
            "adversary."
        )
    if is_client(report):
        return _round_of_clients(report)
    return f"In each of {report.rounds} rounds, every record took part, in one step."


def _sampled_step(report: Report) -> str:
    if takes_local_steps(report):
        return (
            f"In each of {report.rounds} rounds, every client took {report.mechanism.local_steps} "
            "noisy steps on its own copy of the model (local DP-SGD). Each step used a Poisson "
            f"sample of the client's records at rate {_rate(report)}: {report.mechanism.steps} "
            "noisy sampled steps are accounted over all rounds. The adversary sees only the sum of "
            "a round, and is assumed to know which other records were sampled. It decides by the "
            "score of an attack, for which no closed form is known."
        )
    return (
        f"In each of {report.rounds} rounds, every record took part independently with "
        f"probability {_rate(report)} (Poisson sampling). The bounds require that it stays secret "
        "whether the challenge record took part. The adversary is assumed to know this of all "
        "other records."
    )


def _round_of_joining_clients(report: Report) -> str:
    joining, steps = plain(report.mechanism.joining_rate), report.mechanism.steps
    of_record = f", and each of its records with probability {_rate(report)}" * is_sampled(report)
    return (
        f"In each of {report.rounds} rounds, every client joined independently with probability "
        f"{joining}{of_record}. An adversary who knows a client's other records sees in the sum "
        "which clients joined, so this counts as public: a record is charged for the rounds that "
        f"its client joined, at most {steps} of them here. Only the record's own coin amplifies."
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
            f" Each joined independently with probability {plain(joining)}. The clients add the "
            "noise, so its size, or the server, shows which of them joined. This counts as public "
            "and gives no amplification: a client is charged for the rounds that it joined, by the "
            f"noise in them, {report.mechanism.steps} of them here."
        )
    if is_sampled(report):
        sampled = (
            f" Each took part independently with probability {_rate(report)} (Poisson sampling). "
            "The bounds require that it stays secret whether the target client took part. The "
            "adversary is assumed to know this of all other clients. All trials share the coins of "
            "the other clients, so measurements are conditional on these coins."
        )
    return (
        f"In each of {report.rounds} rounds, {'clients' if sampled else 'every client'} trained a "
        f"copy of the model on {'their' if sampled else 'its'} own records, without noise, for "
        f"{long}{f'batches of {size}' if size else 'one batch'}{more}, and sent how far "
        f"{'they' if sampled else 'it'} came, clipped as a whole. Only this update is accounted "
        f"for, whatever the client did in between.{sampled}"
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
        f"{f', and {plain(local_rate)} at the clients' if local_rate else ''}. It works on "
        "released sums and costs no privacy."
    )


def _gradients(report: Report) -> str:
    """Return in which precision and by which rules per-example gradients were clipped."""
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
