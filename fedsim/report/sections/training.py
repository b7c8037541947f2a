"""Sections about the training: how it was done and audited, its settings, and its model."""

from dataclasses import asdict, fields
from statistics import median
from typing import Any

from fedsim.audits.results.measured import ByClient, RoundSeries
from fedsim.audits.results.report import Report
from fedsim.report.document import worth
from fedsim.report.document.blocks import Block, Figure, Heading, Listing, Part, Place, Prose
from fedsim.report.document.wording import counted, number, percent, plain, setting
from fedsim.report.figures import training_figures
from fedsim.report.sections.section import (
    Section,
    SectionTranscript,
    is_client,
    is_clipped,
    is_sampled,
    measure,
    takes_local_steps,
    trials_of,
    worths_in_full,
)

AUDIT_MODES = {
    "participant": "The adversary computed the beliefs from what a client receives and from the "
    "knowledge that the threat model grants it.",
    "oracle": "The auditor computed the beliefs from the noise that was drawn. The adversary would "
    "have computed the same beliefs at greater cost.",
}


def scope(report: Report) -> str:
    local_steps = report.mechanism.local_steps
    return " · ".join(
        (
            trials_of(report),
            f"{report.rounds} rounds",
            f"{report.clients} clients",
            f"{report.trust} trust",
            f"vantage: {report.vantage.replace('-', ' ')}",
            f"compared: {_compared(report)}",
            *(["unit of privacy: a client's whole data"] * is_client(report)),
            *([f"sampling rate {_rate(report)}"] * is_sampled(report)),
            *([f"{local_steps} local steps"] * (local_steps > 1)),
        )
    )


def _compared(report: Report) -> str:
    whose = "one client's data" if is_client(report) else "one record"
    if report.neighbouring == "replace":
        return f"{whose} replaced"
    return f"with and without {whose}"


def _rate(report: Report) -> str:
    return plain(report.mechanism.sampling_rate)


def _step(report: Report) -> str:
    if report.mechanism.joining_rate < 1 and not is_client(report):
        return _round_of_joining_clients(report)
    if is_sampled(report) and not is_client(report):
        return _sampled_step(report)
    if takes_local_steps(report):
        return (
            f"In each of {report.rounds} rounds, every client took {report.mechanism.local_steps} "
            f"noisy steps on its own copy of the model: {report.mechanism.steps} noisy steps are "
            "accounted for. The adversary sees only their sum, and decides by the score of a "
            "linearised attack."
        )
    if is_client(report):
        return _round_of_clients(report)
    return f"In each of {report.rounds} rounds, every record took part, in one step."


def _sampled_step(report: Report) -> str:
    if takes_local_steps(report):
        return (
            f"In each of {report.rounds} rounds, every client took {report.mechanism.local_steps} "
            "noisy steps on its own copy of the model (local DP-SGD). Each step used a Poisson "
            f"sample of the client's records at rate {_rate(report)}. In total, "
            f"{report.mechanism.steps} noisy sampled steps are accounted for. The adversary "
            "sees only the sum of a round, and is assumed to know which other records were "
            "sampled. It decides by the score of an attack, for which no closed form is known."
        )
    return (
        f"In each of {report.rounds} rounds, every record took part independently with "
        f"probability {_rate(report)} (Poisson sampling). The bounds require that it stays secret "
        "whether the target record took part. The adversary is assumed to know this of all "
        "other records."
    )


def _round_of_joining_clients(report: Report) -> str:
    joining, steps = plain(report.mechanism.joining_rate), report.mechanism.steps
    of_record = f", and each of its records with probability {_rate(report)}" * is_sampled(report)
    return (
        f"In each of {report.rounds} rounds, every client joined independently with probability "
        f"{joining}{of_record}. An adversary who knows a client's other records sees in the sum "
        "which clients joined, so this counts as public. A record is charged for the rounds that "
        f"its client joined, here at most {steps}. Only the sampling of the record itself "
        "amplifies its privacy."
    )


def _round_of_clients(report: Report) -> str:
    training = report.training
    size, more = training.batch_size, ""
    if training.proximal_term:
        term = plain(training.proximal_term)
        more = f", drawn back to the round's model by a proximal term of {term}"
    sampled, joining = "", report.mechanism.joining_rate
    if joining < 1:
        sampled = (
            f" Each joined independently with probability {plain(joining)}. The clients add the "
            "noise, so its size, or the server, shows which of them joined. This counts as public "
            "and gives no amplification. A client is charged for the rounds that it joined, by the "
            f"noise in them: here {report.mechanism.steps} rounds."
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
        f"{counted(training.local_epochs, 'epoch')} in "
        f"{f'batches of {size}' if size else 'one batch'}{more}. Each sent the "
        "change of its weights, clipped as a whole. Only this update is accounted for, whatever "
        f"the client did in between.{sampled}"
    )


def _optimisation(report: Report) -> str:
    training = report.training
    settings = ""
    if training.optimizer == "sgd" and training.momentum:
        settings = f" (momentum {plain(training.momentum)})"
    warmup, local_rate = training.warmup_rounds, training.local_learning_rate
    return (
        f"The server's optimiser was {training.optimizer}{settings}, "
        f"{_rated(report.mechanism.learning_rate, training.schedule)}"
        f"{f' after {warmup} rounds of warm-up' if warmup else ''}"
        f"{f', and {plain(local_rate)} at the clients' if local_rate else ''}. It works on "
        "released sums and costs no privacy."
    )


def _rated(rate: float, schedule: str) -> str:
    if schedule == "constant":
        return f"with a constant learning rate of {plain(rate)}"
    return f"with a learning rate of {plain(rate)} and the schedule {schedule}"


def _gradients(report: Report) -> str:
    sentence = f"Forward and backward passes ran in {report.precision}"
    fallbacks = report.model.gradient_fallbacks
    if not fallbacks:
        whole = ", and clipped over all layers together" * (
            is_clipped(report) and not is_client(report)
        )
        return f"{sentence}. Each record's gradient was computed layer by layer{whole}."
    layers = "; ".join(f"{name} ({reason})" for name, reason in fallbacks.items())
    return f"{sentence}; layers whose gradients went through torch.func: {layers}."


def _words(report: Report) -> list[Block]:
    audited = AUDIT_MODES.get(report.audit_mode, "")
    sentences = [_step(report), _optimisation(report), audited, _gradients(report)]
    return [Prose(sentence) for sentence in sentences if sentence]


SECTION = Section("What was trained, and how it was audited", _words)
Settings = dict[str, Any]
LISTED = 50


def _fields(part: Any, *names: str) -> Settings:
    return {name.replace("_", " ").capitalize(): getattr(part, name) for name in names}


def _data(report: Report) -> Settings:
    data, model = report.data, report.model
    return {
        "Dataset": data.name,
        **_fields(data, "records", "held_out", "partition"),
        **({"Never split": data.partition_key} if data.partition_key else {}),
        "Records per client": _sizes(data.client_sizes),
        **({"Label skew": data.label_skew} if data.label_skew else {}),
        "Model": model.name,
        **_fields(model, "parameters", "frozen_parameters", "batch_norm"),
        "Precision": report.precision,
        "Layers through torch.func": model.gradient_fallbacks,
    }


def _sizes(sizes: list[int]) -> list[int] | str:
    if len(sizes) <= LISTED:
        return sizes
    return f"{min(sizes)} to {max(sizes)}, median {median(sizes):g}"


def _challenge(report: Report) -> Settings:
    challenge = report.challenge
    return {
        "Record": challenge.record,
        "Target records": challenge.records,
        **_fields(challenge, "replacement", "client", "adversary"),
        "Dissimilarity": challenge.measure,
        "Distance": challenge.distance,
    }


def _mechanism(report: Report) -> Settings:
    mechanism, rounding, dropouts = report.mechanism, report.mechanism.rounding, report.dropouts
    settings: Settings = {
        **_fields(mechanism, "noise_multiplier", "effective_noise_multiplier"),
        "Clipping norm C": mechanism.clipping_norm,
        **_fields(mechanism, "clipping", "sensitivity"),
        "Noisy steps accounted": mechanism.steps,
        "Local steps in a round": mechanism.local_steps,
        "Sampling rate": mechanism.sampling_rate,
        "Probability that a client joins": mechanism.joining_rate,
    }
    if rounding is not None:
        settings |= {
            "Secure aggregation": rounding.note,
            "Grid step g": rounding.step,
            "Relative growth of the sensitivity by rounding": rounding.relative_growth,
            "Total variation by rounding, at most": rounding.total_variation,
        }
    if dropouts is not None:
        settings |= {
            "Missing clients tolerated": dropouts.tolerated,
            "Rounds with missing clients": dropouts.rounds_with_missing_clients,
            "Fewest shares of noise": dropouts.fewest_shares,
            "Effective noise multiplier, least and greatest": dropouts.effective_noise_multiplier,
        }
    return settings | {"DP guarantee": mechanism.dp_guarantee, "Note": mechanism.dp_note}


def _training(report: Report) -> Settings:
    training, idle = report.training, {"learning_rate"}
    idle |= set() if training.optimizer == "sgd" else {"momentum"}
    if not is_client(report):
        idle |= {"local_epochs", "proximal_term", "batch_size"}
        idle |= set() if takes_local_steps(report) else {"local_learning_rate"}
    return {
        "Learning rate": report.mechanism.learning_rate,
        **_fields(training, *(each.name for each in fields(training) if each.name not in idle)),
        "Audit mode": report.audit_mode,
    }


def _configuration(report: Report) -> list[Block]:
    tables: dict[str, Settings] = {
        "Federation": {
            "Clients": report.clients,
            "Clients colluding with the adversary": report.colluding,
            **_fields(report, "rounds", "trials", "trust", "vantage"),
            "Unit of privacy": report.unit,
            **_fields(report, "neighbouring", "runtime", "device"),
        },
        "Data and model": _data(report),
        "Challenge": _challenge(report),
        "Mechanism": _mechanism(report),
        "Training": _training(report),
        "Randomness and versions": {
            "Seed": report.seed,
            "Noise from": report.noise_source,
            **report.versions,
        },
        "Seconds": asdict(report.timing),
    }
    blocks: list[Block] = []
    for title, settings in tables.items():
        rows = [(name, setting(value)) for name, value in settings.items()]
        blocks += [Heading(title), Listing(rows, several=True)]
    return blocks


CONFIGURATION = Section("Configuration", _configuration, specialist=True)


def _utility_figures(report: Report, _: SectionTranscript) -> list[Figure]:
    utility = report.utility
    losses = utility.loss.mean
    pooled = [
        Figure(
            "utility",
            training_figures.utility(utility.rounds, utility.accuracy, utility.loss),
            "Utility of the global model.",
            f"Mean and 5–95% band of {utility.trials} of the {report.trials} trials, on "
            f"{utility.records} held-out records: loss "
            f"{number(losses[0])} → {number(losses[-1])}, {measure(report)} "
            f"{worths_in_full(report)}.",
        )
    ]
    return pooled if utility.by_client is None else [*pooled, _by_client(utility.by_client)]


def _by_client(clients: ByClient) -> Figure:
    own = clients.own_models
    words = (
        f"{clients.clients} clients, first trial. After the last round the global model is right "
        f"on {_spread(clients.accuracy)} of a client's own records, and on "
        f"{percent(clients.weighted[-1])} of all clients' records together."
    )
    if own is not None:
        words += (
            f" A client's own model, after its local training and before clipping and noise, is "
            f"right on {_spread(own)} of the held-out records."
        )
    figure = training_figures.by_client(clients)
    note = " Measured on the data itself, and not released."
    return Figure("clients", figure, "Accuracy at each client.", words + note)


def _spread(series: RoundSeries) -> str:
    low, mean, high = series.low[-1], series.mean[-1], series.high[-1]
    return f"{percent(mean)} (5–95% of clients: {percent(low)} to {percent(high)})"


def _utility(report: Report) -> list[Block]:
    quality = report.utility.quality
    if quality is None:
        return []
    trials = report.utility.trials
    over = (
        f"Means over the final models of {trials} of the {report.trials} trials. The intervals "
        "cover the variation between trainings, not between records."
        if trials > 1
        else "These numbers are of the final model of one trial, which gives no interval."
    )
    blocks = [Prose(over), *worth.blocks(quality)]
    return [
        Place("utility"),
        Part("Recall, precision and calibration of each class", blocks, folded=True, heads=False),
    ]


UTILITY = Section("What the model is worth", _utility, _utility_figures)
