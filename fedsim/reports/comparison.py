"""Several runs side by side: what theory allows each observer, what was measured, at what cost."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from adversaries.errors import InputError
from fedsim.audits.results.report import Report
from fedsim.configuration import to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.learning.training.criterion import judge
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import terminal, worth
from fedsim.reports.document.first_screen import share, shares
from fedsim.reports.document.wording import number, percent, plain, span
from fedsim.reports.sections import observers

Row = dict[str, Any]
FIRST = ("privacy", "federation", "training", "model", "data", "challenge")
MOST_SAID = 4
WHO_SEES_MORE = ("server", "participant", "released-model")
ADD_UP = "each ε is for one training; the costs of all trainings on the same people add up"


def compare(reports: Sequence[Report]) -> list[Row]:
    """Return a row for each run and vantage; the worst vantage of each run comes first.

    Keys of a row; an unknown value is None:
        run, trust, colluding (number of clients), vantage, noise_multiplier (effective);
        epsilon, delta, rho_beta, tail_limit (largest share of trainings whose belief passes
        rho_beta), rho_alpha, limit (rho_alpha);
        criterion and value (of the final models, by `criterion.judge`);
        predicted, measured, interval, confidence;
        state (`results.verdicts.State`), verdict (the state in words);
        released (if the noise is real: trainings, epsilon, delta and vantage of all trainings).
    """
    return [row for report in reports for row in _rows(report)]


def side_by_side(directories: Sequence[Path], reports: Sequence[Report]) -> list[Row]:
    """Return the rows of `compare`, each with its run's number, from 1, and directory."""
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
            "none" if row["limit"] >= 1 else percent(share(row["limit"])),
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
    table = terminal.table(_table(rows), "Observers by run", notes, dense=True)
    return terminal.shown(table, *map(doc.Prose, sentences(rows, named(rows))))


def named(rows: Sequence[Row]) -> dict[int, str]:
    """Return the name of every run by its number: the first setting that differs in all runs."""
    settings = {row["number"]: _settings_of(Path(row["directory"])) for row in rows}
    keys = set().union(*settings.values()) if all(settings.values()) else set()
    for key in sorted(keys, key=_rank):
        values = {place: plain(each.get(key)) for place, each in settings.items()}
        if not key.startswith("run.") and len(set(values.values())) == len(settings) > 1:
            return {place: f"{key.partition('.')[2]} {values[place]}" for place in settings}
    return {place: f"run {place}" for place in settings}


def _rank(key: str) -> tuple[int, str]:
    table = key.partition(".")[0]
    if table not in FIRST or key == "privacy.noise-source":  # protects nobody more or less
        return len(FIRST), key
    return FIRST.index(table), key


def _settings_of(directory: Path) -> dict[str, Any]:
    try:
        return dict(to_run_config(RunDirectory.open(directory).config))
    except InputError:
        return {}


ALIKE = "{one} allows as much as {other} at every vantage point.{cost}"
STRICTER = "{one} is stricter than {other}: {less}.{cost}"
NEITHER = "Neither {one} nor {other} is stricter: {less} in {one}, but {more}.{cost}"


def sentences(rows: Sequence[Row], names: Mapping[int, str]) -> list[str]:
    """Return whether the first run is stricter than the others, and what that costs the model."""
    runs: dict[int, list[Row]] = {}
    for row in rows:
        runs.setdefault(row["number"], []).append(row)
    (strictest, strict), *others = sorted(runs.items(), key=lambda run: _limits(run[1]))
    return [
        _than(names[strictest], strict, names[other], of_run)
        for other, of_run in others[:MOST_SAID]
    ]


def _limits(rows: Sequence[Row]) -> list[float]:
    by_vantage = {row["vantage"]: float(row["limit"]) for row in rows}
    return [by_vantage.get(vantage, 1.0) for vantage in WHO_SEES_MORE]


def _than(one: str, strict: Sequence[Row], other: str, laxer: Sequence[Row]) -> str:
    told: dict[bool, str] = {}
    for vantage, ours, theirs in zip(WHO_SEES_MORE, _limits(strict), _limits(laxer), strict=True):
        if ours != theirs and (ours < theirs) not in told:
            told[ours < theirs] = (
                f"{observers.WHO[vantage]} is right in at most {percent(share(ours))} of cases "
                f"instead of {percent(share(theirs))}"
            )
    sentence = (NEITHER if False in told else STRICTER) if told else ALIKE
    less, more = told.get(True, ""), told.get(False, "")
    cost = _cost(one, strict[0], laxer[0])
    return sentence.format(one=one, other=other, less=less, more=more, cost=cost)


def _cost(name: str, one: Row, other: Row) -> str:
    measure, values = one["criterion"], (one["value"], other["value"])
    if measure != other["criterion"] or None in values:
        return ""
    texts = [worth.as_text(measure, value) for value in values]
    if texts[0] == texts[1]:
        return f" The {measure} is the same."
    return f" The {measure} of {name} is {texts[0]} instead of {texts[1]}."
