"""The result of a run on the terminal: at most 20 lines, of which the last but one decides."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from fedsim.audits.results.report import Report
from fedsim.audits.results.rows import RunRow
from fedsim.reports.document import terminal
from fedsim.reports.document.wording import counted, least_loss, number
from fedsim.reports.sections import first, observers
from fedsim.reports.sections.section import confidence_of, model_in_short, released

MOST_LINES = 19
"""On a terminal of 80 columns or more, beside the path of the page, which follows."""


@dataclass(frozen=True)
class Paragraph:
    """A part of the result; `rank`: those of the highest rank give way first, those of 0 never."""

    shown: RenderableType
    rank: int = 0


@dataclass(frozen=True)
class Summary:
    """The result of a run; without `verbose`, what has no room on the screen is left out."""

    paragraphs: tuple[Paragraph, ...]
    ending: str
    verbose: bool = False

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        kept = [(each, len(console.render_lines(each.shown, options))) for each in self.paragraphs]
        ranks = sorted({each.rank for each in self.paragraphs} - {0})
        while not self.verbose and ranks and sum(lines for _, lines in kept) >= MOST_LINES:
            places = [i for i, (each, _) in enumerate(kept) if each.rank == ranks[-1]]
            if len(places) <= 1:
                ranks.pop()
            if places:
                kept.pop(places[-1])
        yield from (each.shown for each, _ in kept)
        more = " More: fedsim report RUN -v." * (len(kept) < len(self.paragraphs))
        yield Text(f"{self.ending}{more}")


def summary(
    report: Report, command: str = "", seconds: float | None = None, *, verbose: bool = False
) -> RenderableType:
    """Return the result of a run.

    Args:
        command: command that made it, as typed; "" for the name of the run.
        seconds: time that it took; None if unknown.
        verbose: whether every observer's numbers follow.
    """
    decisions = first.decisions(report)
    ending = f"{counted(report.alarms, 'alarm')}, {len(decisions) or 'nothing'} to decide."
    paragraphs = _paragraphs(report, _begun(report, command, seconds), decisions, verbose)
    return Summary(tuple(paragraphs), ending, verbose)


def _begun(report: Report, command: str, seconds: float | None) -> str:
    budget, took = report.budget, "" if seconds is None else f"    {seconds:.0f} s"
    rounds = counted(report.rounds, "round")
    if budget.stopped:
        rounds = f"stopped after {budget.rounds_run} of {counted(budget.rounds_planned, 'round')}"
    clients, trials = counted(report.clients, "client"), counted(report.trials, "trial")
    return f"{command or report.name}    {trials}, {rounds}, {clients}{took}\n"


def _paragraphs(
    report: Report, begun: str, decisions: list[str], verbose: bool
) -> Iterator[Paragraph]:
    alarms = list(report.contradictions.values())
    if len(alarms) > 1 and not verbose:
        alarms = [f"{text.partition('. ')[0].removesuffix('.')}." for text in alarms]
    gap = Paragraph(Text(""))
    yield Paragraph(Text(begun, "bold"))
    for place, text in enumerate(alarms):
        yield Paragraph(Text(f"ALARM: {text}", "bold red"), min(place, 1) * 4)
    yield from [gap] * bool(alarms)
    yield Paragraph(Text(f"{first.question(report)}\n"), 7)
    yield Paragraph(_observers(report))
    yield gap
    yield Paragraph(Text(observers.meant(report)), 9)
    yield Paragraph(Text(_what_it_shows(report)), 2)
    yield Paragraph(Text(f"Model: {model_in_short(report)}"), 8)
    if report.noise_source != "seed":  # else a caution says what it is
        yield Paragraph(Text(first.released(report)))
    told = first.cautions(report)
    facts = filter(None, (released(report), first.canaries(report).strip()))
    for place, text in enumerate([*facts, *(label.title for label in told)]):
        yield Paragraph(Text(text), 5 if place else 3)
    if verbose:
        for row in observers.shown(report):
            yield from map(Paragraph, _in_full(report, row))
        yield from (Paragraph(Text(str(label.text))) for label in told if label.text)
        yield Paragraph(Text(report.mechanism.dp_note))
    yield from (Paragraph(Text(each), 1) for each in decisions)


def _observers(report: Report) -> RenderableType:
    rows = observers.shown(report)
    headings = [name.lower().replace(" = ", "=") for name in observers.short(report, rows[0])]
    cells = [[*observers.short(report, row).values()] for row in rows]
    marks = [observers.mark(report, row) for row in rows]
    return terminal.observers(headings, list(zip(cells, marks, strict=True)))


def _in_full(report: Report, row: RunRow) -> Iterator[Text]:
    yield Text(f"{observers.NAMES[row.observer]}: {observers.mark(report, row).text}", "bold")
    for heading, (text, detail) in observers.numbers(report, row).items():
        yield Text(f"  {heading}: {text}{f' ({detail})' * bool(detail)}")
    if row.attack is not None and row.attack.chance is not None:
        chance = number(row.attack.chance)
        yield Text(f"  a coin's advantage: −{chance} to {chance}")
    yield Text(f"  {observers.reading(report, row)}")


def _what_it_shows(report: Report) -> str:
    share, sentences = report.here.detects, ["Guessing is right in 50%."]
    if report.attack.interval is not None:
        sentences.append(f"Intervals: {confidence_of(report).strip()}.")
    if report.contradictions:
        return " ".join(sentences)  # noise may be missing
    if share is None:
        sentences.append("Without a limit of theory, the noise cannot be checked.")
    elif share < 0.05:
        sentences.append("Even if nearly all noise were missing, the audit might not see it.")
    else:
        tested = "The noise was tested too: the" if report.residuals is not None else "The"
        loss = f"a loss of {least_loss(share)} of the noise"
        sentences.append(f"{tested} audit sees {loss} with 95% probability.")
    return " ".join(sentences)
