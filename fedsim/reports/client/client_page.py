"""A client's own report: on its terminal, and as a page for its owner alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsim.audits.results import verdicts
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.reports.client.report import ClientReport, ClientTraining, Exposure, Signal
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import html
from fedsim.reports.document.first_screen import share
from fedsim.reports.document.wording import counted, number, percent

CONFIDENTIAL = (
    "Keep this report on this machine. Its numbers about single records have no noise, and they "
    "are not a guarantee."
)

EXPOSED = (
    "The numbers are for the adversary with the best view of this client's messages. They follow "
    "from the length of each record's clipped gradients in all rounds that were answered. "
    "“Allowed” is for a record whose gradient is clipped in all of these rounds."
)

MOST = 5
RUNS = (
    *("run", "first", "last", "rounds", "models kept", "trials", "noise multiplier", "its ε"),
    "ε so far",
)
HOW = ("", "μ", "ε", "advantage")


def write_client_page(report: ClientReport, directory: Path) -> Path:
    report_directory.create(directory)
    page = html.page(told(report))
    return report_directory.write_report(directory, report_json(report.as_json()), page)


def verdict(report: ClientReport) -> str:
    budget, together = report.budget, ""
    if budget.client_epsilon is not None:
        together = f" For all its records together, it is {number(budget.client_epsilon)}."
    return (
        f"In {counted(len(report.runs), 'run')}, this client answered "
        f"{counted(budget.answers, 'message')}. This cost each of its records epsilon "
        f"{number(budget.epsilon)}, of a budget of {number(budget.epsilon_limit)}, at delta "
        f"{budget.delta:g}.{together}"
    )


def told(report: ClientReport) -> doc.Told:
    """Return what a client released, for its owner alone."""
    budget, trainings = report.budget, report.trainings
    runs = [
        [f"{run.name} ({run.run})", number(run.epsilon), number(run.epsilon_after)]
        for run in report.runs[-MOST:]
    ]
    return doc.Told(
        kind="Client's own report",
        name=f"Client {report.client}",
        report=report.as_json(),
        played=counted(len(report.runs), "run"),
        answer=[verdict(report), *(each for one in trainings for each in _told(one))],
        alarming=budget.epsilon > budget.epsilon_limit,
        observers=[bar for training in trainings[-MOST:] for bar in _bars(training)],
        caption="Largest share of right answers about one of this client's records.",
        table=doc.tabulated(("Run", "Its ε", "ε so far"), runs) if runs else None,
        cautions=[CONFIDENTIAL],
        steps=_steps(report),
        sections=lambda: [
            doc.Heading("Releases"),
            _runs(report),
            *(block for training in trainings for block in _exposed(training)),
        ],
        data=f"the records of client {report.client}",
        date=report.created[:10],
        limits="This page is about what left this machine. It is not a guarantee.",
    )


def _exposed(training: ClientTraining) -> Iterator[doc.Block]:
    if (exposure := training.exposure) is not None:
        yield doc.Heading(f"{training.name}: exposure of single records")
        yield from (doc.Prose(EXPOSED), _exposures(exposure))
        rows = [[str(one.record), *_how(one)] for one in exposure.most_exposed]
        yield doc.tabulated(("record", *HOW[1:]), rows)


def _bars(training: ClientTraining) -> Iterator[doc.Bar]:
    limit = None if training.advantage_bound is None else share(training.advantage_bound)
    if training.exposure is not None:
        mark = doc.Mark(verdicts.NOT_MEASURED.kind, verdicts.NOT_MEASURED.text)
        bar, most = f"{training.name}: most exposed record", training.exposure.highest.advantage
        yield doc.Bar(bar, mark, share(most), None, limit, how="its gradients allow")


def _steps(report: ClientReport) -> list[str]:
    left = report.budget.epsilon_limit - report.budget.epsilon
    steps = [f"About ε = {number(left)} of the budget is left for further trainings."]
    if left <= 0:
        steps = ["The budget is spent: join no further training, or agree to a larger budget."]
    return steps


def _runs(report: ClientReport) -> doc.Table:
    rows = [
        [
            *(f"{run.name} ({run.run})", run.first, run.last),
            *map(str, (run.rounds, run.models_kept, run.trials)),
            number(run.noise_multiplier),
            number(run.epsilon) if run.charged else "not charged",
            number(run.epsilon_after),
        ]
        for run in report.runs
    ]
    return doc.tabulated(RUNS, rows)


def _exposures(exposure: Exposure) -> doc.Table:
    signals = {
        "half of the records, at most": exposure.median,
        "the most exposed record": exposure.highest,
        "allowed": exposure.allowed,
    }
    return doc.tabulated(HOW, [[name, *_how(one)] for name, one in signals.items()])


def _how(one: Signal) -> list[str]:
    return [number(one.mu), number(one.epsilon), number(one.advantage)]


GONE = (
    "{name}: data-path no longer holds the records that took part, so their exposure is not "
    "measured."
)
WHOLE_CLIENT = (
    "The noise of this training protects the client as a whole, so the exposure of single records "
    "is not measured."
)
CLIPPED = "Of the gradients of {records} records in {rounds}, {share} were clipped."
NOT_KEPT = (
    "Of {answered}, the models of {lost} were not kept. There every record counts as clipped, so "
    "these numbers are upper limits."
)
AT_RANDOM = (
    "Records took part at random. These numbers assume a record that took part in every round, so "
    "they are upper limits."
)


def _told(training: ClientTraining) -> Iterator[str]:
    exposure = training.exposure
    if training.gone:
        yield GONE.format(name=training.name)
    elif exposure is None:
        yield WHOLE_CLIENT
    else:
        if kept := len(exposure.rounds):
            clipped = percent(float(np.mean(exposure.clipped_share)))
            rounds = counted(kept, "round")
            yield CLIPPED.format(records=training.records, rounds=rounds, share=clipped)
        if lost := exposure.answered - kept:
            answered = counted(exposure.answered, "answered round")
            yield NOT_KEPT.format(answered=answered, lost=lost)
        if training.sampling_rate < 1:
            yield AT_RANDOM
