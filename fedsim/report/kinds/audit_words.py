"""The words of each kind of audit: what was played, what it found, and what would tell more."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.app.audit import AppAudit
from fedsim.audits.judgement.claim import Scope
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.live.live_results import LiveReport
from fedsim.audits.loop.audit import LoopAudit
from fedsim.audits.loop.support import Power
from fedsim.audits.recorded.recorded_report import RecordedReport, ReleaseReport, StepRelease
from fedsim.audits.results.conditions import APP, LIVE, LOOP, TRANSCRIPT
from fedsim.audits.run.detectable import POWER
from fedsim.game.observers.noise_watch import SUM
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage
from fedsim.report.document import blocks as doc
from fedsim.report.document.wording import counted, number, percent, plain

KINDS = {
    APP: "Audit of a Flower app",
    LOOP: "Audit of a training loop",
    TRANSCRIPT: "Audit of a transcript",
    LIVE: "Live audit",
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
NOTHING_SEEN = "The auditor has not yet seen a whole round."
AT_STATED_NOISE = "Ask the server for the noise of every round: without it, theory sets no limit."
SINGLE = (
    "A single training has no advantage to measure: run many trials on data that need no "
    "protection."
)
WORLDS = (
    "After the run, repeat the audit with --worlds RUN. RUN says which trials used the record, so "
    "the audit can count right answers."
)
MORE_OF_A_LOOP = (
    "Return each step's sum, an array [k, P], or a list of the models after each step, or "
    "increase --trials. If the loop draws its first model otherwise than by torch.nn.init, draw "
    "it from a constant seed: torch.manual_seed(0) before that line, and torch.manual_seed(seed) "
    "after it."
)
COMPARED = {
    Neighbouring.ADD_REMOVE: "sends no change",
    Neighbouring.REPLACE: "sends another update",
}
ADVERSARY = {
    Vantage.SERVER: "the server, which sees every message",
    Vantage.PARTICIPANT: "a participant, which sees the model of every round",
}


def played(report: AuditReport) -> str:
    """Return in a few words how much was played or observed."""
    match report:
        case AppAudit():
            rounds = counted(report.configuration.rounds, "round")
            return (
                f"{counted(report.trials, 'trial')}, {rounds}, {counted(report.clients, 'client')}"
            )
        case LoopAudit():
            return f"{counted(report.trials, 'trial')}, {counted(report.runs, 'run')}"
        case LiveReport():
            found = report.details
            rounds = f"rounds {found.rounds} of {found.rounds_planned}, {found.missed} missed"
            return f"{counted(found.trials, 'trial')}, {rounds}"
        case RecordedReport():
            loop = isinstance(report.details.release, StepRelease)
            return counted(report.details.rounds, "step" if loop else "round")
    raise TypeError(f"{type(report).__name__} is no audit")


def note(report: AuditReport) -> str:
    """Return the line below the heading of a page."""
    vantage = ""
    if isinstance(report, RecordedReport):
        vantage = f"Vantage: {report.details.facts.vantage}; "
    unit = {"client": "one client's update", "record": "one record"}.get(report.unit or "")
    protected = f"The unit of privacy is {unit}." if unit else ""
    return f"{vantage}{played(report)}. {protected}".rstrip()


def data(report: AuditReport) -> str:
    """Return which data an audit is about."""
    match report:
        case LoopAudit():
            return report.data
        case RecordedReport():
            facts = report.details.facts
            versions = "".join(f", {name} {each}" for name, each in facts.versions.items())
            return f"what {facts.recorder} recorded of {report.name}{versions}"
        case LiveReport():
            return f"what {report.details.facts.recorder} saw of run {report.details.facts.run}"
    return "the data of the app"


def limits(report: AuditReport) -> str:
    """Return what an audit does not cover."""
    match report:
        case RecordedReport():
            return (
                f"The audit covers {played(report)} as recorded at the vantage point "
                f"{report.details.facts.vantage}. Rounds that were not recorded add to the cost."
            )
        case LiveReport():
            found = report.details
            return (
                f"The audit covers {counted(found.rounds, 'round')} that the auditor saw; it "
                f"missed {found.missed}. It is not a guarantee."
            )
    return OF_CODE


def is_unclipped(report: AuditReport) -> bool:
    """Return whether nothing bounds what one update can change."""
    release = report.details.release if isinstance(report, RecordedReport) else None
    return release is not None and release.noise != "none" and not release.clipped


# What was found


def told(report: AuditReport) -> list[str]:
    """Return what an audit found beside its rows, in sentences."""
    match report:
        case RecordedReport():
            return [*_recorded(report)]
        case LiveReport():
            return [*_heard(report)]
        case AppAudit() | LoopAudit() if report.contradictory:
            return [CONTRADICTION]
    return []


def _recorded(report: RecordedReport) -> Iterator[str]:
    release, canary = report.details.release, report.details.canary
    if release is not None and release.noise == "none":
        yield UNNOISED
    elif isinstance(release, StepRelease):
        counts = "includes" if release.amplified else "leaves out"
        yield f"The limit {counts} the benefit of random batches."
    elif release is not None:
        yield _least_protected(release)
    if canary is not None:
        low, high = number(canary.mu.low), number(canary.mu.high)
        yield f"Canaries measured a mu of {low} to {high} for one round."
    if release is None and canary is None:
        yield "Nothing could be measured from this vantage point."


def _least_protected(release: ReleaseReport) -> str:
    client = release.least_protected[0]
    epsilon, belief = number(client.epsilon.point), client.belief[-1]
    alike = [one for one in release.clients if number(one.epsilon.point) == epsilon]
    who = f"The least protected client, node {client.node}, has"
    if len(alike) == len(release.clients) > 1:
        who = f"Each of the {len(alike)} clients has"
    sure = ">99.9%" if belief == 1 else percent(belief)  # with noise it is below 1
    return (
        f"{who} ε = {number(client.epsilon.point)} after {counted(client.rounds, 'round')} at the "
        f"measured noise. The belief that a client took part is largest for node {client.node}: "
        f"{sure}."
    )


def _heard(report: LiveReport) -> Iterator[str]:
    found, limit = report.details, report.row.limit
    belief, canaries, noise = found.belief, found.canaries, found.noise
    if limit is None and canaries is None and noise is None:
        yield NOTHING_SEEN
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
            f"The released sums have at most {number(noise.at_most[SUM])} times the claimed "
            f"noise, whatever the records are."
        )
    if (released := found.released) is not None:
        yield f"Everything released together has ε = {number(released.epsilon)}."


# What would tell more


def to_tell(report: AuditReport) -> list[str]:
    """Return what to do where an audit cannot tell."""
    if not isinstance(report, LiveReport):
        return []  # the reasons say what is missing
    found, attack, steps = report.details, report.row.attack, []
    if found.trials and (attack is None or attack.interval is None):
        steps.append(SINGLE if found.single else WORLDS)
    if report.row.limit is None:
        steps.append(AT_STATED_NOISE)
    return steps or ["Watch more rounds, or more trials."]


def advice(report: AuditReport) -> list[str]:
    """Return what would let the audit of a loop detect more."""
    if not isinstance(report, LoopAudit) or report.noise is not None:
        return []
    power = report.power
    if power is None or not math.isfinite(power.needed):
        return [_by_counting(report)]
    return _by_power(power, report.trials)


def _by_counting(report: LoopAudit) -> str:
    return (
        f"The audit did not see the noise itself. By counting, {report.trials} trials can show at "
        f"most ε = {report.provable:.3g} with {ALARM_CONFIDENCE:.2%} confidence. To convict a "
        "loop without any protection, the claim must be below that."
    )


def _by_power(power: Power, trials: int) -> list[str]:
    return [
        f"By measurement, {trials} trials would convict this loop in {POWER:.0%} of cases if it "
        f"added less than {power.share:.3g} of its present noise.",
        MORE_OF_A_LOOP,
    ]


# What was audited


def about(report: AuditReport) -> Iterator[doc.Block]:
    """Yield what was audited and compared, for the folded part of a page."""
    match report:
        case AppAudit():
            yield doc.Listing(_of_app(report), several=True)
        case LoopAudit():
            yield doc.Listing(_of_loop(report), several=True)
        case RecordedReport():
            yield from _of_recording(report)
        case LiveReport():
            facts = {"the auditor sees": report.details.sees, **asdict(report.details.facts)}
            yield _listing(facts)


def _claimed(report: AppAudit | LoopAudit) -> list[tuple[str, str]]:
    claim, bound = report.claim, report.lower_bound
    rows = [] if claim is None else [("claimed", f"ε = {claim.epsilon:.4g} ({claim.source})")]
    return [
        *rows,
        (
            "by attack",
            f"ε at least {bound.epsilon:.4g} ({report.confidence:.0%} confidence; {bound.method}; "
            f"assumes {bound.assumes}); at least {report.proven.epsilon:.4g} with "
            f"{ALARM_CONFIDENCE:.2%} confidence",
        ),
    ]


def _of_app(report: AppAudit) -> list[tuple[str, str]]:
    rounds = counted(report.configuration.rounds, "round")
    judged = f"the whole run, {rounds}" if report.scope is Scope.RUN else "one message"
    compared = (
        "no attack was made on a record"
        if report.records
        else f"a client sends its update, or {COMPARED[report.neighbouring]}; the adversary is "
        f"{ADVERSARY[report.vantage]}"
    )
    return [
        ("strategies", " > ".join(report.configuration.strategies)),
        ("judged", judged),
        *_claimed(report),
        ("compared", compared),
        ("theory predicts", f"an advantage of {number(report.predicted_advantage)} for the attack"),
    ]


def _of_loop(report: LoopAudit) -> list[tuple[str, str]]:
    observation = report.observation
    steps = "everything that the function returns"
    if observation.steps:
        steps = f"{counted(len(observation.steps), 'step')} of Opacus's optimizer, all together"
    other = "with one replaced"
    if observation.neighbouring is not Neighbouring.REPLACE:
        other = "without one"
    compared = f"{observation.records} records, or the same {other}; {report.pair}"
    rows = [("judged", steps), *_claimed(report), ("compared", compared)]
    if off := observation.noise_off:
        rows.append(("limit", f"with the least noise that was measured {off[0].strip(',')}"))
    if (noise := report.noise) is not None:
        rows.append(
            (
                "missing noise",
                f"would be seen in {POWER:.0%} of cases if it is missing in "
                f"{noise.missed_below:.2%} of all trainings",
            )
        )
    return rows


def _of_recording(report: RecordedReport) -> Iterator[doc.Block]:
    found = report.details
    measured = [one for one in (found.release, found.canary) if one is not None]
    if assumptions := [text for one in measured for text in one.assumptions]:
        yield doc.Heading("Assumptions")
        yield doc.Bullets(assumptions)
    yield doc.Heading("The recording")
    yield _listing(asdict(found.facts))
    yield _listing(found.mechanism)


def _listing(values: Mapping[str, object]) -> doc.Listing:
    return doc.Listing([(key, plain(value)) for key, value in values.items()], several=True)
