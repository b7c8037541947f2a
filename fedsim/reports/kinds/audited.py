"""What an audit of an app, a loop, a transcript, a node or scores says; it computes nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedsim.audits.judgement.claim import TO_CLAIM, Verdict
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.live.live_audit import Look
from fedsim.audits.results import conditions
from fedsim.audits.results.rows import Row
from fedsim.common import report_directory
from fedsim.privacy.identifiability import advantage_of_epsilon
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import release
from fedsim.reports.document.first_screen import share
from fedsim.reports.document.html import page
from fedsim.reports.document.wording import percent
from fedsim.reports.kinds import audit_words, course
from fedsim.reports.sections import every_audit, observers

ADVICE = {
    Verdict.CONVICTED: "Do not rely on the claim until you have fixed what the findings name.",
    Verdict.SUSPECT: "The reasons and findings say what the claim lacks.",
    Verdict.NOT_JUDGED: "The reasons say what the audit needs in order to decide.",
    Verdict.NO_CLAIM: TO_CLAIM,
    Verdict.SUPPORTED: "Decide whether {right} right answers about one {unit} are acceptable.",
}
DECIDED = Verdict.SUPPORTED, Verdict.NO_CLAIM
UNSUPPORTED = {
    Verdict.CONVICTED: release.CONTRADICTED,
    Verdict.SUSPECT: release.SUSPECT,
    Verdict.NOT_JUDGED: release.UNTOLD,
    Verdict.NO_CLAIM: release.UNCLAIMED,
}
ALONE = "The claim alone, without this noise, may allow {}."
SEEN = "What the audit could have seen"
RELYING, WHO = "Relying on it", "with this noise, an adversary"
SEVERITIES = ("alarm", "caution", "note")


def write(report: AuditReport[Any], directory: Path, rounds: Sequence[Look] = ()) -> Path:
    """Write report.json and report.html of an audit; return the page."""
    return report_directory.write_report(directory, report.report, page(told(report, rounds)))


def released(report: AuditReport[Any]) -> str:
    """Return whether something may be released on this audit."""
    if report.verdict is not Verdict.SUPPORTED or report.claim is None:
        return UNSUPPORTED[report.verdict]
    limit = report.row.limit
    if limit is None:
        return release.UNTOLD
    told = release.decide(RELYING, share(limit.rho_alpha), report.unit or "record", WHO)
    told += f" This limit is of {limit.note}." * bool(limit.note)
    return f"{report.headline} {told}{release.OBJECTED * bool(report.alarms)}"


def decisions(report: AuditReport[Any]) -> list[str]:
    """Return what the reader has to decide or do, in sentences, each once."""

    def more(row: Row) -> str:
        """Return how to play more trials; "" where others play them."""
        ours = report.kind in (conditions.APP, conditions.LOOP) and row.attack is not None
        return f"--trials {4 * row.attack.trials}" if ours and row.attack else ""

    steps = every_audit.decisions(
        report, untold=lambda row: audit_words.to_tell(report, row), more=more
    )
    if report.verdict in DECIDED or not steps:
        limit = report.row.limit
        right = percent(share(1.0 if limit is None else limit.rho_alpha))
        steps.append(ADVICE[report.verdict].format(right=right, unit=report.unit or "record"))
    return [*steps, *audit_words.advice(report)]


def told(report: AuditReport[Any], rounds: Sequence[Look] = ()) -> doc.Told:
    """Return what an audit says.

    Args:
        rounds: an auditor's results, round by round.
    """
    reasons = [f"{why[:1].upper()}{why[1:].removesuffix('.')}." for why in report.reasons]
    first, _, rest = " ".join(reasons).partition(". ")
    judged = [f"{every_audit.state_words(report, report.row).text}."]
    seen, sharing = every_audit.seen(report), released(report)
    if (claim := report.claim) is not None:
        said = [sharing, *(each.sentence for each in report.findings if each.breaks)]
        leads = any(each.startswith(report.headline.removesuffix(".")) for each in said)
        judged = ["" if leads else report.headline, f"{first.removesuffix('.')}." * bool(first)]
        if report.verdict is Verdict.SUPPORTED:
            worst = share(advantage_of_epsilon(claim.epsilon, claim.delta))
            judged.append(ALONE.format(percent(worst)))
    verdict = " ".join(filter(None, judged))
    doubts = [each.sentence for each in report.findings if each.severity == "caution"]
    return every_audit.told(
        report,
        about=f"one {report.unit or 'record'}",
        remarks=[
            *(f"Caution: {each}" for each in doubts),
            *([rest] if report.claim and rest else ()),
        ],
        kind=audit_words.KINDS[report.kind],
        played=audit_words.played(report),
        note=audit_words.note(report),
        release=sharing,
        answer=[
            *every_audit.by_chance(report),
            *filter(None, [verdict]),
            *audit_words.told(report),
        ],
        legend=_at_least(report),
        steps=decisions(report),
        sections=lambda: [
            *_objections(report),
            *([doc.Part(SEEN, [doc.Prose(each) for each in seen], folded=True)] if seen else []),
            *course.drawn(report, rounds),
        ],
        data=report.name,
        limits=audit_words.limits(report),
    )


def _at_least(report: AuditReport[Any]) -> str:
    """Return what the column of lower bounds holds; "" where it holds none."""
    attack = report.row.attack
    if attack is None or not attack.epsilon_at_least:
        return ""
    condition = observers.condition(attack.estimator)
    return f"At least: by trials, {percent(attack.confidence)} sure{condition}."


def _objections(report: AuditReport[Any]) -> Iterator[doc.Part]:
    ordered = sorted(report.findings, key=lambda each: SEVERITIES.index(each.severity))
    blocks: list[doc.Block] = [doc.Bullets([*report.reasons])] if report.reasons else []
    if ordered:
        rows = [(each.rule, each.severity, each.sentence, each.mend) for each in ordered]
        blocks.append(doc.tabulated(("rule", "severity", "why", "how to fix it"), rows))
    if blocks:
        yield doc.Part("Reasons and findings", blocks, folded=True)
