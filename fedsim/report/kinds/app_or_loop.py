"""The audit of a Flower app or a training loop as one HTML page."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.app.audit import AppAudit
from fedsim.audits.judgement.claim import Verdict
from fedsim.audits.loop.audit import LoopAudit
from fedsim.privacy.identifiability import advantage_of_epsilon
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen
from fedsim.report.document.first_screen import power, report_check, share, shares
from fedsim.report.document.html import render
from fedsim.report.document.wording import DASH, number, percent

MEANINGS = {
    Verdict.CONVICTED: f"the attack shows, with {ALARM_CONFIDENCE:.2%} confidence, that the "
    "claim is false",
    Verdict.SUSPECT: "theory does not support the claim; the attack has not disproved it",
    Verdict.SUPPORTED: "theory supports the claim, and the attack found nothing against it",
    Verdict.NO_CLAIM: "there is no claim to judge",
}


MARKS: dict[Verdict, Literal["good", "open", "caution", "alarm"]] = {
    Verdict.CONVICTED: "alarm",
    Verdict.SUSPECT: "caution",
    Verdict.SUPPORTED: "good",
    Verdict.NOT_JUDGED: "open",
    Verdict.NO_CLAIM: "open",
}

ADVICE = {
    Verdict.CONVICTED: "Do not rely on the claim until you have fixed what the findings name.",
    Verdict.SUSPECT: "Read the findings. They say what theory needs to support the claim.",
    Verdict.SUPPORTED: "Rely on theory, not on this attack: a better one may achieve more.",
    Verdict.NOT_JUDGED: "Read the reasons. They say what the audit needs in order to decide.",
    Verdict.NO_CLAIM: "To have a claim judged, add --claimed-epsilon and --claimed-delta.",
}

MOST_MENDED = 3

LIMITS = (
    "The audit is about this code with these settings, on data that need no protection. Of a "
    "returned module it sees the state dict alone. A stronger attack may prove a larger epsilon."
)


def _first(outcome: AppAudit | LoopAudit, meaning: str, unit: str) -> doc.FirstScreen:
    verdict, report = outcome.verdict, outcome.as_json()
    mends = [finding.mend for finding in outcome.findings if finding.mend][:MOST_MENDED]
    data = outcome.data if isinstance(outcome, LoopAudit) else "the data of the app"
    claim, theory = outcome.claim, outcome.epsilon
    rows = [
        ["claimed", DASH if claim is None else number(claim.epsilon)],
        ["theory: at most", "not known" if theory is None else number(theory)],
        [
            f"attack: at least, with {percent(outcome.confidence)} confidence, assuming "
            f"{outcome.lower_bound.assumes}",
            number(outcome.lower_bound.epsilon),
        ],
        [
            f"attack: at least, with {ALARM_CONFIDENCE:.2%} confidence, assuming "
            f"{outcome.proven.assumes}",
            number(outcome.proven.epsilon),
        ],
    ]
    return doc.FirstScreen(
        answer=[f"{verdict.value.capitalize()}: {meaning}."],
        alarming=verdict is Verdict.CONVICTED,
        figure=doc.Bars(
            _bars(outcome),
            f"How often the attack is right about {unit} ({percent(outcome.confidence)} interval).",
        ),
        table=doc.tabulated(("Epsilon", f"at δ = {outcome.delta:g}"), rows),
        checks=_checks(outcome, report),
        steps=[*(f"{mend[:1].upper()}{mend[1:]}." for mend in mends), ADVICE[verdict]],
        sign_off=first_screen.sign_off(data=str(data), date=first_screen.today(), limits=LIMITS),
    )


def _bars(outcome: AppAudit | LoopAudit) -> list[doc.Bar]:
    verdict, measured, claim = outcome.verdict, outcome.advantage, outcome.claim
    ends = shares(measured.interval.ends)
    by, epsilon = "theory", outcome.epsilon
    if claim is not None:
        by, epsilon = "the claim", claim.epsilon
    limit = None if epsilon is None else share(advantage_of_epsilon(epsilon, outcome.delta))
    mark = doc.Mark(MARKS[verdict], verdict.value.capitalize())
    return [doc.Bar("Attack", mark, share(measured.point), ends, limit, by=by)]


def _checks(outcome: AppAudit | LoopAudit, report: Mapping[str, Any]) -> list[doc.Check]:
    text, failed = "No rule found a broken guarantee.", "A rule found a broken guarantee."
    checks = [report_check(text, "alarms > 0", report, failed=failed)]
    if outcome.claim is not None:
        limit = f"{outcome.claim.epsilon:g}"
        claimed = outcome.claim.epsilon
        proven = f"measured.proven.epsilon > {claimed}"
        theory, attack = f"epsilon > {claimed}", f"epsilon.low > {claimed}"
        checks += [
            report_check(
                f"Theory: ε is at most the claimed {limit}.",
                theory,
                report,
                failed=f"Theory: ε is above the claimed {limit}.",
                unknown=f"Theory gives no finite ε to compare with the claimed {limit}.",
            ),
            report_check(
                f"The attack shows no ε above {limit}.",
                attack,
                report,
                proven,
                failed=f"The attack shows ε above the claimed {limit}.",
                unknown=(
                    f"A lower bound on ε is above the claimed {limit}, but not with "
                    f"{ALARM_CONFIDENCE:.2%} confidence."
                ),
            ),
        ]
    if "seen_below" in report["measured"]:
        checks.append(power(report, "measured.seen_below"))
    return checks


def render_html(outcome: AppAudit | LoopAudit, results: Sequence[tuple[str, str]]) -> str:
    if isinstance(outcome, LoopAudit):
        name, words, unit = outcome.loop, "a training loop", "one record"
    else:
        name, words, unit = outcome.app, "a Flower app", "one client's update"
    verdict = outcome.verdict
    # A claim that is not judged says itself why.
    meaning = ". ".join(outcome.reasons) or MEANINGS[verdict]
    objections: doc.Block = doc.Prose("No rule found a problem.")
    if outcome.findings:
        rows = [
            (finding.rule, "yes" if finding.breaks else "no", finding.why, finding.mend)
            for finding in outcome.findings
        ]
        objections = doc.tabulated(("rule", "weakens the guarantee", "why", "how to fix it"), rows)
    return render(
        doc.Document(
            title=f"{name} – audit of {words}",
            kind=f"Audit of {words}",
            heading=name,
            note=f"The unit of privacy is {unit}.",
            first=_first(outcome, meaning, unit),
            blocks=[
                doc.Heading("Evidence"),
                doc.Listing(list(results), several=True),
                doc.Heading("Findings"),
                objections,
            ],
        )
    )
