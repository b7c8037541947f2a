"""The table of all settings: the answer of `fedsim choose` without a limit."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from adversaries.statistics.estimators import epsilon_from_advantage
from fedsim.audits.results.report import Report
from fedsim.common import private_files, report_directory
from fedsim.common.strict_json import strict_json
from fedsim.federation.runs.run_directory import SUMMARY
from fedsim.reports import comparison
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import first_screen, terminal
from fedsim.reports.document.first_screen import settled
from fedsim.reports.document.html import render
from fedsim.reports.document.wording import number, percent, plain, span
from fedsim.reports.sections.section import TITLES
from fedsim.studies.choose.grid import BOUND_COLUMN, ESTIMATES, RunOutcome

KIND = "sweep"
"""Value of `kind` in report.json."""

ACCURACY = (
    *("accuracy", "accuracy_low", "accuracy_high", "evaluated_trials"),
    *("majority", "balanced_accuracy", "area_under_curve", "least_recall"),
)

REPORTED = (
    *("trials", "advantage", "advantage_low", "advantage_high", "confidence", "predicted"),
    *("rho_alpha", "epsilon", "delta", "epsilon_released", "headline", f"{BOUND_COLUMN}headline"),
)
BETWEEN = ("epsilon_from_advantage_low", "epsilon_from_advantage_high")
COLUMNS = (*REPORTED, *ACCURACY, *ESTIMATES, *BETWEEN)
"""Columns that are taken from a run's report, without its lower bounds."""

SHOWN = {"headline": "headline", "clopper_pearson": "Clopper–Pearson"}
"""Lower bounds in tables: the headline of a report, and the bound that assumes least.

summary.csv has all of them.
"""


def rows(outcomes: Sequence[RunOutcome]) -> list[dict[str, Any]]:
    """Return a row for each run, all with the same columns; a value is None if unknown or refused.

    The columns, in order:

    - run, the swept keys, and status: "done", or why the run failed;
    - trials, the advantage with interval, confidence and prediction, rho_alpha;
    - epsilon of one training (tight), delta, and epsilon_released by all trainings of the run,
      which is None if the run has no guarantee;
    - headline, the name of the lower bound on epsilon that the report leads with, and its value;
    - accuracy of the final model, a mean over evaluated_trials with its interval; the majority
      class's share, balanced accuracy, area under the ROC curve, and least recall of a class;
    - the paper's estimates of epsilon, and the ends of the interval of the first;
    - every lower bound on epsilon.
    """
    reports = [outcome.report for outcome in outcomes if outcome.report]
    names = list(
        dict.fromkeys(name for report in reports for name in report.empirical.lower_bounds)
    )
    return [_row(outcome, names) for outcome in outcomes]


def _row(outcome: RunOutcome, bounds: Sequence[str]) -> dict[str, Any]:
    status = {"status": outcome.failure or "done"}
    columns = dict.fromkeys((*COLUMNS, *(f"{BOUND_COLUMN}{name}" for name in bounds)))
    if outcome.report is not None:
        columns |= _reported(outcome.report) | _accuracy(outcome, outcome.report)
    return {"run": outcome.point.name, **outcome.point.values, **status, **columns}


def _accuracy(outcome: RunOutcome, report: Report) -> dict[str, Any]:
    between = outcome.accuracy_interval(report.attack.confidence)
    ends = (None, None) if between is None else between.ends
    utility = report.utility
    least = utility.quality and utility.quality.least_recall
    others = (utility.majority, utility.balanced_accuracy, utility.area_under_curve)
    values = (outcome.accuracy, *ends, utility.trials, *others, least and least[1])
    return dict(zip(ACCURACY, values, strict=True))


def _reported(report: Report) -> dict[str, Any]:
    """Return the columns of a run's report; a lower bound that its trials do not allow is None."""
    measured, attack = report.empirical, report.attack
    low, high = attack.interval or (None, None)
    estimates, delta = measured.epsilon, report.bounds.delta
    values = (
        report.trials,
        attack.advantage,
        low,
        high,
        attack.confidence,
        report.prediction.advantage,
        report.here.limit.rho_alpha,
        report.here.limit.epsilon,
        delta,
        None if report.released is None else report.released.epsilon,
        measured.leading,
        measured.lower_bounds[measured.leading].epsilon,
    )
    proven = {
        f"{BOUND_COLUMN}{name}": None if bound.reason else bound.epsilon
        for name, bound in measured.lower_bounds.items()
    }
    estimated = (estimates.advantage, attack.log_odds, estimates.sensitivity)
    ends = (end if end is None else epsilon_from_advantage(end, delta) for end in (low, high))
    return (
        dict(zip(REPORTED, values, strict=True))
        | dict(zip(ESTIMATES, estimated, strict=True))
        | dict(zip(BETWEEN, ends, strict=True))
        | proven
    )


def table(outcomes: Sequence[RunOutcome]) -> RenderableType:
    """Return the table for the terminal."""
    levels = sorted({row["confidence"] for row in rows(outcomes)} - {None})
    notes = [f"intervals and bounds at {' or '.join(map(percent, levels))}"] if levels else []
    if any(outcome.report and outcome.report.released for outcome in outcomes):
        notes.append(comparison.ADD_UP)
    block = doc.tabulated(headings(outcomes), cells(outcomes))
    return terminal.table(block, "All settings", "; ".join(notes), dense=True)


def shown(outcomes: Sequence[RunOutcome]) -> RenderableType:
    """Return the table and its sentences, for the terminal."""
    return terminal.shown(table(outcomes), *map(doc.Prose, sentences(outcomes)))


def blocks(outcomes: Sequence[RunOutcome]) -> list[doc.Block]:
    """Return the sentences and the table, for a notebook."""
    return [
        *map(doc.Prose, sentences(outcomes)),
        doc.tabulated(headings(outcomes), cells(outcomes)),
    ]


def failures(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return how many runs failed, and why the first did; nothing if none failed."""
    failed = [each for each in outcomes if each.failure]
    return [
        f"{len(failed)} of {len(outcomes)} runs failed. The first is {each.point.name}: "
        f"{each.failure}"
        for each in failed[:1]
    ]


def headings(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return the names of the columns of `cells`."""
    swept = [key.rpartition(".")[2] for key in outcomes[0].point.values]
    bounds = [f"ε at least, {name}" for name in SHOWN.values()]
    return [*swept, "trials", "accuracy", "advantage", "pred.", "ρα", "ε", *bounds]


def cells(outcomes: Sequence[RunOutcome]) -> list[list[str]]:
    """Return the rows of the table as text; a failed run has only its values."""
    worded = []
    for outcome, row in zip(outcomes, rows(outcomes), strict=True):
        bounds = [number(row.get(f"{BOUND_COLUMN}{name}")) for name in SHOWN]
        if row["headline"]:
            bounds[0] += f"\n{TITLES[row['headline']]}"
        majority = ""
        if row["majority"] is not None:
            majority = f"\nmajority class {percent(row['majority'])}"
        worded.append(
            [
                *(plain(value) for value in outcome.point.values.values()),
                "failed" if outcome.failure else plain(row["trials"]),
                _with_ends(row, "accuracy") + majority,
                _with_ends(row, "advantage"),
                *(number(row[name]) for name in ("predicted", "rho_alpha", "epsilon")),
                *bounds,
            ]
        )
    return worded


def _with_ends(row: Mapping[str, Any], name: str) -> str:
    """Return a measured number, with its interval, if any, in a second line."""
    if row.get(f"{name}_low") is None:
        return number(row[name])
    ends = row[f"{name}_low"], row[f"{name}_high"]
    return f"{number(row[name])}\n{span(ends, '{:.2f}'.format)}"


def sentences(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return what was run, and what contradicts theory."""
    contradicted = [one.point.name for one in outcomes if _contradicts(one)]
    answer = [
        f"{len(outcomes)} settings were run, as the table shows. Each interval holds by itself. To "
        "pick a setting, give fedsim choose a limit on the adversary, such as --max-belief 0.75."
    ]
    if contradicted:
        answer.insert(0, f"Measurements contradict theory: {'; '.join(contradicted)}.")
    return answer


def _contradicts(one: RunOutcome) -> bool:
    return one.report is not None and bool(one.report.contradictions)


def first(outcomes: Sequence[RunOutcome]) -> doc.FirstScreen:
    """Return the first screen of the page."""
    failures = sum(bool(one.failure) for one in outcomes)
    alarming = any(map(_contradicts, outcomes))
    data = {one.report.data.name for one in outcomes if one.report}
    return doc.FirstScreen(
        answer=sentences(outcomes),
        alarming=alarming,
        checks=[
            settled(
                not failures,
                "Every setting finished.",
                f"{failures} of {len(outcomes)} settings failed.",
            ),
            settled(
                not alarming,
                "No measurement contradicts theory.",
                "Measurements contradict theory.",
            ),
        ],
        steps=[
            "Run a setting with more trials, or train the model with it: fedsim train takes the "
            "same keys."
        ],
        sign_off=first_screen.sign_off(
            data=", ".join(sorted(data)),
            date=first_screen.today(),
            limits=(
                "Accuracies are means over trainings on the same records. Measurements concern "
                "one target; limits are from theory."
            ),
        ),
    )


def write_sweep(name: str, outcomes: Sequence[RunOutcome], directory: Path) -> Path:
    """Write summary.csv, report.json and report.html; return the path of the page.

    Raises:
        InputError: the directory holds another kind of report.
        OSError: a file cannot be written.
    """
    made = rows(outcomes)
    # Everything is made before anything is written, so that a failure keeps the old files.
    places = comparison.compare([outcome.report for outcome in outcomes if outcome.report])
    summary = {"kind": KIND, "name": name, "runs": made, "vantages": places}
    document: Mapping[str, Any] = strict_json(summary)
    blocks: list[doc.Block] = [
        doc.Heading("The runs"),
        doc.tabulated(headings(outcomes), cells(outcomes)),
        runs(outcomes),
    ]
    page = render(doc.Document(f"Settings of {name}", "Settings", name, first(outcomes), blocks))
    private_files.write_private(directory / SUMMARY, as_csv(made).encode())
    return report_directory.write_report(directory, document, page)


def runs(outcomes: Sequence[RunOutcome]) -> doc.Bullets:
    """Return a link to the page of each run, or why it failed."""
    return doc.Bullets(
        [
            f"{one.point.name}: {one.failure}"
            if one.failure
            else doc.Link(one.point.name, f"{one.point.name}/report.html")
            for one in outcomes
        ]
    )


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as comma-separated values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
