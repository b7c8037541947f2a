"""The report of a run as the terminal shows it: the verdict, and every measure if asked for."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedsim.audits.results.report import Report
from fedsim.report.document import terminal
from fedsim.report.document.blocks import tabulated
from fedsim.report.document.first_screen import PASSED, counted
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections import answer, attacks, first, lower_bounds, vantage_words
from fedsim.report.sections.answer import labels
from fedsim.report.sections.section import (
    baseline,
    is_client,
    measure,
    standard_errors_apart,
    worths,
    worths_in_full,
    yeom_bound,
)
from fedsim.report.sections.theory import released

Line = tuple[str, str, str, str]


def summary(report: Report, verbose: bool = False) -> RenderableType:
    parts = [Text(answer.verdict(report)), *_verdicts(report), *_checks(report)]
    if verbose:
        lines = [
            *_of_decisions(report),
            *_of_vantages(report),
            *_of_epsilon(report),
            (measure(report), worths(report), "", baseline(report)),
        ]
        table = tabulated(("", "measured", "interval", "theory"), lines)
        parts.append(
            terminal.table(table, caption=f"intervals and bounds (“at least”) at {_level(report)}")
        )
    parts += [Text(label.title, "bold") for label in labels(report)]
    if guaranteed := released(report):
        parts.append(Text(guaranteed))
    parts += [Text(f"Warning: {text}", "yellow") for text in report.warnings]
    return Group(Text(report.name, "italic"), *parts)


def _verdicts(report: Report) -> Iterator[RenderableType]:
    for verdict in report.verdicts:
        mark = vantage_words.mark(report, verdict)
        audited = " (audited)" if verdict.vantage == report.vantage else ""
        yield Text.assemble(
            ("\n" + vantage_words.NAMES[verdict.vantage] + audited, "bold"),
            ": ",
            (mark.text, terminal.COLOURS.get(mark.kind, "bold")),
        )
        words = vantage_words.lines(report, verdict)
        lines = Table.grid(padding=(0, 1))
        lines.add_column(min_width=11)
        lines.add_column()
        for name in ("advantage", "belief", "epsilon", "reading"):
            lines.add_row(
                Text(f"  {name.replace('epsilon', 'ε')}"), Text(str(getattr(words, name)))
            )
        for limit in verdict.limits:
            answer_to = vantage_words.own_limit(report, verdict, limit).text
            because = vantage_words.why(report, verdict, limit)
            own = f"{limit.of} {number(limit.limit)}: {answer_to}. {because}"
            lines.add_row(Text("  own limit"), Text(own))
        yield lines
    yield Text(
        f"\n{measure(report)} {worths_in_full(report)}.\n"
        f"All intervals and lower bounds above have {_level(report)} confidence."
    )


def _checks(report: Report) -> Iterator[RenderableType]:
    checks = first.checks(report)
    yield Text(f"\n{counted(checks)}")
    for each in checks:
        if each.mark is not PASSED:
            colour = terminal.COLOURS.get(each.mark.kind, "bold")
            line = Text.assemble((each.mark.text, colour), f": {each.text}")
            yield Padding(line, (0, 0, 0, 2))


def _level(report: Report) -> str:
    return percent(report.empirical.confidence)


def _of_decisions(report: Report) -> Iterator[Line]:
    measured, bounds = report.empirical, report.bounds
    limit = f"ρα {number(report.bounds.rho_alpha)}"
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
    attacked = [each for each in report.verdicts if each.measured is not None]
    for verdict in attacked if len(attacked) > 1 else ():
        name, row = verdict.vantage, report.vantages[verdict.vantage]
        measured, predicted = row.empirical, row.prediction
        if measured is None or predicted is None:
            continue
        mark = f" ({vantage_words.mark(report, verdict).text.lower()})"
        yield (
            f"advantage, {vantage_words.NAMES[name]}",
            number(measured.advantage),
            span(measured.advantage_interval, number),
            f"ρα {number(row.rho_alpha)}, predicted {number(predicted.advantage)}{mark}",
        )


def _of_epsilon(report: Report) -> Iterator[Line]:
    for row in lower_bounds.estimates(report):
        yield f"ε′ {row.name}", row.answer, "", f"ε {row.limit}"
    names = {report.empirical.headline.name, lower_bounds.ASSUMES_LEAST}
    for name, row in lower_bounds.rows(report).items():
        if name in names:
            remark = f" ({row.mark.text.lower()})" if row.mark and row.mark.kind != "good" else ""
            yield f"ε′ at least, {row.name}", row.answer, "", f"ε {row.limit}{remark}"
    if report.bayesian is not None:
        epsilon = report.bayesian.epsilon
        answer = number(None if epsilon is None else epsilon.mean)
        yield "ε Bayesian DP", answer, "", f"ε {number(report.bounds.tight_epsilon)}"
    if audited := report.one_run:
        for name, value in attacks.summary(audited):
            yield name, value, "", f"ε {number(audited.canary_epsilon)}"
