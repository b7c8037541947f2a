"""Sections about the training: its settings, and its model."""

from dataclasses import asdict
from statistics import median
from typing import Any

from fedsim.audits.results.measured import ByClient, RoundSeries
from fedsim.audits.results.report import Report
from fedsim.report.document import worth
from fedsim.report.document.blocks import Block, Figure, Heading, Listing, Part, Place, Prose
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
            f"vantage: {report.vantage.replace('-', ' ')}",
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


LISTED = 50


def _settings(part: Any, *left_out: str) -> list[tuple[str, str]]:
    return [
        (name.replace("_", " ").capitalize(), setting(value))
        for name, value in asdict(part).items()
        if name not in left_out
    ]


def _listed(report: Report, *names: str) -> list[tuple[str, str]]:
    return [(name.replace("_", " ").capitalize(), setting(getattr(report, name))) for name in names]


def _sizes(sizes: list[int]) -> list[int] | str:
    if len(sizes) <= LISTED:
        return sizes
    return f"{min(sizes)} to {max(sizes)}, median {median(sizes):g}"


def _configuration(report: Report) -> list[Block]:
    tables: dict[str, list[tuple[str, str]]] = {}
    for key, value in report.config.items():
        table, _, name = key.partition(".")
        tables.setdefault(table.capitalize(), []).append(
            (name, "" if value == "" else setting(value))
        )
    sizes = ("Records of each client", setting(_sizes(report.data.client_sizes)))
    tables |= {
        "Runtime": _listed(report, "runtime", "device", "precision"),
        "Loaded data": [*_settings(report.data, "client_sizes"), sizes],
        "Built model": _settings(report.model),
        "Drawn challenge": _settings(report.challenge),
        "Accounted mechanism": _settings(report.mechanism, "rounding"),
        "Versions": list(report.versions.items()),
        "Seconds": _settings(report.timing),
    }
    for title, part in (
        ("Rounded messages", report.mechanism.rounding),
        ("Missing clients", report.dropouts),
    ):
        if part is not None:
            tables[title] = _settings(part)
    blocks: list[Block] = []
    for title, rows in tables.items():
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
