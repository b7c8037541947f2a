"""The report of a run as the terminal shows it: every measure beside its limit."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedsim.pages.wording import number, percent, span
from fedsim.report.sections import lower_bounds, one_run, to_whom
from fedsim.report.sections.facts import (
    accuracies,
    advantage_limit,
    is_client,
    is_pac,
    standard_errors_apart,
    yeom_bound,
)
from fedsim.report.sections.labels import labels
from fedsim.report.sections.theory import released
from fedsim.results.report import Report

Line = tuple[str, str, str, str]
"""What was measured, the value, its interval, and what theory says."""


def summary(report: Report) -> RenderableType:
    """Return what the terminal shows at the end of a run."""
    level = percent(report.empirical.confidence)
    table = Table(
        title=Text(report.name),
        title_justify="left",
        caption=f"intervals and bounds (“at least”) at {level}",
    )
    for heading in ("", "measured", "interval", "theory"):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for line in _lines(report):
        table.add_row(*map(Text, line))
    said = [Text(label.title, "bold") for label in labels(report)]
    if guaranteed := released(report):
        said.append(Text(guaranteed))
    warnings = [Text(f"Warning: {text}", "yellow") for text in report.warnings]
    return Group(table, *said, *warnings)


def _lines(report: Report) -> Iterator[Line]:
    yield from _of_decisions(report)
    yield from _of_vantages(report)
    yield from _of_epsilon(report)
    yield "accuracy", accuracies(report), "", ""


def _of_decisions(report: Report) -> Iterator[Line]:
    """Yield what counts how often somebody was right, or too sure."""
    measured, bounds = report.empirical, report.bounds
    limit = f"{'PAC' if is_pac(report) else 'ρα'} {number(advantage_limit(report))}"
    between = span(measured.advantage_interval, number)
    yield "advantage", number(measured.advantage), between, limit
    predicted = number(report.prediction.advantage)
    yield "advantage predicted", predicted, "", standard_errors_apart(report)
    surer = span(measured.delta_prime_interval, number)
    yield "δ′", number(measured.delta_prime), surer, f"at most {number(bounds.tail_limit)}"
    if yeom := report.membership_inference.get("yeom"):
        bound = "" if is_client(report) else yeom_bound(report)
        between = span(yeom.advantage_interval, number)
        yield "Yeom advantage", number(yeom.advantage), between, bound


def _of_vantages(report: Report) -> Iterator[Line]:
    """Yield what was measured at each vantage, where there are several."""
    seen = {name: row for name, row in report.vantages.items() if row.empirical is not None}
    for name, row in seen.items() if len(seen) > 1 else ():
        standing, measured, predicted = to_whom.standing(report, row), row.empirical, row.prediction
        if measured is None or predicted is None:
            continue
        mark = f" ({standing.text.lower()})" if standing else ""
        yield (
            f"advantage, {name}",
            number(measured.advantage),
            span(measured.advantage_interval, number),
            f"ρα {number(row.rho_alpha)}, predicted {number(predicted.advantage)}{mark}",
        )


def _of_epsilon(report: Report) -> Iterator[Line]:
    """Yield estimates of epsilon and the bounds that lead; the others are on the page."""
    for row in lower_bounds.estimates(report):
        yield f"ε′ {row.name}", row.answer, "", f"ε {row.limit}"
    shown = {report.empirical.headline.name, lower_bounds.ASSUMES_LEAST}
    for name, row in lower_bounds.rows(report).items():
        if name in shown:
            said = f" ({row.mark.text.lower()})" if row.mark and row.mark.kind != "good" else ""
            yield f"ε′ at least, {row.name}", row.answer, "", f"ε {row.limit}{said}"
    if report.bayesian is not None:
        epsilon = report.bayesian.epsilon
        answer = number(None if epsilon is None else epsilon.mean)
        yield "ε Bayesian DP", answer, "", f"ε {number(report.bounds.tight_epsilon)}"
    if found := report.one_run:
        for name, value in one_run.summary(found):
            yield name, value, "", f"ε {number(found.canary_epsilon)}"
