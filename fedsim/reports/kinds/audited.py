"""The page and the terminal's summary of an audit: of an app, a loop, a transcript or a node.

All four have the same first screen and the same parts. It words the report and computes nothing.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedsim.audits.judgement.claim import TO_CLAIM, Finding, Verdict
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.live.live_rounds import Look
from fedsim.audits.results import conditions, verdicts
from fedsim.audits.results.rows import Row
from fedsim.audits.results.verdicts import StateWords
from fedsim.audits.run.detectable import HALF
from fedsim.common import report_directory
from fedsim.privacy.identifiability import advantage_of_epsilon
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import first_screen, release, terminal
from fedsim.reports.document.first_screen import WEAK, most, share, shares
from fedsim.reports.document.html import render
from fedsim.reports.document.wording import DASH, counted, number, percent, would_have_noticed
from fedsim.reports.kinds import audit_words, course

BY = {"theory": "theory", "claim": "the noise that the server states", "measured": "measured noise"}
ADVICE = {
    Verdict.CONVICTED: "Do not rely on the claim until you have fixed what the findings name.",
    Verdict.SUSPECT: "The reasons and findings say what the claim lacks.",
    Verdict.NOT_JUDGED: "The reasons say what the audit needs in order to decide.",
    Verdict.NO_CLAIM: TO_CLAIM,
    Verdict.SUPPORTED: "Decide whether the claim itself is acceptable.",
}
DECIDED = Verdict.SUPPORTED, Verdict.NO_CLAIM
UNSUPPORTED = {
    Verdict.SUSPECT: release.SUSPECT,
    Verdict.NOT_JUDGED: release.UNTOLD,
    Verdict.NO_CLAIM: release.UNCLAIMED,
}
SEVERITIES = ("alarm", "caution", "note")


def write(report: AuditReport[Any], directory: Path, rounds: Sequence[Look] = ()) -> Path:
    """Write report.json and report.html of an audit; return the page."""
    return report_directory.write_report(directory, report.report, page(report, rounds))


# States


def state_words(report: AuditReport[Any], row: Row) -> StateWords:
    """Return the words of an observer's state."""
    return row.words(_unlimited(report, row))


def _unlimited(report: AuditReport[Any], row: Row) -> StateWords:
    if row.observer != report.vantage:
        return verdicts.MUST_BE_TRUSTED
    if audit_words.is_unclipped(report):
        return verdicts.NO_GUARANTEE
    if row.limit is not None and math.isfinite(row.limit.epsilon):
        return verdicts.NO_LIMIT
    return verdicts.NO_PROTECTION


def sentences(report: AuditReport[Any]) -> list[str]:
    """Return the answer: the alarm first, then the verdict on the claim, or the state."""
    words = state_words(report, report.row)
    alarms = [sentence(each) for each in report.findings if each.breaks]
    if len(alarms) > 1:
        alarms = [f"{each.partition('. ')[0].removesuffix('.')}." for each in alarms]
    told = audit_words.told(report)
    if report.claim is not None:
        return [report.conclusion, *alarms, *told]
    return [f"{words.text}.", *alarms, *told]


def sentence(finding: Finding) -> str:
    """Return a finding as a sentence, with its first rounds."""
    rounds = finding.rounds
    numbers = ", ".join(map(str, rounds[:8])) + (", ..." if len(rounds) > 8 else "")
    where = f" (round {numbers})" if rounds else ""
    return f"{finding.severity.capitalize()}: {finding.why}{where}."


def released(report: AuditReport[Any]) -> str:
    """Return whether something may be released on this audit."""
    supported = report.verdict is Verdict.SUPPORTED
    if report.verdict is Verdict.CONVICTED or (report.alarms and not supported):
        return release.CONTRADICTED
    if not supported or report.claim is None:
        return UNSUPPORTED[report.verdict]
    claim, limit = report.claim, report.row.limit
    if limit is None:
        return release.UNTOLD
    told = release.SUPPORTED.format(
        epsilon=number(claim.epsilon),
        most=percent(share(advantage_of_epsilon(claim.epsilon, claim.delta))),
        limit=f"{_cells(report.row)[1]}{f' ({limit.note})' * bool(limit.note)}",
    )
    return f"{told}{release.OBJECTED * bool(report.alarms)}"


def decisions(report: AuditReport[Any]) -> list[str]:
    """Return what the reader has to decide or do, in sentences, each once."""
    mends = [each.mend for each in report.findings if each.mend]
    steps = [f"{mend[:1].upper()}{mend[1:]}." for mend in dict.fromkeys(mends)][:3]
    for row in report.rows.values():
        words = state_words(report, row)
        if words is verdicts.CANNOT_TELL:
            steps += audit_words.to_tell(report, row)
        elif words.kind == "alarm":
            steps.insert(0, words.advice)
        elif words is verdicts.TOO_FEW:
            steps.append(f"{words.advice}{_more(report, row)}")
        elif words.kind == "caution":
            steps.append(words.advice)
    if report.verdict in DECIDED or not steps:
        steps.append(ADVICE[report.verdict])
    detects = report.row.detects
    judged = report.row.standing not in ("contradicted", "cannot-tell", "not-measured")
    if detects is not None and detects < HALF and judged:
        steps.append(WEAK)
    steps += audit_words.advice(report)
    return [each for each in dict.fromkeys(steps) if each]


def _more(report: AuditReport[Any], row: Row) -> str:
    """Return how to play more trials; "" where others play them."""
    if report.kind not in (conditions.APP, conditions.LOOP) or row.attack is None:
        return ""
    return f" For example, --trials {4 * row.attack.trials}."


# Numbers of a row


def _name(row: Row) -> str:
    """Return the name of an observer, with what its limit is of."""
    note = "" if row.limit is None else row.limit.note
    return f"{row.observer}, {note}" if note else row.observer


def _cells(row: Row) -> list[str]:
    """Return the measured share of right answers, its limit, and the limit and bound of epsilon."""
    attack, limit, right, at_least = row.attack, row.limit, DASH, DASH
    if attack is not None:
        at_least = number(attack.epsilon_at_least)
        if attack.advantage is not None:
            ends = shares(attack.interval)
            between = f" ({percent(ends[0])[:-1]} to {percent(ends[1])})" if ends else ""
            right = f"{percent(share(attack.advantage))}{between}"
    if limit is None:
        return [right, "not known", "not known", at_least]
    at_most = most(limit.rho_alpha, limit.epsilon)
    epsilon = number(limit.epsilon) if math.isfinite(limit.epsilon) else "none"
    return [right, at_most, epsilon, at_least]


# The terminal


def summary(report: AuditReport[Any]) -> RenderableType:
    """Return the result of an audit: about 20 lines on a terminal, the answer first."""
    answers = [Text(each, "bold red" * each.startswith("Alarm: ")) for each in sentences(report)]
    told = [each for each in report.findings if not each.breaks and each.severity != "note"]
    steps = decisions(report)
    ending = f"{counted(report.alarms, 'alarm')}, {len(steps) or 'nothing'} to decide."
    return Group(
        Text(f"{audit_words.in_short(report.name)}    {audit_words.played(report)}\n", "bold"),
        Text(released(report)),
        *answers,
        Text(),
        _observers(report),
        Text(f"\n{_power(report)}"),
        *(Text(sentence(each), "yellow") for each in told),
        *map(Text, steps),
        Text(ending),
    )


def _observers(report: AuditReport[Any]) -> RenderableType:
    delta = "" if report.delta is None else f" (δ={report.delta:.3g})"
    rows = []
    for row in report.rows.values():
        words = state_words(report, row)
        rows.append(([row.observer, *_cells(row)], doc.Mark(words.kind, words.text)))
    headings = "observer", "right answers", "limit", f"ε{delta}", "at least"
    return terminal.observers(headings, rows)


def _power(report: AuditReport[Any]) -> str:
    """Return which intervals are shown, and the shortfall of noise that would have been seen."""
    told = f"Intervals and bounds: {percent(report.confidence)} confidence."
    if report.row.limit is not None and report.row.limit.note:
        told += f" The limit is of {report.row.limit.note}."
    if (noise := report.row.noise) is not None:
        ends = f"{number(noise.low)} to" if noise.low else "at most"
        told += f" The noise is {ends} {number(noise.high)} times the claimed noise."
    if (attack := report.row.attack) and attack.interval and attack.interval[0] <= 0:
        told += " The interval contains guessing: more trials may show more."
    if report.alarms:
        return told  # noise may be missing
    return f"{told} {would_have_noticed(report.row.detects)}".rstrip()


# The page


def page(report: AuditReport[Any], rounds: Sequence[Look] = ()) -> str:
    """Return the report as one HTML page.

    Args:
        rounds: an auditor's results, round by round.
    """
    kind = audit_words.KINDS[report.kind]
    blocks: list[doc.Block] = []
    if report.findings or report.reasons:
        blocks.append(_objections(report))
    blocks += course.drawn(report, rounds)
    return render(
        doc.Document(
            title=f"{report.name} – {kind[:1].lower()}{kind[1:]}",
            kind=kind,
            heading=report.name,
            note=audit_words.note(report),
            first=first(report),
            blocks=blocks,
        )
    )


def first(report: AuditReport[Any]) -> doc.FirstScreen:
    """Return the first screen: one answer, one figure, one table, and what to decide."""
    words, delta = state_words(report, report.row), report.delta
    at = "" if delta is None else f" at δ = {delta:.3g}"
    lines = [[_name(row).capitalize(), *_cells(row)] for row in report.rows.values()]
    level, unit = percent(report.confidence), report.unit or "record"
    measured = any(row.attack and row.attack.interval for row in report.rows.values())
    caption = f"Right answers about one {unit}{f' ({level} intervals)' * measured}."
    headings = "Observer", "Right answers", "Limit", f"ε at most{at}", "ε at least"
    return doc.FirstScreen(
        release=released(report),
        answer=[*_short(report)],
        alarming=words.kind == "alarm" or report.verdict is Verdict.CONVICTED,
        figure=doc.Bars([_bar(report, row) for row in report.rows.values()], caption),
        table=doc.tabulated(headings, lines),
        gate=first_screen.gate(report.report),
        steps=decisions(report),
        sign_off=first_screen.sign_off(
            data=report.name, date="", limits=audit_words.limits(report)
        ),
    )


def _short(report: AuditReport[Any]) -> list[str]:
    """Return the answer for the first screen, where the reasons follow below."""
    told = sentences(report)
    if report.claim is None or not report.reasons:
        return told
    reason = report.reasons[0].partition(". ")[0].removesuffix(".")
    return [f"{report.headline} {reason[:1].upper()}{reason[1:]}.", *told[1:]]


def _bar(report: AuditReport[Any], row: Row) -> doc.Bar:
    words, attack, limit = state_words(report, row), row.attack, row.limit
    point = None if attack is None else attack.advantage
    return doc.Bar(
        row.observer.capitalize(),
        doc.Mark(words.kind, words.text),
        None if point is None else share(point),
        shares(attack.interval) if attack else None,
        None if limit is None else share(limit.rho_alpha),
        remark=row.note,
        by="theory" if limit is None else BY[limit.source],
        tells=False,
    )


def _objections(report: AuditReport[Any]) -> doc.Part:
    ordered = sorted(report.findings, key=lambda each: SEVERITIES.index(each.severity))
    blocks: list[doc.Block] = [doc.Bullets([*report.reasons])] if report.reasons else []
    if ordered:
        rows = [(each.rule, each.severity, sentence(each), each.mend) for each in ordered]
        blocks.append(doc.tabulated(("rule", "severity", "why", "how to fix it"), rows))
    return doc.Part("Reasons and findings", blocks, folded=True)
