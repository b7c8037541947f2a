"""Several runs side by side: identifiability towards each vantage."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from adversaries.errors import InputError
from fedsim.audits.results.report import Report
from fedsim.config import to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.learning.training.criterion import judge
from fedsim.report.document import blocks as doc
from fedsim.report.document import terminal, worth
from fedsim.report.document.first_screen import share
from fedsim.report.document.wording import number, percent, plain, span
from fedsim.report.sections import observers

Row = dict[str, Any]
FIRST = ("privacy", "federation", "training", "model", "data", "challenge")
MOST_SAID = 4
WHO_SEES_MORE = ("server", "participant", "released-model")


def differing(rows: Sequence[Row]) -> dict[str, dict[int, str]]:
    """Return the settings in which runs differ, with their values by run; privacy comes first."""
    settings = {row["number"]: _settings_of(Path(row["directory"])) for row in rows}
    if not all(settings.values()):
        return {}

    def rank(key: str) -> tuple[int, str]:
        table = key.partition(".")[0]
        if table not in FIRST or key == "privacy.noise-source":  # protects nobody more or less
            return len(FIRST), key
        return FIRST.index(table), key

    settings_by_key = {}
    for key in sorted(set().union(*settings.values()), key=rank):
        values = {place: plain(each.get(key)) for place, each in settings.items()}
        if not key.startswith("run.") and len(set(values.values())) > 1:
            settings_by_key[key] = values
    return settings_by_key


def named(rows: Sequence[Row]) -> dict[int, str]:
    """Return the name of every run by its number: the first setting that differs in all runs."""
    numbers = dict.fromkeys(row["number"] for row in rows)
    for key, values in differing(rows).items():
        if len(set(values.values())) == len(numbers) > 1:
            return {place: f"{key.partition('.')[2]} {values[place]}" for place in numbers}
    return {place: f"run {place}" for place in numbers}


def _settings_of(directory: Path) -> dict[str, Any]:
    try:
        return dict(to_run_config(RunDirectory.open(directory).config))
    except InputError:
        return {}


def sentences(rows: Sequence[Row], names: Mapping[int, str]) -> list[str]:
    """Return whether the first run is stricter than the others, and what that costs the model."""
    (strictest, strict), *others = _by_strictness(rows).items()
    return [
        _than(names[strictest], strict, names[other], of_run)
        for other, of_run in others[:MOST_SAID]
    ]


def _by_strictness(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """Return the rows of each run by its number, ordered by its limits from the server on."""
    runs: dict[int, list[Row]] = {}
    for row in rows:
        runs.setdefault(row["number"], []).append(row)
    return dict(sorted(runs.items(), key=lambda run: _limits(run[1])))


def _limits(rows: Sequence[Row]) -> list[float]:
    by_vantage = {row["vantage"]: float(row["limit"]) for row in rows}
    return [by_vantage.get(vantage, 1.0) for vantage in WHO_SEES_MORE]


def _than(name: str, strict: Sequence[Row], other_name: str, other: Sequence[Row]) -> str:
    pairs = [*zip(WHO_SEES_MORE, _limits(strict), _limits(other), strict=True)]
    less = next((each for each in pairs if each[1] < each[2]), None)
    more = next((each for each in pairs if each[1] > each[2]), None)
    cost = _cost(name, strict[0], other[0])
    if less is None:
        return f"{name} allows as much as {other_name} at every vantage point{cost}."
    if more is not None:
        return (
            f"Neither {name} nor {other_name} is stricter: {_right(*less)} in {name}, but "
            f"{_right(*more)}{cost}."
        )
    return f"{name} is stricter than {other_name}: {_right(*less)}{cost}."


def _right(vantage: str, one: float, other: float) -> str:
    return (
        f"{observers.WHO[vantage]} is right in at most {percent(share(one))} of cases instead "
        f"of {percent(share(other))}"
    )


def _worth(row: Row) -> str:
    return f"{row['criterion']} {worth.as_text(row['criterion'], row['value'])}"


def _cost(name: str, one: Row, other: Row) -> str:
    measure, values = one["criterion"], (one["value"], other["value"])
    if measure != other["criterion"] or None in values:
        return ""
    texts = [worth.as_text(measure, value) for value in values]
    if texts[0] == texts[1]:
        return f". The {measure} is the same"
    return f". The {measure} of {name} is {texts[0]} instead of {texts[1]}"


ADD_UP = "each ε is for one training; the costs of all trainings on the same people add up"
EXCEPT = "ρβ limits the belief, except in the share of trainings in brackets"


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


def _table(rows: Sequence[Row]) -> tuple[doc.Table, list[str]]:
    """Return a table that fits a terminal of 80 characters, and its notes."""
    levels = {row["confidence"] for row in rows} - {None}
    notes = [f"intervals at {percent(*levels)}"] if len(levels) == 1 else []
    runs = {row["number"]: f"{row['run']}, {row['directory']}{_released(row)}" for row in rows}
    models = {row["number"]: f"{_worth(row)}, δ = {row['delta']:g}" for row in rows}
    if len(runs) > 1:
        notes += [f"{place}: {run}; {models[place]}" for place, run in runs.items()]
    else:
        notes += models.values()
    notes.append(EXCEPT)
    if any(row["released"] for row in rows):
        notes.append(ADD_UP)
    several = len(runs) > 1
    headings = ["#"] * several + ["trust", "vantage", "z", "ε\nρβ", "limit", "pred.", "measured"]
    cells: dict[int, list[list[str]]] = {place: [] for place in runs}
    for row in rows:
        cells[row["number"]].append([str(row["number"])] * several + _shown(row, len(levels) > 1))
    groups = [doc.Group("", doc.tabulated(headings, own).groups[0].lines) for own in cells.values()]
    return doc.Table([*headings, "verdict"], groups), notes


def table(rows: Sequence[Row]) -> RenderableType:
    block, notes = _table(rows)
    return terminal.table(block, "Advantage by trust and vantage", "\n".join(notes), dense=True)


def blocks(rows: Sequence[Row]) -> list[doc.Block]:
    block, notes = _table(rows)
    return [block, *map(doc.Prose, notes)]


def summary(rows: Sequence[Row]) -> RenderableType:
    prose = [doc.Prose(each) for each in sentences(rows, named(rows))]
    return terminal.shown(table(rows), *prose)


def _shown(row: Row, levels_differ: bool) -> list[str]:
    interval = f"\n{span(row['interval'], '{:.2f}'.format)}" if row["interval"] else ""
    if interval and levels_differ:
        interval += f"\nat {percent(row['confidence'])}"
    return [
        _trust(row),
        _named(row),
        number(row["noise_multiplier"]),
        "\n".join((number(row["epsilon"]), *belief(row))),
        number(row["limit"]),
        number(row["predicted"]),
        f"{number(row['measured'])}{interval}",
        row["verdict"].replace(", ", ",\n"),
    ]


def _named(row: Row) -> str:
    return str(row["vantage"]).replace("-", " ")


def _trust(row: Row) -> str:
    return f"{row['trust']}, {row['colluding']} collude" if row["colluding"] else row["trust"]


def belief(row: Row) -> list[str]:
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
    judged = judge(report.utility.measured)
    for row in report.rows.values():
        predicted, measured, limit = row.predicted, row.attack, row.limit
        apart = measured is not None and measured.near_prediction is False
        words = observers.mark(report, row).text
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
            "verdict": f"{words}{', apart from prediction' * apart}",
            "released": released,
        }


def _released(row: Row) -> str:
    if not (released := row["released"]):
        return ""
    count = (
        "its one training"
        if released["trainings"] == 1
        else f"all {released['trainings']} trainings"
    )
    return (
        f": ε = {number(released['epsilon'])} at δ = {released['delta']:g} towards the "
        f"{released['vantage'].replace('-', ' ')}, released by {count}"
    )
