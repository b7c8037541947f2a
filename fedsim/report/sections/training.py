"""Sections about the training: its settings, and its model."""

from dataclasses import asdict
from statistics import median

from fedsim.audits.results.measured import ByClient, RoundSeries
from fedsim.audits.results.report import Report
from fedsim.report.document import worth
from fedsim.report.document.blocks import Block, Code, Figure, Listing, Place, Prose
from fedsim.report.document.wording import number, percent, plain, setting
from fedsim.report.figures import training_figures
from fedsim.report.sections.section import (
    Section,
    SectionTranscript,
    is_client,
    is_sampled,
    measure,
    trials_of,
    worths_in_full,
)


def scope(report: Report) -> str:
    local_steps = report.mechanism.local_steps
    return " · ".join(
        (
            trials_of(report),
            f"{report.rounds} rounds",
            f"{report.clients} clients",
            f"{report.trust} trust",
            f"compared: {_compared(report)}",
            *(["unit of privacy: a client's whole data"] * is_client(report)),
            *([f"sampling rate {plain(report.mechanism.sampling_rate)}"] * is_sampled(report)),
            *([f"{local_steps} local steps"] * (local_steps > 1)),
        )
    )


def _compared(report: Report) -> str:
    whose = "one client's data" if is_client(report) else "one record"
    if report.neighbouring == "replace":
        return f"{whose} replaced"
    return f"with and without {whose}"


def _configuration(report: Report) -> list[Block]:
    mechanism, rounding, missing = report.mechanism, report.mechanism.rounding, report.dropouts
    sizes = report.data.client_sizes
    entries = [
        ("Data", f"{report.data.name}, {report.data.records} records"),
        ("Records of each client", f"{min(sizes)} to {max(sizes)}, median {median(sizes):g}"),
        ("Label skew", setting(report.data.label_skew)),
        ("Network", f"{plain(report.config['model.name'])}, {report.model.parameters} parameters"),
        ("Noise multiplier", f"{number(mechanism.noise_multiplier)}, {mechanism.steps} steps"),
        ("Sensitivity", mechanism.sensitivity),
        ("Runtime", f"{report.runtime}, {report.device}, {report.precision}"),
        ("Versions", plain(report.versions)),
    ]
    if rounding is not None:
        entries.append(("Rounded messages", setting(asdict(rounding))))
    if missing is not None:
        entries.append(("Missing clients", setting(asdict(missing))))
    told = ("Every setting is in ", Code("config.toml"), " and in ", Code("report.json"), ".")
    return [Listing(entries), Prose(told, small=True)]


CONFIGURATION = Section("Settings", _configuration, specialist=True)


def _utility_figures(report: Report, _: SectionTranscript) -> list[Figure]:
    utility = report.utility
    losses = utility.loss.mean
    return [
        Figure(
            "utility",
            training_figures.utility(utility.rounds, utility.accuracy, utility.loss),
            "Utility of the global model.",
            f"Mean and 5–95% band of {utility.trials} trials, on {utility.records} held-out "
            f"records: loss {number(losses[0])} → {number(losses[-1])}.",
        )
    ]


def _client_figures(report: Report, _: SectionTranscript) -> list[Figure]:
    clients = report.utility.by_client
    return [] if clients is None else [_by_client(clients)]


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


AT_CLIENTS = Section("The model at each client", figures=_client_figures, specialist=True)


def _worth(report: Report) -> list[Block]:
    return [Prose(f"{worth.leading(measure(report))} {worths_in_full(report)}."), Place("utility")]


UTILITY = Section("What the model is worth", _worth, _utility_figures)
