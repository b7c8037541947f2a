"""A grid of runs and what they found, side by side: as tables, as a page and as figures."""

import csv
import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich import box
from rich.table import Table
from rich.text import Text

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.campaign.run_directory import RunDirectory
from fedsim.common import private_files, report_directory
from fedsim.common.strict_json import strict_json
from fedsim.config import KNOWN_KEYS, Scalar
from fedsim.pages import audit_page
from fedsim.pages.wording import DASH, number, percent, plain, span
from fedsim.report import comparison
from fedsim.report.sections.facts import TITLES
from fedsim.results.report import Report

KIND = "sweep"
"""What report.json says that it is of."""

BOUND_COLUMN = "at_least_"
"""What the columns of the lower bounds on epsilon begin with."""

COLUMNS = (
    *("trials", "advantage", "advantage_low", "advantage_high", "confidence", "predicted"),
    *("rho_alpha", "epsilon", "delta", "epsilon_released", "headline", f"{BOUND_COLUMN}headline"),
)
"""Of what a run's report says, but for its lower bounds."""

SHOWN = {"headline": "headline", "clopper_pearson": "Clopper–Pearson"}
"""The lower bounds in tables and figures, and how they are called: the one that a report leads with
and the one that assumes least. summary.csv has all of them."""


OF_A_RUN = ("run.out", "run.name")
"""Keys that every run of a sweep gets a value of its own for."""


@dataclass(frozen=True)
class Point:
    """One run of the grid.

    Attributes:
        name: its folder.
        values: of the keys that the sweep is over.
    """

    name: str
    values: dict[str, Scalar]


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        point: of the grid.
        report: None where there is none.
        failure: why not, else "".
    """

    point: Point
    report: Report | None
    failure: str = ""


def grid(over: Sequence[str]) -> list[Point]:
    """Return every combination of values, the last key varying fastest.

    A folder is named for the last parts of the keys and the values.

    Args:
        over: each `KEY=V1,V2,...`.

    Raises:
        InputError: another form; a key that is unknown, given twice or the run's folder; a value
            given twice; values that no folder can be named for apart.
    """
    axes: dict[str, list[Scalar]] = {}
    for text in over:
        key, equals, values = text.partition("=")
        key, listed = key.strip(), [value.strip() for value in values.split(",")]
        if not equals or not all(listed):
            raise InputError(
                f"--over {text!r} is not KEY=V1,V2,...; give for example "
                "--over privacy.rho-beta=0.75,0.9"
            )
        if key in axes or key in OF_A_RUN:
            raise InputError(f"--over {key} " + ("is given twice" if key in axes else "is no axis"))
        if key not in KNOWN_KEYS:
            configuration.from_run_config({key: ""})  # which says so, and the nearest one
        axes[key] = [configuration.parse_override(f"{key}={value}")[1] for value in listed]
        if len(set(axes[key])) < len(listed):
            raise InputError(f"--over {text!r} has a value twice; give each once")
    points = [
        Point(_folder(dict(zip(axes, values, strict=True))), dict(zip(axes, values, strict=True)))
        for values in itertools.product(*axes.values())
    ]
    if any(
        isinstance(value, float) and math.isnan(value) for axis in axes.values() for value in axis
    ):
        raise InputError("--over has a value that is not a number (nan); give one")
    if len({point.name for point in points}) < len(points):
        raise InputError("two of the runs would have one folder; rename what --over varies")
    return points


def report_of(directory: Path) -> Report:
    """Return the report of a finished run. Raises InputError."""
    return RunDirectory.open(directory).read_report()


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return a row for each run, with the same columns in all: the swept keys, then the figures.

    run, status ("done" or the failure), trials, advantage with its interval and confidence,
    predicted, rho_alpha, epsilon of one training (tight) and delta, epsilon_released by all
    trainings of the run where a guarantee may speak of it, the name of the lower bound on epsilon
    that its report leads with, that bound, and a column for every one; None where unknown or
    refused.
    """
    reports = [outcome.report for outcome in outcomes if outcome.report]
    names = list(
        dict.fromkeys(name for report in reports for name in report.empirical.lower_bounds)
    )
    return [_row(outcome, names) for outcome in outcomes]


def _row(outcome: Outcome, bounds: Sequence[str]) -> dict[str, Any]:
    status = {"status": outcome.failure or "done"}
    found = dict.fromkeys((*COLUMNS, *(f"{BOUND_COLUMN}{name}" for name in bounds)))
    if outcome.report is not None:
        found |= _reported(outcome.report)
    return {"run": outcome.point.name, **outcome.point.values, **status, **found}


def _reported(report: Report) -> dict[str, Any]:
    """Return what a row says of a run's report: of the bounds those that its trials allow."""
    measured = report.empirical
    low, high = measured.advantage_interval or (None, None)
    values = (
        report.trials,
        measured.advantage,
        low,
        high,
        measured.confidence,
        report.prediction.advantage,
        report.bounds.rho_alpha,
        report.bounds.tight_epsilon,
        report.bounds.delta,
        None if report.released is None else report.released.epsilon,
        measured.headline.name,
        measured.headline.epsilon,
    )
    proven = {
        f"{BOUND_COLUMN}{name}": None if bound.reason else bound.epsilon
        for name, bound in measured.lower_bounds.items()
    }
    return dict(zip(COLUMNS, values, strict=True)) | proven


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return the runs as the terminal shows them."""
    swept = len(outcomes[0].point.values)
    levels = sorted({row["confidence"] for row in rows(outcomes)} - {None})
    said = [f"intervals and bounds at {' or '.join(map(percent, levels))}"] if levels else []
    if any(outcome.report and outcome.report.released for outcome in outcomes):
        said.append(comparison.ADD_UP)
    drawn = Table(
        title="Runs of the sweep",
        title_justify="left",
        caption="; ".join(said) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    for place, heading in enumerate(headings(outcomes)):
        drawn.add_column(heading, justify="left" if place < swept else "right")
    for row in cells(outcomes):
        drawn.add_row(*map(Text, row))
    return drawn


def headings(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the names of the columns of `cells`."""
    swept = [key.rpartition(".")[2] for key in outcomes[0].point.values]
    bounds = [f"ε at least, {name}" for name in SHOWN.values()]
    return [*swept, "trials", "advantage", "pred.", "ρα", "ε", *bounds]


def cells(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the rows of the table, worded; of a run that failed only the values."""
    worded = []
    for outcome, row in zip(outcomes, rows(outcomes), strict=True):
        ends = outcome.report and outcome.report.empirical.advantage_interval
        between = f"\n{span(ends, '{:.2f}'.format)}" if ends else ""
        measured = number(row["advantage"]) + between
        bounds = [number(row.get(f"{BOUND_COLUMN}{name}")) for name in SHOWN]
        if row["headline"]:
            bounds[0] += f"\n{TITLES[row['headline']]}"
        known = [number(row[name]) for name in ("predicted", "rho_alpha", "epsilon")]
        worded.append(
            [
                *(plain(value) for value in outcome.point.values.values()),
                "failed" if outcome.failure else plain(row["trials"]),
                measured,
                *known,
                *bounds,
            ]
        )
    return worded


def write(name: str, outcomes: Sequence[Outcome], directory: Path) -> Path:
    """Write summary.csv, report.json, report.html and figures; return the page.

    Args:
        name: of the sweep, for readers.
        outcomes: of all runs, at least one.
        directory: made if there is none.

    Raises:
        InputError, OSError: as of `report_directory.write_report`.
    """
    from fedsim.figures import canvas  # noqa: PLC0415
    from fedsim.pages.pictures import inline  # noqa: PLC0415
    from fedsim.studies import sweep_figures  # noqa: PLC0415  (matplotlib is slow to import)

    found = rows(outcomes)
    # Everything is made before anything is written, so that a failure leaves what there was.
    summary: Mapping[str, Any] = strict_json({"kind": KIND, "name": name, "runs": found})
    places = comparison.compare([outcome.report for outcome in outcomes if outcome.report])
    document = {**summary, "vantages": strict_json(places)}
    drawn: list[tuple[str, Markup]] = []
    files: dict[str, str] = {}
    for key in outcomes[0].point.values:
        figure = sweep_figures.along(key, found, _others(key, outcomes), SHOWN)
        if figure is not None:
            file = key.replace(".", "-")
            files[f"figures/{file}.svg"] = canvas.to_svg(figure)
            caption = (
                f"Advantage and epsilon along {key}: the intervals and lower bounds of each run, "
                "beside what its noise allows."
            )
            drawn.append((caption, inline(figure, file, caption)))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(found[0]))
    writer.writeheader()
    writer.writerows(found)
    files["summary.csv"] = text.getvalue()
    page = audit_page.render(
        PAGE,
        name=name,
        headings=headings(outcomes),
        rows=[(outcome, row) for outcome, row in zip(outcomes, cells(outcomes), strict=True)],
        figures=drawn,
        places=[_place(row) for row in places],
    )
    private_files.make_directory(directory / "figures")
    for path, content in files.items():
        private_files.write(directory / path, content.encode())
    return report_directory.write_report(directory, document, page)


def _place(row: Mapping[str, Any]) -> list[str]:
    between = span(row["interval"], number)
    return [
        row["run"],
        f"{row['trust']}, {row['vantage']}",
        number(row["noise_multiplier"]),
        number(row["epsilon"]),
        number(row["rho_alpha"]),
        number(row["predicted"]) if row["predicted"] is not None else DASH,
        number(row["measured"]) + (f" ({between})" if between else ""),
        row["verdict"],
    ]


def _others(key: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Return for every run which of the other keys' values it has: "" where there are none."""
    return [
        ", ".join(
            f"{name.rpartition('.')[2]}={plain(value)}"
            for name, value in outcome.point.values.items()
            if name != key
        )
        for outcome in outcomes
    ]


def _folder(values: Mapping[str, Scalar]) -> str:
    parts = (f"{key.rpartition('.')[2]}={plain(value)}" for key, value in values.items())
    return re.sub(r"[^\w.=,+-]", "_", ",".join(parts))


PAGE = """\
{% extends "frame" %}
{% from "parts" import drawn, tabulated %}
{% block title %}Sweep of {{ name }}{% endblock %}
{% block kind %}Sweep{% endblock %}
{% block heading %}{{ name }}{% endblock %}
{% block body %}
<h2>The runs</h2>
{{ tabulated(headings, rows | map("last")) }}
<ul>
{% for outcome, row in rows %}
<li>{% if outcome.failure %}{{ outcome.point.name }}: {{ outcome.failure }}\
{% else %}<a href="{{ outcome.point.name | urlencode }}/report.html">{{ outcome.point.name }}</a>\
{% endif %}</li>
{% endfor %}
</ul>
{{ drawn(figures) }}

<h2>To whom the person is identifiable</h2>
{{ tabulated(["Run", "Trust, vantage", "z", "ε", "ρα", "Predicted", "Measured", "Verdict"],
places) }}
{% endblock %}
"""
