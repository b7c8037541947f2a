"""The first screen of a comparison: the stricter run, by how much, and at what cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.results.verdicts import TABLE
from fedsim.config import to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.document import first_screen
from fedsim.report.document.bars import share, shares
from fedsim.report.document.blocks import Bar, Bars, FirstScreen, Mark, tabulated
from fedsim.report.document.first_screen import settled
from fedsim.report.document.wording import number, percent, plain

Row = Mapping[str, Any]

FIRST = ("privacy", "federation", "training", "model", "data", "challenge")
"""Tables of settings that name a run, in order: first privacy, then learning."""

MOST_BARS = 9
"""Most bars of a figure; beyond, each run has one bar, for its worst vantage."""

MOST_SAID = 4

WHO_SEES_MORE = ("server", "participant", "released-model")


def differing(rows: Sequence[Row]) -> dict[str, dict[int, str]]:
    """Return the settings in which runs differ, with their values by run; privacy comes first.

    Returns {} if a configuration cannot be read.
    """
    settings = {row["number"]: _settings(Path(row["directory"])) for row in rows}
    if not all(settings.values()):
        return {}
    found = {}
    for key in sorted(set().union(*settings.values()), key=_rank):
        values = {place: plain(each.get(key)) for place, each in settings.items()}
        if not key.startswith("run.") and len(set(values.values())) > 1:
            found[key] = values
    return found


def _rank(key: str) -> tuple[int, str]:
    table = key.partition(".")[0]
    if key == "privacy.noise-source":  # protects nobody more or less
        return len(FIRST), key
    return FIRST.index(table) if table in FIRST else len(FIRST), key


def named(rows: Sequence[Row]) -> dict[int, str]:
    """Return the name of every run by its number: the first setting that differs in all runs.

    Without such a setting, the name is the number.
    """
    numbers = dict.fromkeys(row["number"] for row in rows)
    for key, values in differing(rows).items():
        if len(set(values.values())) == len(numbers) > 1:
            return {place: f"{key.partition('.')[2]} {values[place]}" for place in numbers}
    return {place: f"run {place}" for place in numbers}


def heading(rows: Sequence[Row]) -> str:
    """Return what the runs differ in, as a heading."""
    differs = differing(rows)
    if not differs:
        return f"{len({row['number'] for row in rows})} runs side by side"
    key, values = next(iter(differs.items()))
    more = len(differs) - 1
    others = f", and {more} more setting{'s' * (more > 1)}" if more else ""
    return f"{key}: {' or '.join(dict.fromkeys(values.values()))}{others}"


def _settings(directory: Path) -> dict[str, Any]:
    try:
        return dict(to_run_config(RunDirectory.open(directory).config))
    except InputError:
        return {}


def first(rows: Sequence[Row], names: Mapping[int, str]) -> FirstScreen:
    """Return the first screen of a comparison.

    Args:
        rows: of `comparison.side_by_side`.
        names: of the runs, by their numbers.
    """
    runs = {place: [row for row in rows if row["number"] == place] for place in names}
    order = _by_strictness(runs)
    said = sentences(rows, names)
    shown = rows if len(rows) <= MOST_BARS else [found[0] for found in runs.values()]
    table = [[names[place], *_in_short(runs[place])] for place in order]
    return FirstScreen(
        answer=said,
        alarming=any(row["state"] == "above" for row in rows),
        figure=Bars(
            [_bar(row, names) for row in shown],
            "How often the adversary is right, run by run and vantage by vantage.",
        ),
        table=tabulated(
            ("Run, the strictest first", "Worst verdict", "ε there", "Accuracy"), table
        ),
        checks=[
            settled(
                not any(row["state"] == "above" for row in of_run),
                f"{names[place]}: no measurement contradicts theory.",
                f"{names[place]}: a measurement contradicts theory.",
            )
            for place, of_run in runs.items()
        ],
        steps=[
            "Take the strictest run whose accuracy suffices. A difference of accuracies may be "
            "chance: each run's page has the intervals."
        ],
        sign_off=first_screen.sign_off(
            data=", ".join(str(found[0]["directory"]) for found in runs.values()),
            date=first_screen.today(),
            limits="Measurements are about one target of each run; limits are by theory.",
        ),
    )


def sentences(rows: Sequence[Row], names: Mapping[int, str]) -> list[str]:
    """Return how much stricter the strictest run is than the others, and its cost in accuracy.

    Args:
        rows: of `comparison.side_by_side`.
        names: of the runs, by their numbers.
    """
    runs = {place: [row for row in rows if row["number"] == place] for place in names}
    strictest, *others = _by_strictness(runs)
    return [
        _than(names[strictest], runs[strictest], names[other], runs[other])
        for other in others[:MOST_SAID]
    ]


def _by_strictness(runs: Mapping[int, Sequence[Row]]) -> list[int]:
    return sorted(runs, key=lambda place: _limits(runs[place]))


def _limits(rows: Sequence[Row]) -> list[float]:
    """Return the limits of a run at every vantage, the one that sees most first."""
    by_vantage = {row["vantage"]: float(row["limit"]) for row in rows}
    return [by_vantage.get(vantage, 1.0) for vantage in WHO_SEES_MORE]


def _than(name: str, strict: Sequence[Row], other_name: str, other: Sequence[Row]) -> str:
    """Return a sentence on how much stricter one run is than another, and its cost."""
    pairs = zip(WHO_SEES_MORE, _limits(strict), _limits(other), strict=True)
    gap = next(((at, one, two) for at, one, two in pairs if one < two), None)
    cost = _cost(strict[0]["accuracy"], other[0]["accuracy"])
    if gap is None:
        return f"{name} allows as much as {other_name} at every vantage point{cost}."
    vantage, less, more = gap
    return (
        f"{name} is stricter than {other_name}: towards the {vantage.replace('-', ' ')} at most "
        f"{percent(share(less))} instead of {percent(share(more))}{cost}."
    )


def _cost(one: float | None, other: float | None) -> str:
    if one is None or other is None:
        return ""
    points = 100 * (other - one)
    if abs(points) < 0.05:
        return ", at the same accuracy"
    if points > 0:
        return f", which costs {points:.1f} points of accuracy"
    return f", with {-points:.1f} points more of accuracy"


def _in_short(rows: Sequence[Row]) -> list[str]:
    worst = rows[0]
    return [
        f"{worst['verdict']} ({worst['vantage']})",
        number(worst["epsilon"]),
        percent(worst["accuracy"]),
    ]


def _bar(row: Row, names: Mapping[int, str]) -> Bar:
    kinds = {words.text: words.kind for words in TABLE}
    text = str(row["verdict"]).partition(", apart")[0]
    right = None if row["measured"] is None else share(row["measured"])
    name = f"{names[row['number']]}, {row['vantage'].replace('-', ' ')}"
    mark = Mark(kinds[text], text)
    return Bar(name, mark, right, shares(row["interval"]), share(row["limit"]))
