"""The audit of a Flower app as one HTML page that needs no other file, script or network."""

from collections.abc import Sequence

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.app.audit import AppAudit
from fedsim.audits.judgement.finding import Finding
from fedsim.audits.judgement.verdict import Verdict
from fedsim.report.document.blocks import Block, Document, Heading, Listing, Prose, tabulated
from fedsim.report.document.html import render

MEANINGS = {
    Verdict.CONVICTED: f"the attack proves, with {ALARM_CONFIDENCE:.2%} confidence, that the "
    "claim is false",
    Verdict.SUSPECT: "theory does not support the claim; the attack has not disproved it",
    Verdict.SUPPORTED: "theory supports the claim, and the attack found nothing against it",
    Verdict.NO_CLAIM: "nobody claims anything",
}


def render_html(outcome: AppAudit, results: Sequence[tuple[str, str]]) -> str:
    """Return the page as HTML."""
    words = "a Flower app", "one client's update"
    return _page(words, outcome.app, outcome.verdict, outcome.reasons, results, outcome.findings)


def render_loop(
    loop: str,
    verdict: Verdict,
    reasons: Sequence[str],
    results: Sequence[tuple[str, str]],
    findings: Sequence[Finding],
) -> str:
    """Return the page of a training loop as HTML."""
    words = "a training loop", "one record"
    return _page(words, loop, verdict, reasons, results, findings)


def _page(
    words: tuple[str, str],
    name: str,
    verdict: Verdict,
    reasons: Sequence[str],
    results: Sequence[tuple[str, str]],
    findings: Sequence[Finding],
) -> str:
    """words: what was audited, and the unit of its privacy."""
    # A claim that is not judged says itself why.
    meaning = "; ".join(reasons) or MEANINGS[verdict]
    objections: Block = Prose("No rule objects to anything.")
    if findings:
        rows = [
            (found.rule, "yes" if found.breaks else "no", found.why, found.mend)
            for found in findings
        ]
        objections = tabulated(("rule", "weakens the guarantee", "why", "how to mend it"), rows)
    return render(
        Document(
            title=f"{name} – audit of {words[0]}",
            kind=f"Audit of {words[0]}",
            heading=name,
            note=f"The unit of privacy is {words[1]}.",
            verdict=[f"{verdict.value.capitalize()}: {meaning}."],
            alarming=verdict is Verdict.CONVICTED,
            blocks=[Listing(list(results), several=True), Heading("Findings"), objections],
        )
    )
