"""Several runs side by side: identifiability towards each vantage."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from adversaries.errors import InputError
from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import VantageVerdict
from fedsim.common import report_directory
from fedsim.common.strict_json import strict_json
from fedsim.report.comparing import differing, first, heading, named, sentences
from fedsim.report.document import terminal
from fedsim.report.document.blocks import (
    Block,
    Bullets,
    Document,
    Group,
    Heading,
    Link,
    Prose,
    Table,
    Words,
    tabulated,
)
from fedsim.report.document.html import render
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections import vantage_words

Row = dict[str, Any]

ADD_UP = "ε is for one training; the trainings of all these runs on the same people add up"
"""A note for runs whose noise is real."""


TAIL = "ρβ limits the belief, except in the share of trainings in brackets"
"""A note on the limit of the belief, which does not hold in a tail."""


def compare(reports: Sequence[Report]) -> list[Row]:
    """Return a row for each run and vantage; the worst vantage of each run comes first.

    Keys of a row; an unknown value is None:
        run, trust, colluding (number of clients), vantage, noise_multiplier (effective);
        epsilon, delta, rho_beta, tail_limit (largest share of trainings whose belief passes
        rho_beta), rho_alpha, limit (rho_alpha, or the bound of PAC privacy);
        accuracy (mean after the last round), predicted, measured, interval, confidence;
        state (`results.verdicts.State`), verdict (the state in words);
        released (if the noise is real: trainings, epsilon, delta and vantage of all trainings).
    """
    return [row for report in reports for row in _rows(report)]


def side_by_side(directories: Sequence[Path], reports: Sequence[Report]) -> list[Row]:
    """Return the rows of `compare`, each with its run's number, from 1, and directory.

    Raises:
        InputError: two paths lead to one directory.
    """
    seen: dict[Path, Path] = {}
    for directory in directories:
        if (place := directory.resolve()) in seen:
            raise InputError(f"'{seen[place]}' and '{directory}' are one run; give every run once")
        seen[place] = directory
    return [
        {"number": place, "directory": str(directory)} | row
        for place, (directory, report) in enumerate(zip(directories, reports, strict=True), start=1)
        for row in _rows(report)
    ]


def table(rows: Sequence[Row]) -> RenderableType:
    """Return the comparison, of `side_by_side`, as the terminal shows it."""
    levels = {row["confidence"] for row in rows} - {None}
    notes = [f"intervals at {percent(*levels)}"] if len(levels) == 1 else []
    runs = {row["number"]: f"{row['run']}, {row['directory']}{_released(row)}" for row in rows}
    worth = {
        row["number"]: f"accuracy {percent(row['accuracy'])}, δ = {row['delta']:g}" for row in rows
    }
    if len(runs) > 1:
        notes += [f"{place}: {run}; {worth[place]}" for place, run in runs.items()]
    else:
        notes += worth.values()
    notes.append(TAIL)
    if any(row["released"] for row in rows):
        notes.append(ADD_UP)
    several = len(runs) > 1
    headings = ["#"] * several + ["trust", "vantage", "z", "ε\nρβ", "limit", "pred.", "measured"]
    cells = [[str(row["number"])] * several + _shown(row, len(levels) > 1) for row in rows]
    groups = [
        Group("", tabulated(headings, own).groups[0].lines)
        for own in (
            [line for line, row in zip(cells, rows, strict=True) if row["number"] == place]
            for place in runs
        )
    ]
    title = "Advantage by trust and vantage"
    # All of it has to fit a terminal of 80 characters.
    block = Table([*headings, "verdict"], groups)
    return terminal.table(block, title, "\n".join(notes), dense=True)


def summary(rows: Sequence[Row]) -> RenderableType:
    """Return what the terminal shows: the comparison, and which run is stricter."""
    said = [Prose(each) for each in sentences(rows, named(rows))]
    return terminal.shown(table(rows), *said)


def _shown(row: Row, levels_differ: bool) -> list[str]:
    interval = f"\n{span(row['interval'], '{:.2f}'.format)}" if row["interval"] else ""
    if interval and levels_differ:
        interval += f"\nat {percent(row['confidence'])}"
    collude = f", {row['colluding']} collude" if row["colluding"] else ""
    return [
        f"{row['trust']}{collude}",
        str(row["vantage"]),
        number(row["noise_multiplier"]),
        "\n".join((number(row["epsilon"]), *belief(row))),
        number(row["limit"]),
        number(row["predicted"]),
        f"{number(row['measured'])}{interval}",
        row["verdict"].replace(", ", ",\n"),
    ]


def belief(row: Row) -> list[str]:
    """Return the limit of the belief, and in brackets the largest share that passes it."""
    limit = percent(row["rho_beta"])
    return [limit, f"({percent(row['tail_limit'])})"] if row["tail_limit"] < 1 else [limit]


def _rows(report: Report) -> Iterator[Row]:
    everything = report.released
    released = everything and {
        "trainings": everything.trainings,
        "epsilon": everything.epsilon,
        "delta": everything.delta,
        "vantage": everything.vantage,
    }
    accuracy = report.utility.accuracy.mean
    for found in report.verdicts:
        vantage, place = found.vantage, report.vantages[found.vantage]
        predicted, measured = place.prediction, place.empirical
        yield {
            "run": report.name,
            "trust": report.trust,
            "colluding": report.colluding,
            "vantage": vantage,
            "noise_multiplier": place.noise_multiplier,
            "epsilon": place.epsilon,
            "delta": found.allowed.delta,
            "rho_beta": place.rho_beta,
            "tail_limit": found.allowed.passed,
            "rho_alpha": place.rho_alpha,
            "limit": found.allowed.advantage,
            "accuracy": accuracy[-1] if accuracy else None,
            "predicted": None if predicted is None else predicted.advantage,
            "measured": None if measured is None else measured.advantage,
            "interval": None if measured is None else measured.advantage_interval,
            "confidence": None if measured is None else measured.confidence,
            "state": found.state,
            "verdict": _words(report, found),
            "released": released,
        }


def _released(row: Row) -> str:
    """Return what all trainings of a row's run released together; "" with noise of a seed."""
    if not (found := row["released"]):
        return ""
    count = "its one training" if found["trainings"] == 1 else f"all {found['trainings']} trainings"
    return (
        f": ε = {number(found['epsilon'])} at δ = {found['delta']:g} towards the "
        f"{found['vantage']}, released by {count}"
    )


def _words(report: Report, found: VantageVerdict) -> str:
    """Return a state in the words of the run's page, and whether the prediction failed."""
    place = report.vantages[found.vantage].empirical
    apart = place is not None and place.near_prediction is False
    return f"{vantage_words.mark(report, found).text}{', apart from prediction' * apart}"


KIND = "comparison"
"""What report.json says that it is of."""

HEADINGS = (
    *("Run", "Trust", "Vantage", "z", "ε", "δ", "ρβ (but for a tail)", "ρα", "Predicted"),
    *("Measured", "Interval", "Accuracy", "Verdict"),
)


def blocks(rows: Sequence[Row]) -> list[Block]:
    """Return the comparison as a page shows it."""
    return [tabulated(HEADINGS, map(_page_cells, rows)), Prose(f"{TAIL}.")]


def write(rows: Sequence[Row], directory: Path) -> Path:
    """Write report.html and report.json, and return the page."""
    runs = {row["number"]: row for row in rows}
    names = named(rows)
    links: list[Words] = [
        [Link(names[place], _link(row, directory)), f", {row['run']}"]
        for place, row in runs.items()
    ]
    document = Document(
        title=f"Comparison of {len(runs)} runs",
        kind="Comparison",
        heading=heading(rows),
        first=first(rows, names),
        blocks=[
            Heading("To whom the person is identifiable"),
            *blocks(rows),
            Heading("The runs"),
            Bullets(links, True),
            *_settings(rows),
        ],
    )
    written = strict_json({"kind": KIND, "runs": list(rows)})
    return report_directory.write_report(directory, written, render(document))


def _settings(rows: Sequence[Row]) -> list[Block]:
    """Return every setting in which the runs differ."""
    if not (found := differing(rows)):
        return []
    numbers = list(dict.fromkeys(row["number"] for row in rows))
    cells = [[key, *(values[place] for place in numbers)] for key, values in found.items()]
    headings = ["Setting", *(f"Run {place}" for place in numbers)]
    return [Heading("In which settings they differ"), tabulated(headings, cells)]


def _link(row: Row, directory: Path) -> str:
    """Return where the report of a row's run lies, as seen from the page."""
    report = Path(row["directory"]).absolute() / "report.html"
    return Path(os.path.relpath(report, directory.absolute())).as_posix()


def _page_cells(row: Row) -> list[str]:
    collude = f", {row['colluding']} collude" if row["colluding"] else ""
    between = row["interval"]
    interval = f"{span(between, '{:.2f}'.format)} at {percent(row['confidence'])}"
    return [
        f"{row['number']}",
        f"{row['trust']}{collude}",
        str(row["vantage"]),
        *(number(row[key]) for key in ("noise_multiplier", "epsilon")),
        f"{row['delta']:g}",
        " ".join(belief(row)),
        *(number(row[key]) for key in ("rho_alpha", "predicted", "measured")),
        interval if between else "–",
        percent(row["accuracy"]),
        row["verdict"],
    ]
