"""What every audit says, of a run as of code, recordings and scores: its observers, and what to do.

A kind adds what it alone has to `told`; no other code words an observer's state or its numbers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fedsim.audits.judgement.claim import Verdict
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.results import conditions, verdicts
from fedsim.audits.results.rows import Row
from fedsim.audits.results.verdicts import StateWords
from fedsim.audits.run.detectable import HALF
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import release
from fedsim.reports.document.first_screen import WEAK, most, share, shares
from fedsim.reports.document.wording import DASH, number, percent, would_have_noticed

BY = {"theory": "theory", "claim": "the noise that the server states", "measured": "measured noise"}
SHOWN = ("participant", "released-model", "server")
"""Order of a federation's observers on a screen, after those that a measurement contradicts."""


# An observer


def named(observer: str) -> str:
    return observer.replace("-", " ")


def shown(report: AuditReport[Any]) -> list[Row]:
    """Return the rows in the order in which a screen shows them."""
    place = {observer: at for at, observer in enumerate(SHOWN)}
    ordered = sorted(report.rows.values(), key=lambda row: place.get(row.observer, -1))
    return sorted(ordered, key=lambda row: row.standing != "contradicted")


def state_words(report: AuditReport[Any], row: Row) -> StateWords:
    return row.words(_unlimited(report, row))


def mark(report: AuditReport[Any], row: Row) -> doc.Mark:
    """Return the state of an observer in a few words; good is only what lies below its limit."""
    words = state_words(report, row)
    return doc.Mark(words.kind, words.text)


def _unlimited(report: AuditReport[Any], row: Row) -> StateWords:
    if report.unguaranteed:
        return verdicts.NO_GUARANTEE
    if row.limit is not None and math.isfinite(row.limit.epsilon):
        return verdicts.NO_LIMIT
    return verdicts.MUST_BE_TRUSTED if row.observer == "server" else verdicts.NO_PROTECTION


def cells(report: AuditReport[Any], row: Row) -> list[str]:
    """Return the measured share of right answers, its limit, and the limit and bound of epsilon."""
    attack, limit = row.attack, row.limit
    right = "not measured"
    if state_words(report, row) is verdicts.MUST_BE_TRUSTED and report.kind == conditions.RUN:
        right = "sees unprotected sums"  # too wide beside the column of bounds
    if attack is not None:
        right = DASH
        if attack.advantage is not None:
            ends = shares(attack.interval)
            between = f" ({percent(ends[0])[:-1]} to {percent(ends[1])})" if ends else ""
            right = f"{percent(share(attack.advantage))}{between}"
    at_least = number(None if attack is None else attack.epsilon_at_least)
    if limit is None:
        return [right, "not known", "not known", at_least]
    return [right, most(limit.rho_alpha, limit.epsilon), epsilon(row), at_least]


def epsilon(row: Row) -> str:
    return number(row.epsilon) if math.isfinite(row.epsilon or 0.0) else "none"


def _bar(report: AuditReport[Any], row: Row, columns: Sequence[int], tells: bool) -> doc.Bar:
    attack, limit = row.attack, row.limit
    point = None if attack is None else attack.advantage
    return doc.Bar(
        named(row.observer),
        mark(report, row),
        None if point is None else share(point),
        None if point is None else shares(row.interval),
        None if limit is None else share(limit.rho_alpha),
        remark=row.note,
        by="theory" if limit is None else BY[limit.source],
        tells=tells,
        cells=[cells(report, row)[place] for place in columns],
    )


# What it says


def is_contradicted(report: AuditReport[Any]) -> bool:
    """Return whether a measurement contradicts what was claimed or configured."""
    # Theory may count what an alarm names, and still support the claim.
    doubted = report.alarms > 0 and report.verdict is not Verdict.SUPPORTED
    return doubted or report.verdict is Verdict.CONVICTED


def told(
    report: AuditReport[Any],
    *,
    about: str,
    remarks: Sequence[str] = (),
    columns: Sequence[int] = (0, 1, 2, 3),
    tells: bool = False,
    **own: Any,
) -> doc.Told:
    """Return what an audit says.

    Args:
        about: what the right answers are about, such as "the target record".
        remarks: for a terminal, behind those of every audit.
        columns: which of `cells` the table has.
        tells: whether the limit and the note of an observer stand beside its bar.
        own: the fields of `Told` that the kind fills; those of every audit are left out.
    """
    rows, words = shown(report), state_words(report, report.row)
    measured = any(row.interval for row in rows)
    intervals = f" ({percent(report.confidence)} intervals)" * measured
    at_delta = "ε" if report.delta is None else f"ε (δ = {report.delta:.3g})"
    headings = "Right answers", "Limit", at_delta, "at least"
    if is_contradicted(report):
        own["release"] = release.CONTRADICTED
    return doc.Told(
        name=report.name,
        report=report.report,
        alarms=[each.sentence for each in report.findings if each.breaks],
        alarming=words.kind == "alarm" or report.verdict is Verdict.CONVICTED,
        observers=[_bar(report, row, columns, tells) for row in rows],
        headings=["Observer", *(headings[place] for place in columns)],
        caption=f"Right answers about {about}{intervals}.",
        remarks=[*seen(report), *(by_chance(report) if own.get("brief") else []), *remarks],
        **own,
    )


def by_chance(report: AuditReport[Any]) -> list[str]:
    """Return what explains a measurement above the limit; nothing where there is none."""
    attack, limit = report.row.attack, report.row.limit
    if report.alarms or attack is None or limit is None:
        return []
    if attack.advantage is None or attack.advantage <= limit.rho_alpha:
        return []
    right = percent(share(attack.advantage))
    return [f"Chance can explain that {right} is above the limit."]


def seen(report: AuditReport[Any]) -> list[str]:
    """Return which intervals are shown, and the shortfall of noise that would have been seen."""
    row = report.row
    if row.attack is None and row.noise is None:
        return []
    told = f"Intervals and bounds: {percent(report.confidence)}."
    if report.kind == conditions.RUN:
        told = f"Guessing is right in 50%. Intervals: {percent(report.confidence)}."
    # The sentence on a release of a supported claim has the note beside its number.
    noted = report.kind == conditions.RUN or report.verdict is Verdict.SUPPORTED
    if row.limit is not None and row.limit.note and not noted:
        told += f" The limit is of {row.limit.note}."
    if (noise := row.noise) is not None:
        ends = f"{number(noise.low)} to" if noise.low else "at most"
        told += f" The noise is {ends} {number(noise.high)} times the claimed noise."
    if row.interval and row.interval[0] <= 0:
        told += " The interval contains guessing: more trials may show more."
    if report.alarms:
        return [told]  # noise may be missing
    return [f"{told} {would_have_noticed(row.detects)}".rstrip()]


def decisions(
    report: AuditReport[Any], *, untold: Callable[[Row], Sequence[str]], more: Callable[[Row], str]
) -> list[str]:
    """Return what the reader has to decide or do, in sentences, each once.

    Args:
        untold: returns what to do where an audit cannot tell about an observer.
        more: returns an example of more trials; "" for none.
    """
    mends = [each.mend for each in report.findings if each.mend]
    steps = [f"{mend[:1].upper()}{mend[1:]}." for mend in dict.fromkeys(mends)][:3]
    for row in shown(report):
        words = state_words(report, row)
        if words is verdicts.CANNOT_TELL:
            steps += untold(row)
        elif words.kind == "alarm":
            steps.insert(0, words.advice)
        elif words is verdicts.TOO_FEW:
            example = more(row)
            steps.append(f"{words.advice}{f' For example, {example}.' * bool(example)}")
        elif words.kind == "caution":
            steps.append(words.advice)
    detects = report.row.detects
    judged = report.row.standing not in ("contradicted", "cannot-tell", "not-measured")
    if detects is not None and detects < HALF and judged:
        steps.append(WEAK)
    return [each for each in dict.fromkeys(steps) if each]
