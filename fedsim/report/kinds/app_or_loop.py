"""The audit of a Flower app or a training loop as one HTML page."""

from collections.abc import Sequence

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.app.audit import AppAudit
from fedsim.audits.judgement.judge import Verdict
from fedsim.audits.loop.audit import LoopAudit
from fedsim.report.document.blocks import (
    Block,
    Document,
    FirstScreen,
    Heading,
    Listing,
    Prose,
    tabulated,
)
from fedsim.report.document.html import render

MEANINGS = {
    Verdict.CONVICTED: f"the attack proves, with {ALARM_CONFIDENCE:.2%} confidence, that the "
    "claim is false",
    Verdict.SUSPECT: "theory does not support the claim; the attack has not disproved it",
    Verdict.SUPPORTED: "theory supports the claim, and the attack found nothing against it",
    Verdict.NO_CLAIM: "nobody claims anything",
}


def render_html(outcome: AppAudit | LoopAudit, results: Sequence[tuple[str, str]]) -> str:
    """Return the page of an audit as HTML."""
    if isinstance(outcome, LoopAudit):
        name, words, unit = outcome.loop, "a training loop", "one record"
    else:
        name, words, unit = outcome.app, "a Flower app", "one client's update"
    verdict = outcome.verdict
    # A claim that is not judged says itself why.
    meaning = "; ".join(outcome.reasons) or MEANINGS[verdict]
    objections: Block = Prose("No rule objects to anything.")
    if outcome.findings:
        rows = [
            (found.rule, "yes" if found.breaks else "no", found.why, found.mend)
            for found in outcome.findings
        ]
        objections = tabulated(("rule", "weakens the guarantee", "why", "how to mend it"), rows)
    return render(
        Document(
            title=f"{name} – audit of {words}",
            kind=f"Audit of {words}",
            heading=name,
            note=f"The unit of privacy is {unit}.",
            first=FirstScreen(
                [f"{verdict.value.capitalize()}: {meaning}."], verdict is Verdict.CONVICTED
            ),
            blocks=[Listing(list(results), several=True), Heading("Findings"), objections],
        )
    )
