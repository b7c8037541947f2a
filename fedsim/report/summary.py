"""The report of a run as the terminal shows it."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedsim.audits.results.report import Report
from fedsim.report.document import terminal
from fedsim.report.document.first_screen import PASSED, counted
from fedsim.report.document.wording import number
from fedsim.report.sections import answer, first, vantage_words
from fedsim.report.sections.answer import labels
from fedsim.report.sections.section import confidence_of, measure, worths_in_full
from fedsim.report.sections.theory import released


def summary(report: Report) -> RenderableType:
    parts = [Text(answer.verdict(report)), *_verdicts(report), *_checks(report)]
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
            own = (
                f"{limit.of} {number(limit.limit)}: "
                f"{vantage_words.own_limit(report, verdict, limit).text}. "
                f"Theory: {vantage_words.own_limit_allowed(verdict, limit)}. "
                f"Measured: {vantage_words.own_limit_measured(verdict, limit)}."
            )
            lines.add_row(Text("  own limit"), Text(own))
        yield lines
    yield Text(
        f"\n{measure(report)} {worths_in_full(report)}.\n"
        f"All intervals and lower bounds above have {confidence_of(report)}confidence."
    )


def _checks(report: Report) -> Iterator[RenderableType]:
    checks = first.checks(report)
    yield Text(f"\n{counted(checks)}")
    for each in checks:
        if each.mark is not PASSED:
            colour = terminal.COLOURS.get(each.mark.kind, "bold")
            line = Text.assemble((each.mark.text, colour), f": {each.text}")
            yield Padding(line, (0, 0, 0, 2))
