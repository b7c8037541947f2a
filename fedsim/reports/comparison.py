"""Several runs side by side: what theory allows each observer, what was measured, at what cost."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from adversaries.errors import InputError
from fedsim.audits.results.report import Report
from fedsim.learning.training.criterion import judge
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import terminal, worth
from fedsim.reports.document.first_screen import most, share, shares
from fedsim.reports.document.wording import number, percent, span
from fedsim.reports.sections import observers

Row = dict[str, Any]
ADD_UP = "each ε is for one training; the costs of all trainings on the same people add up"


def side_by_side(directories: Sequence[Path], reports: Sequence[Report]) -> list[Row]:
    """Return a row for each run and vantage; the worst vantage of each run comes first.

    Keys of a row; an unknown value is None:
        number (of the run, from 1), directory;
        run, trust, colluding (number of clients), vantage, noise_multiplier (effective);
        epsilon, delta, rho_beta, tail_limit (largest share of trainings whose belief passes
        rho_beta), rho_alpha, limit (rho_alpha);
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


def _rows(report: Report) -> Iterator[Row]:
    everything, judged = report.released, judge(report.utility.measured)
    released = everything and {
        name: getattr(everything, name) for name in ("trainings", "epsilon", "delta", "vantage")
    }
    for row in report.rows.values():
        predicted, measured, limit = row.predicted, row.attack, row.limit
        apart = measured is not None and measured.near_prediction is False
        yield {
            "run": report.name,
            "trust": report.trust,
            "colluding": report.colluding,
            "vantage": row.observer,
            "noise_multiplier": limit.noise_multiplier,
            "epsilon": limit.epsilon,
            "delta": report.bounds.delta,
            "rho_beta": limit.rho_beta,
            "tail_limit": limit.exceeded,
            "rho_alpha": limit.rho_alpha,
            "limit": limit.rho_alpha,
            "criterion": judged.name,
            "value": judged.value,
            "predicted": None if predicted is None else predicted.advantage,
            "measured": None if measured is None else measured.advantage,
            "interval": None if measured is None else measured.interval,
            "confidence": None if measured is None else measured.confidence,
            "state": row.standing,
            "verdict": f"{observers.mark(report, row).text}{', apart from prediction' * apart}",
            "released": released,
        }


HEADINGS = ("trust", "observer", "right answers", "limit", "ε", "verdict")


def _table(rows: Sequence[Row]) -> doc.Table:
    """Return a table that fits a terminal of 80 characters."""
    groups: dict[int, list[list[str]]] = {}
    for row in rows:
        colluding = f", {row['colluding']} collude" if row["colluding"] else ""
        measured, ends = row["measured"], span(shares(row["interval"]), percent)
        right = "not measured" if measured is None else percent(share(measured))
        cells = [
            str(row["number"]),
            f"{row['trust']}{colluding}",
            observers.NAMES[row["vantage"]],
            f"{right}\n{ends}" if ends else right,
            most(row["limit"], row["epsilon"]),
            number(row["epsilon"]) if math.isfinite(row["epsilon"]) else "none",
            row["verdict"].replace(", ", ",\n"),
        ]
        groups.setdefault(row["number"], []).append(cells)
    lines = [doc.tabulated(("#", *HEADINGS), group).groups[0] for group in groups.values()]
    return doc.Table(("#", *HEADINGS), lines)


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield, for each run, its name and directory, its model, and what it released."""
    for row in {row["number"]: row for row in reversed(rows)}.values():
        model = f"{row['criterion']} {worth.as_text(row['criterion'], row['value'])}"
        levels = {each["confidence"] for each in rows if each["number"] == row["number"]} - {None}
        intervals = f", intervals at {', '.join(map(percent, levels))}" if levels else ""
        note = f"{row['number']}: {row['run']}, {row['directory']}; {model}"
        yield f"{note}, δ = {row['delta']:g}{intervals}{_released(row)}"
    if any(row["released"] for row in rows):
        yield ADD_UP


def _released(row: Row) -> str:
    if not (released := row["released"]):
        return ""
    count = released["trainings"]
    by = "its one training" if count == 1 else f"all {count} trainings"
    towards = released["vantage"].replace("-", " ")
    cost = f"ε = {number(released['epsilon'])} at δ = {released['delta']:g}"
    return f"; {cost} towards the {towards}, released by {by}"


def blocks(rows: Sequence[Row]) -> list[doc.Block]:
    return [_table(rows), *map(doc.Prose, sorted(_notes(rows)))]


def summary(rows: Sequence[Row]) -> RenderableType:
    notes = "\n".join(sorted(_notes(rows)))
    return terminal.shown(terminal.table(_table(rows), "Observers by run", notes, dense=True))
