"""The section about the model's accuracy."""

from dataclasses import asdict

from fedsim.audits.results.measured import ByClient, Series
from fedsim.audits.results.report import Report
from fedsim.report.document import quality_blocks
from fedsim.report.document.blocks import Block, Figure, Part, Place, Prose
from fedsim.report.document.wording import number, percent
from fedsim.report.figures import training_figures
from fedsim.report.sections.facts import measure, worths_in_full
from fedsim.report.sections.section import Section, Transcript


def _figures(report: Report, _: Transcript) -> list[Figure]:
    found = report.utility
    losses = found.loss.mean
    pooled = [
        Figure(
            "utility",
            training_figures.utility(found.rounds, asdict(found.accuracy), asdict(found.loss)),
            "Utility of the global model.",
            f"Mean and 5–95% band of {found.trials} trials on "
            f"{found.records} records: loss "
            f"{number(losses[0])} → {number(losses[-1])}, {measure(report)} "
            f"{worths_in_full(report)}.",
        )
    ]
    return pooled if found.by_client is None else [*pooled, _by_client(found.by_client)]


def _by_client(found: ByClient) -> Figure:
    own = found.own_models
    words = (
        f"{found.clients} clients, first trial. After the last round the global model is right on "
        f"{_spread(found.accuracy)} of a client's own records; over all their records on "
        f"{percent(found.weighted[-1])}."
    )
    if own is not None:
        words += (
            f" A client's own model, after its local training and before clipping and noise, is "
            f"right on {_spread(own)} of the held-out records."
        )
    figure = training_figures.by_client(
        found.rounds, asdict(found.accuracy), found.weighted, None if own is None else asdict(own)
    )
    note = " Measured on the data itself, and not released."
    return Figure("clients", figure, "How it serves each client.", words + note)


def _spread(found: Series) -> str:
    low, mean, high = found.low[-1], found.mean[-1], found.high[-1]
    return f"{percent(mean)} (5–95% of clients: {percent(low)} to {percent(high)})"


def _words(report: Report) -> list[Block]:
    found = report.utility.quality
    if found is None:
        return []
    trials = report.utility.trials
    over = (
        f"Of the final models: means over {trials} trials, and intervals over trainings like these "
        "on the same records."
        if trials > 1
        else "Of the final model of one trial, which gives no interval."
    )
    blocks = [Prose(over), *quality_blocks.blocks(found)]
    return [
        Place("utility"),
        Part("Recall, precision and calibration of each class", blocks, folded=True, heads=False),
    ]


SECTION = Section("What the model is worth", _words, _figures)
