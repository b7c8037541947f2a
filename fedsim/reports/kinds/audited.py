"""What an audit says: of an app, a loop, a transcript, a node or scores; it computes nothing."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedsim.audits.judgement.claim import TO_CLAIM, Finding, Verdict
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.live.live_rounds import Look
from fedsim.audits.results import conditions, verdicts
from fedsim.audits.results.rows import Row
from fedsim.audits.results.verdicts import StateWords
from fedsim.audits.run.detectable import HALF
from fedsim.common import report_directory
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import release
from fedsim.reports.document.first_screen import WEAK, most, share, shares
from fedsim.reports.document.html import page
from fedsim.reports.document.wording import DASH, number, percent, would_have_noticed
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
RELYING = "Relying on the claim"
SEVERITIES = ("alarm", "caution", "note")


def write(report: AuditReport[Any], directory: Path, rounds: Sequence[Look] = ()) -> Path:
    """Write report.json and report.html of an audit; return the page."""
    return report_directory.write_report(directory, report.report, page(told(report, rounds)))


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


def sentence(finding: Finding) -> str:
    """Return a finding as a sentence, with its first rounds."""
    rounds = finding.rounds
    numbers = ", ".join(map(str, rounds[:8])) + (", ..." if len(rounds) > 8 else "")
    where = f" (round {numbers})" if rounds else ""
    return f"{finding.why[:1].upper()}{finding.why[1:]}{where}."


def released(report: AuditReport[Any]) -> str:
    """Return whether something may be released on this audit."""
    supported = report.verdict is Verdict.SUPPORTED
    if report.verdict is Verdict.CONVICTED or (report.alarms and not supported):
        return release.CONTRADICTED
    if not supported or report.claim is None:
        return UNSUPPORTED[report.verdict]
    limit = report.row.limit
    if limit is None:
        return release.UNTOLD
    told = release.decide(RELYING, share(limit.rho_alpha), report.unit or "record")
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


# What it says


def told(report: AuditReport[Any], rounds: Sequence[Look] = ()) -> doc.Told:
    """Return what an audit says.

    Args:
        rounds: an auditor's results, round by round.
    """
    delta, rows = report.delta, report.rows.values()
    unit = report.unit or "record"
    measured = any(row.attack and row.attack.interval for row in rows)
    intervals = f" ({percent(report.confidence)} intervals)" * measured
    epsilon = "ε" if delta is None else f"ε (δ = {delta:.3g})"
    reasons = [f"{why[:1].upper()}{why[1:].removesuffix('.')}." for why in report.reasons]
    doubts = [each for each in report.findings if each.severity == "caution"]
    words = state_words(report, report.row)
    first, _, rest = " ".join(reasons).partition(". ")
    verdict = f"{words.text}."
    if report.claim is not None:
        verdict = f"{report.headline} {first.removesuffix('.')}{'.' * bool(first)}".rstrip()
    return doc.Told(
        kind=audit_words.KINDS[report.kind],
        name=report.name,
        report=report.report,
        played=audit_words.played(report),
        note=audit_words.note(report),
        release=released(report),
        answer=[verdict, *audit_words.told(report)],
        alarms=[sentence(each) for each in report.findings if each.breaks],
        alarming=words.kind == "alarm" or report.verdict is Verdict.CONVICTED,
        observers=[_bar(report, row) for row in rows],
        headings=("Observer", "Right answers", "Limit", epsilon, "at least"),
        caption=f"Right answers about one {unit}{intervals}.",
        remarks=[
            *(f"Caution: {sentence(each)}" for each in doubts),
            _power(report),
            *([rest] if report.claim and rest else ()),
        ],
        steps=decisions(report),
        sections=lambda: [*_objections(report), *course.drawn(report, rounds)],
        data=report.name,
        limits=audit_words.limits(report),
    )


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
    if (limit := report.row.limit) and attack and (attack.advantage or 0) > limit.rho_alpha:
        told += " Chance alone can explain that the measured share is above the limit."
    return f"{told} {would_have_noticed(report.row.detects)}".rstrip()


def _bar(report: AuditReport[Any], row: Row) -> doc.Bar:
    words, attack, limit = state_words(report, row), row.attack, row.limit
    point = None if attack is None else attack.advantage
    return doc.Bar(
        row.observer,
        doc.Mark(words.kind, words.text),
        None if point is None else share(point),
        shares(attack.interval) if attack else None,
        None if limit is None else share(limit.rho_alpha),
        remark=row.note,
        by="theory" if limit is None else BY[limit.source],
        tells=False,
        cells=_cells(row),
    )


def _objections(report: AuditReport[Any]) -> Iterator[doc.Part]:
    ordered = sorted(report.findings, key=lambda each: SEVERITIES.index(each.severity))
    blocks: list[doc.Block] = [doc.Bullets([*report.reasons])] if report.reasons else []
    if ordered:
        rows = [(each.rule, each.severity, sentence(each), each.mend) for each in ordered]
        blocks.append(doc.tabulated(("rule", "severity", "why", "how to fix it"), rows))
    if blocks:
        yield doc.Part("Reasons and findings", blocks, folded=True)
