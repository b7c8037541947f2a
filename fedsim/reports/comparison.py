"""Several runs side by side: what theory allows each observer, what was measured, at what cost."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.run.report import RunReport
from fedsim.learning.training.criterion import judge
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import worth
from fedsim.reports.document.first_screen import most, share, shares
from fedsim.reports.document.wording import number, percent, span
from fedsim.reports.sections import every_audit

Row = dict[str, Any]
ADD_UP = "each ε is for one training; the costs of all trainings on the same people add up"
TOGETHER = "trainings", "epsilon", "delta", "vantage"
"""What a row has of everything that a run with real noise released."""


def side_by_side(directories: Sequence[Path], reports: Sequence[RunReport]) -> list[Row]:
    """Return a row for each run and vantage.

    Keys of a row; an unknown value is None:
        number (of the run, from 1), directory;
        run, trust, colluding (number of clients), vantage;
        epsilon, delta, rho_beta, tail_limit (largest share of trainings whose belief passes
        rho_beta), rho_alpha;
        criterion and value (of the final models, by `criterion.judge`);
        predicted, measured, interval, confidence;
        state (`results.verdicts.State`), verdict (the state in words);
        released (if the noise is real: trainings, epsilon, delta and vantage of all trainings).
    """
    places: dict[Path, Path] = {}
    for directory in directories:
        if (place := directory.resolve()) in places:
            raise InputError(
                f"'{places[place]}' and '{directory}' are the same run; give each run once"
            )
        places[place] = directory
    return [
        {"number": place, "directory": str(directory)} | row
        for place, (directory, report) in enumerate(zip(directories, reports, strict=True), start=1)
        for row in _rows(report)
    ]


def _rows(report: RunReport) -> Iterator[Row]:
    everything, judged = report.details.released, judge(report.details.utility.measured)
    for row in report.rows.values():
        measured, limit = row.attack, row.allowed
        apart = measured is not None and measured.near_prediction is False
        yield {
            "run": report.name,
            "trust": report.details.trust,
            "colluding": report.details.colluding,
            "vantage": row.observer,
            "epsilon": limit.epsilon,
            "delta": report.delta,
            "rho_beta": limit.rho_beta,
            "tail_limit": limit.exceeded,
            "rho_alpha": limit.rho_alpha,
            "criterion": judged.name,
            "value": judged.value,
            "predicted": row.predicted and row.predicted.advantage,
            "measured": row.advantage,
            "interval": row.interval,
            "confidence": measured and measured.confidence,
            "state": row.standing,
            "verdict": f"{every_audit.mark(report, row).text}{', apart from prediction' * apart}",
            "released": everything and {name: getattr(everything, name) for name in TOGETHER},
        }


HEADINGS = ("#", "trust", "observer", "right answers", "limit", "ε", "verdict")


def blocks(rows: Sequence[Row]) -> list[doc.Block]:
    """Return a table that fits a terminal of 80 characters, and a note on each run."""
    cells = []
    for row in rows:
        ends = span(shares(row["interval"]), percent)
        right = "not measured" if row["measured"] is None else percent(share(row["measured"]))
        cells.append(
            [
                str(row["number"]),
                row["trust"] + f", {row['colluding']} collude" * bool(row["colluding"]),
                every_audit.named(row["vantage"]),
                f"{right}\n{ends}".strip(),
                most(row["rho_alpha"], row["epsilon"]),
                number(row["epsilon"]) if math.isfinite(row["epsilon"]) else "none",
                row["verdict"].replace(", ", ",\n"),
            ]
        )
    notes = [_note(list(some)) for _, some in groupby(rows, lambda row: int(row["number"]))]
    if any(row["released"] for row in rows):
        notes.append(ADD_UP)
    return [doc.tabulated(HEADINGS, cells), *map(doc.Prose, notes)]


NOTE = "{number}: {run}, {directory}; {model}, δ = {delta:g}{intervals}{released}"
RELEASED = "; ε = {} at δ = {:g} towards the {}, released by {} training(s)"


def _note(rows: Sequence[Row]) -> str:
    """Return the name and directory of a run, its model, and what it released."""
    row, released = rows[0], rows[0]["released"]
    model = f"{row['criterion']} {worth.as_text(row['criterion'], row['value'])}"
    levels = {each["confidence"] for each in rows} - {None}
    intervals = f", intervals at {', '.join(map(percent, levels))}" if levels else ""
    cost = ""
    if released:
        count, epsilon, delta, towards = released.values()
        cost = RELEASED.format(number(epsilon), delta, towards.replace("-", " "), count)
    return NOTE.format(**row | {"model": model, "intervals": intervals, "released": cost})
