"""The report of a recorded transcript: what its vantage point reveals about each client.

`Auditor` reads rounds one by one, keeps a few numbers of each, and can report at any time. It reads
a file and a running federation in the same way. The modules of the vantage points document what
they measure: `server_rounds`, `participant_rounds` and `loop_steps`.

In a federation the unit of privacy is a client's whole update of a round. In a neighbouring run the
mean has no change in place of this update, with the same weights and number of clients.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import (
    UNCLAIMED,
    Claim,
    Evidence,
    Finding,
    Judgement,
    alarms,
    judge,
)
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.loop_steps import LoopSteps
from fedsim.audits.recorded.noise_level import ALIKE
from fedsim.audits.recorded.participant_rounds import ParticipantRounds
from fedsim.audits.recorded.recorded_noise import NUMBERS, Asked, MeasuredRounds, Notes
from fedsim.audits.recorded.recorded_report import (
    Ending,
    RecordedDetails,
    RecordedReport,
    StepRelease,
)
from fedsim.audits.recorded.recorded_rows import observed_rows, unjudgeable
from fedsim.audits.recorded.server_rounds import ServerRounds
from fedsim.audits.steps.step import unbelievable
from fedsim.federation.transcripts.reader import Reader
from fedsim.federation.transcripts.records import (
    LOOP,
    UNITS,
    ObservedRound,
    Transcript,
    TranscriptFacts,
)

RECORDS = (
    "the claim is about a record of a client's data, but a transcript measures what is learnt "
    "about a client's whole update"
)
CLIENTS = (
    "the claim is about a client's whole update, but the noise of this recorded training loop "
    "protects a record"
)
UNSTATED_UNIT = (
    "the claim does not state what it protects. State --claimed-unit client for a client's whole "
    "update, as its training returns it, or --claimed-unit record for one record of its data"
)
CANARIES = "canaries may disprove a claim, but cannot support it; record at the server as well"
UNCERTAIN = (
    "the measured noise allows an epsilon of {}. More rounds would measure it more exactly, and "
    "the audit would compare configured noise with it"
)

OWN_NOISE = (
    "the noise comes from the loop's own {}. A transcript measures its size, but not whether it is "
    "fresh and its seed secret; let Opacus draw it"
)
UNSEEN = (
    "a transcript has each step's sum, and does not show how far one record moves it. A loop that "
    "holds a record twice, mixes records or reorders old noise gives less privacy; fedsim audit "
    "loop runs the code and measures it"
)


@dataclass(frozen=True)
class Recorded:
    """What a transcript contributes to the verdict on a claim.

    Attributes:
        mechanism: as recorded; the last round that names a value counts.
        missing: why rounds may be missing, "" if none are.
        alarms: whether the report has an alarm, after which no claim is supported.
    """

    mechanism: Mapping[str, Any]
    measured: MeasuredRounds
    missing: str
    alarms: bool


def _judged(claim: Claim, recorded: Recorded, findings: list[Finding]) -> Judgement:
    """Return the verdict on a claim, and the reasons if it is not judged.

    findings: findings of the report; refutations of the claim are appended as alarms.
    """
    other = RECORDS if recorded.measured.unit == "client" else CLIENTS
    refuted, evidence = list[str](), Evidence(incomparable=other)
    if claim.unit is None:
        evidence = Evidence(incomparable=UNSTATED_UNIT)
    elif claim.unit == recorded.measured.unit:
        refuted, evidence = _of_updates(claim, recorded)
    findings += [
        Finding(f"the claim of epsilon {claim.epsilon:g} at delta {claim.delta:g} {text}")
        for text in refuted
    ]
    return judge(claim, evidence)


def _of_updates(claim: Claim, recorded: Recorded) -> tuple[list[str], Evidence]:
    release, canary = recorded.measured.release, recorded.measured.canary
    refuted, unjudged = [], []
    if canary is not None:
        unjudged.append(CANARIES)
        refuted += _refutation(claim, canary.epsilon_proven_all_rounds, "that canaries show")
    if release is None:
        unjudged += [] if canary is not None else [recorded.measured.unmeasured]
    elif why := unjudgeable(release):
        unjudged.append(why)
    else:
        proven = release.proven
        whose = (
            f"of a {recorded.measured.unit}" if proven.node is None else f"of node {proven.node}"
        )
        refuted += _refutation(claim, proven.epsilon, whose)
        missing = (
            [f"{recorded.missing}, and the claim is about all rounds"] if recorded.missing else []
        )
        at_most = proven.epsilon_at_most
        kept = claim.allows(at_most)
        if kept:
            unsure = release.unsure if isinstance(release, StepRelease) else ""
            unsure = unsure or recorded.measured.unsure
            unsure = unsure or ("" if release.independent else ALIKE)
            if not unsure and (own := recorded.mechanism.get("own_noise")):
                unsure = OWN_NOISE.format(own)
        else:
            largest = "any size" if math.isinf(at_most) else f"up to {at_most:.3g}"
            unsure = UNCERTAIN.format(largest)
        return refuted, Evidence(
            refuted=bool(refuted),
            broken=recorded.alarms,
            unknown=missing,
            # The configuration itself contradicts the claim.
            exceeded=not kept and release.noise == "as claimed",
            unsure=[unsure] if unsure else [],
            in_favour=[UNSEEN] if isinstance(release, StepRelease) else [],
        )
    return refuted, Evidence(refuted=bool(refuted), unknown=unjudged)


def _refutation(claim: Claim, epsilon: float, whose: str) -> list[str]:
    if epsilon <= claim.epsilon:
        return []
    value = "infinite" if math.isinf(epsilon) else f"at least {epsilon:.3g}"
    return [f"is refuted: the epsilon {whose} is {value} ({ALARM_CONFIDENCE:.2%} confidence)"]


REPEATED = "the recorded run started again and repeated rounds; every attempt counts"
UNBELIEVABLE = "the recorded {} is neither 0 nor between 1e-30 and 1e30; it counts as not recorded"
UNENDED = "the run has not ended"
UNSTATED = (
    "a participant's transcript does not say when the run has ended; state the number of rounds "
    "that this client takes part in with --rounds"
)
DEFAULTS = AuditOptions()


class Auditor:
    """Reads a transcript round by round. Not thread-safe."""

    def __init__(self, facts: TranscriptFacts) -> None:
        self.facts = facts
        self.rounds = 0
        self._numbers: set[int] = set()
        self._last_round = -1
        self._mechanism: dict[str, Any] = {}
        self._notes = Notes()
        self._vantage: ServerRounds | ParticipantRounds | LoopSteps
        if facts.vantage == "server":
            self._vantage = ServerRounds(self._notes)
        elif facts.vantage == LOOP:
            self._vantage = LoopSteps(self._notes)
        else:
            self._vantage = ParticipantRounds(self._notes, facts.node or 0)

    def observe(self, observed: ObservedRound) -> None:
        self._mechanism |= {
            # Strict JSON has no NaN.
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in observed.mechanism.items()
        }
        for name in NUMBERS:
            if unbelievable(observed.mechanism.get(name)):
                self._notes.add("caution", UNBELIEVABLE.format(name), observed.round)
        if observed.model or observed.replies:
            self.rounds += 1
            # A loop's recorder counts the steps of each engine from 1.
            if observed.round <= self._last_round and self.facts.vantage != LOOP:
                self._notes.add("caution", REPEATED, observed.round)
            self._last_round = observed.round
            self._numbers.add(observed.round)
        self._vantage.observe(observed)

    def missing(self, expected: int | None, ended: bool) -> str:
        """Return why rounds may be missing; "" if none are.

        Args:
            expected: number of rounds of the run, as the user states it.
            ended: whether the transcript states that the run has ended, which a client never sees.
        """
        if self.facts.vantage in ("server", LOOP):
            return "" if ended else "the transcript does not state that the run has ended"
        if expected is None:
            return UNSTATED
        seen = len(self._numbers)
        return "" if seen >= expected else f"{seen} of the stated {expected} rounds were recorded"

    def report(self, options: AuditOptions, missing: str = UNENDED) -> RecordedReport:
        """Return the report so far."""
        delta, confidence, claim = options.stated_at, options.level, options.claim
        findings = self._notes.findings()
        measured = self._vantage.measured(Asked(self._mechanism, delta, confidence, findings))
        judgement = UNCLAIMED
        if claim is not None:
            unit = claim.unit or self._mechanism.get("unit")
            claim = replace(claim, unit=unit if unit in UNITS else None)
            evidence = Recorded(self._mechanism, measured, missing, alarms(findings) > 0)
            judgement = _judged(claim, evidence, findings)
        rows = observed_rows(measured, self.facts.vantage, confidence)
        return RecordedReport(
            delta=delta,
            confidence=confidence,
            claim=claim,
            unit=measured.unit,
            judgement=judgement,
            vantage=rows[-1].observer,
            unjudged=rows,
            findings=findings,
            details=RecordedDetails(
                facts=self.facts,
                rounds=self.rounds,
                rounds_stated=options.rounds,
                mechanism=self._mechanism,
                release=measured.release,
                canary=measured.canary,
            ),
        )


def audit(transcript: Transcript | Reader, options: AuditOptions = DEFAULTS) -> RecordedReport:
    """Return the report of a whole transcript, as `Auditor.report`, with how its file ended."""
    auditor = Auditor(transcript.facts)
    rounds = transcript.rounds() if isinstance(transcript, Reader) else transcript.rounds
    for observed in rounds:
        auditor.observe(observed)
    missing = auditor.missing(options.rounds, bool(transcript.ended) and not transcript.torn)
    if transcript.incomplete:
        missing = f"the transcript is incomplete ({transcript.incomplete})"
    report = auditor.report(options, missing)
    findings = list(report.findings)
    if transcript.incomplete:
        text = f"the transcript is incomplete: {transcript.incomplete}"
        findings.insert(0, Finding(text, severity="caution"))
    if transcript.torn:
        text = "the recorder stopped during the last round, which was dropped"
        findings.append(Finding(text, severity="note"))
    ending = Ending(transcript.ended, transcript.incomplete, transcript.torn)
    return replace(report, findings=findings, details=replace(report.details, transcript=ending))
