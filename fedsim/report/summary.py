"""The result of a run on the terminal: at most 20 lines, the alarms last but one."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedsim.audits.results.report import Report
from fedsim.report.document import terminal
from fedsim.report.document.blocks import Mark
from fedsim.report.document.wording import counted, least_loss
from fedsim.report.sections import first, observers, theory
from fedsim.report.sections.section import confidence_of, model_in_short


def summary(
    report: Report, command: str = "", seconds: float | None = None, *, verbose: bool = False
) -> RenderableType:
    """Return the result of a run.

    Args:
        command: command that made it, as typed; "" for the name of the run.
        seconds: time that it took; None if unknown.
        verbose: whether every observer's numbers follow.
    """
    took = "" if seconds is None else f"    {seconds:.0f} s"
    played = (
        f"{counted(report.trials, 'trial')}, {_rounds(report)}, {counted(report.clients, 'client')}"
    )
    texts = list(report.contradictions.values())
    if len(texts) > 1 and not verbose:
        texts = [f"{text.partition('. ')[0].removesuffix('.')}." for text in texts]
    alarms = [Text(f"ALARM: {text}\n", "bold red") for text in texts]
    lines: list[RenderableType] = [
        Text(f"{command or report.name}    {played}{took}\n", "bold"),
        *alarms,
        Text(f"{first.question(report)}\n"),
        _observers(report),
        Text(f"\n{_what_it_shows(report)}"),
        Text(f"Model: {model_in_short(report)}"),
    ]
    told = first.cautions(report)
    said = theory.released(report), first.canaries(report).strip(), *(each.title for each in told)
    lines.append(Text(" ".join(filter(None, said))))
    if verbose:
        lines += observers.listed(report)
        lines += [Text(str(label.text)) for label in told if label.text]
        lines.append(Text(report.mechanism.dp_note))
    lines += [Text(text) for text, met in first.own_limits(report) if met]
    decisions = first.decisions(report)
    lines += map(Text, decisions)
    ending = f"{counted(report.alarms, 'alarm')}, {len(decisions) or 'nothing'} to decide."
    return Group(*lines, Text(ending))


def _rounds(report: Report) -> str:
    budget = report.budget
    if not budget.stopped:
        return counted(report.rounds, "round")
    return f"stopped after {budget.rounds_run} of {counted(budget.rounds_planned, 'round')}"


def _observers(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=True)
    headings = "observer", "right answers", "limit", f"ε (δ={report.bounds.delta:g})", "verdict"
    for heading in headings:
        table.add_column(heading, header_style="", overflow="fold", no_wrap=heading != "verdict")
    for row in observers.shown(report):
        mark: Mark = observers.mark(report, row)
        table.add_row(
            Text(observers.NAMES[row.observer]),
            Text(observers.right(row)),
            Text(observers.right_at_most(row)),
            Text(observers.epsilon(row)),
            Text(mark.text.lower(), terminal.COLOURS.get(mark.kind, "")),
        )
    return table


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
        sentences.append(f"Noise missing by more than {least_loss(share)} would have been seen.")
    return " ".join(sentences)
