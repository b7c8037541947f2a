"""What an audit of an app, a loop, a transcript, a node or scores says; it computes nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.app.audit import AppDetails
from fedsim.audits.judgement.canary_scores import ScoresDetails
from fedsim.audits.judgement.claim import TO_CLAIM, Verdict
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.live.live_audit import Look
from fedsim.audits.live.live_report import LiveDetails
from fedsim.audits.loop.audit import LoopDetails
from fedsim.audits.recorded.audit import RecordedDetails
from fedsim.audits.results.conditions import APP, LIVE, LOOP, SCORES, TRANSCRIPT
from fedsim.audits.results.rows import Row
from fedsim.common import report_directory
from fedsim.game.observers.noise_watch import SUM
from fedsim.privacy.identifiability import advantage_of_epsilon
from fedsim.privacy.mechanism import Neighbouring
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import release
from fedsim.reports.document.first_screen import share
from fedsim.reports.document.html import page
from fedsim.reports.document.wording import counted, number, percent
from fedsim.reports.kinds import course
from fedsim.reports.sections import every_audit, section

KINDS = {
    APP: "Audit of a Flower app",
    LOOP: "Audit of a training loop",
    TRANSCRIPT: "Audit of a transcript",
    LIVE: "Live audit",
    SCORES: "Audit of canary scores",
}

CONTRADICTION = (
    "Theory supports the claim, but the attack disproves it. Either the code does something that "
    "theory does not model, or theory is wrong, or this is the one audit in "
    f"{round(1 / (1 - ALARM_CONFIDENCE)):,} that may err by chance."
)
OF_CODE = (
    "The audit is about this code with these settings, on data that need no protection. Of a "
    "returned module it sees the state dict alone. A stronger attack may prove a larger epsilon."
)
UNNOISED = (
    "No noise was added to the updates after they were sent. Noise that clients add themselves is "
    "not visible from this vantage point."
)
AT_STATED_NOISE = "Ask the server for the noise of every round: without it, theory sets no limit."
STATE_NOISE = "Record the configured noise, so that the audit can compare the measured noise."
UNKNOWN_WORLDS = (
    "An auditor's node does not know which trials used the record. The report of a run of many "
    "trials counts right answers."
)
MORE_OF_A_LOOP = (
    "Returning each step's sum [k, P], or more trials, proves more. A first model that is drawn "
    "otherwise than by torch.nn.init needs a constant seed: torch.manual_seed(0) before that line, "
    "and torch.manual_seed(seed) after it."
)
COMPARED = {
    Neighbouring.ADD_REMOVE: "sends no change",
    Neighbouring.REPLACE: "sends another update",
}
PROTECTED = {
    "client": "The unit of privacy is all data of one client, a device or an organisation.",
    "record": "The unit of privacy is one record.",
}


def played(report: AuditReport[Any]) -> str:
    match report.details:
        case AppDetails() as found:
            whole = f"{counted(found.facts.rounds, 'round')}, {counted(found.clients, 'client')}"
            if found.decisions is None:
                return whole
            return f"{counted(found.decisions.trials, 'trial')}, {whole}"
        case LoopDetails() as found:
            return f"{counted(found.decisions.trials, 'trial')}, {counted(found.runs, 'run')}"
        case ScoresDetails() as found:
            return f"{found.count} canaries, {found.included} of them included"
        case LiveDetails() as found:
            rounds = f"rounds {found.rounds} of {found.rounds_planned}, {found.missed} missed"
            return f"{counted(found.trials, 'trial')}, {rounds}"
        case RecordedDetails() as found:
            return counted(found.rounds, "step" if found.of_a_loop else "round")
    raise TypeError(f"{type(report.details).__name__} is of no audit")


def _note(report: AuditReport[Any]) -> str:
    """Return the line below the heading of a page."""
    protected = PROTECTED.get(report.unit or "")
    return " ".join(filter(None, (f"{played(report)}.", protected, compared(report))))


def _limits(report: AuditReport[Any]) -> str:
    if isinstance(report.details, RecordedDetails | LiveDetails):
        return f"The audit covers {played(report)}. Rounds that were not recorded add to the cost."
    return OF_CODE


# What was found


def _found(report: AuditReport[Any]) -> list[str]:
    """Return what an audit found beside its rows, in sentences."""
    match report.details:
        case RecordedDetails() as found:
            return [*_recorded(found)]
        case LiveDetails() as found:
            return [*_heard(report, found)]
        case ScoresDetails() as found:
            return [*_guessed(found)]
    claim, epsilon = report.claim, report.epsilon
    allowed = claim is not None and epsilon is not None and claim.allows(epsilon)
    return [CONTRADICTION] if allowed and report.verdict is Verdict.CONVICTED else []


def _guessed(found: ScoresDetails) -> Iterator[str]:
    for bound in found.bounds.values():
        right = f"{bound.details['right']:g} of {bound.details['guesses']:g} guesses were right"
        yield f"{bound.method}: ε at least {number(bound.epsilon)}; {right}."
    estimate, ends = found.estimate, found.estimate.epsilon_interval
    between = f"ε {number(estimate.epsilon)} ({number(ends.low)} to {number(ends.high)})"
    yield f"{estimate.method}: {estimate.reason or between}; an estimate proves nothing."


def _recorded(found: RecordedDetails) -> Iterator[str]:
    release = found.release
    if release is not None and release.noise == "none":
        yield UNNOISED
    elif release is not None and found.of_a_loop:
        counts = "includes" if release.amplified else "leaves out"
        yield f"The limit {counts} the benefit of random batches."
    elif release is not None:
        client = release.least_protected
        sure = course.belief(client.belief[-1], release)
        yield (
            f"The least protected client is node {client.node}, with at most "
            f"ε = {number(client.epsilon)}. The belief that it took part is {sure} in this "
            "training; the limit is an average over trainings."
        )
    else:
        yield "Nothing could be measured from this vantage point."


def _heard(report: AuditReport[Any], found: LiveDetails) -> Iterator[str]:
    limit = report.row.limit
    belief, canaries, noise = found.belief, found.canaries, found.noise_at_most
    if limit is None and canaries is None and noise is None:
        yield "The auditor has not yet seen a whole round."
    if limit is not None and belief is not None and report.row.attack is not None:
        what = "a client's data were" if report.unit == "client" else "the target record was"
        rarely = ""
        if 0 < limit.exceeded < 1:
            rarely = f", except in {percent(limit.exceeded)} of trainings for the most exposed one"
        yield (
            f"The auditor's belief that {what} used is {percent(belief.mean)} on average over "
            f"{counted(found.trials, 'trial')}, and {percent(report.row.attack.belief)} in the "
            f"highest trial. The noise keeps it at {percent(limit.rho_beta)} or less{rarely}."
        )
    if canaries is not None and canaries.reason is not None:
        yield f"Canaries measured nothing yet: {canaries.reason}."
    elif canaries is not None:
        low, high = canaries.interval
        yield (
            f"Canaries measured a signal of {number(canaries.mu)} standard deviations "
            f"({number(low)} to {number(high)}); the noise allows {number(canaries.claimed_mu)}."
        )
    if noise is not None and not report.alarms:
        yield (
            f"The released sums have at most {number(noise[SUM])} times the claimed "
            f"noise, whatever the records are."
        )
    if found.released_epsilon is not None:
        yield f"Everything released together has ε = {number(found.released_epsilon)}."


# What would tell more


def to_tell(report: AuditReport[Any], row: Row) -> list[str]:
    """Return what to do where an audit cannot tell about an observer."""
    found, attack = report.details, row.attack
    if isinstance(found, RecordedDetails) and row.limit:
        return [STATE_NOISE]
    if not isinstance(found, LiveDetails):
        return []  # the reasons say what is missing
    steps = [AT_STATED_NOISE] if row.limit is None else []
    if found.trials and (attack is None or attack.interval is None):
        steps.append(UNKNOWN_WORLDS)
    return steps or ["Watch more rounds, or more trials."]


def advice(report: AuditReport[Any]) -> list[str]:
    """Return what would let the audit of a loop detect more."""
    found = report.details
    if report.alarms or not isinstance(found, LoopDetails) or found.noise is not None:
        return []
    return [
        f"The audit did not see the noise itself: {found.decisions.trials} trials can prove at "
        f"most ε = {found.provable:.3g} ({ALARM_CONFIDENCE:.2%} confidence).",
        MORE_OF_A_LOOP,
    ]


# What was compared


def compared(report: AuditReport[Any]) -> str:
    match report.details:
        case AppDetails() as found if found.records is None:
            return (
                f"A client sends its update, or {COMPARED[found.neighbouring]}; the adversary is a "
                "participant, which sees the model of every round."
            )
        case LoopDetails() as found:
            replaced = found.neighbouring is Neighbouring.REPLACE
            other = "with one replaced" if replaced else "without one"
            least = f" ε is of the least noise that was measured {found.least_noise}."
            return (
                f"The loop trained on {found.records} records, or on the same {other}; "
                f"the target is {found.worlds}.{least * bool(found.least_noise)}"
            )
    return ""


# What it says

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
        ours = report.kind in (APP, LOOP)  # of others, somebody else plays the trials
        return f"--trials {4 * row.attack.trials}" if ours and row.attack else ""

    steps = every_audit.decisions(report, untold=lambda row: to_tell(report, row), more=more)
    if report.verdict in DECIDED or not steps:
        limit = report.row.limit
        right = percent(share(1.0 if limit is None else limit.rho_alpha))
        steps.append(ADVICE[report.verdict].format(right=right, unit=report.unit or "record"))
    return [*steps, *advice(report)]


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
    attack, at_least = report.row.attack, ""
    if attack is not None and attack.epsilon_at_least:
        condition = section.condition(attack.estimator)
        at_least = f"At least: by trials, {percent(attack.confidence)} sure{condition}."
    doubts = [each.sentence for each in report.findings if each.severity == "caution"]
    return every_audit.told(
        report,
        about=f"one {report.unit or 'record'}",
        remarks=[
            *(f"Caution: {each}" for each in doubts),
            *([rest] if report.claim and rest else ()),
        ],
        kind=KINDS[report.kind],
        played=played(report),
        note=_note(report),
        release=sharing,
        answer=[
            *every_audit.by_chance(report),
            *filter(None, [verdict]),
            *_found(report),
        ],
        legend=at_least,
        steps=decisions(report),
        sections=lambda: [
            *_objections(report),
            *([doc.Part(SEEN, [doc.Prose(each) for each in seen], folded=True)] if seen else []),
            *course.drawn(report, rounds),
        ],
        data=report.name,
        limits=_limits(report),
    )


def _objections(report: AuditReport[Any]) -> Iterator[doc.Part]:
    ordered = sorted(report.findings, key=lambda each: SEVERITIES.index(each.severity))
    blocks: list[doc.Block] = [doc.Bullets([*report.reasons])] if report.reasons else []
    if ordered:
        rows = [(each.rule, each.severity, each.sentence, each.mend) for each in ordered]
        blocks.append(doc.tabulated(("rule", "severity", "why", "how to fix it"), rows))
    if blocks:
        yield doc.Part("Reasons and findings", blocks, folded=True)
