"""The audit of a recorded transcript: what its vantage point reveals, and whether a claim holds.

`Auditor` reads rounds one by one, keeps a few numbers of each, and can report at any time. It reads
a file and a running federation in the same way. The modules of the vantage points document what
they measure: `server_rounds` and `loop_steps`.

In a federation the unit of privacy is a client's whole update of a round. In a neighbouring run the
mean has no change in place of this update, with the same weights and number of clients.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedsim.audits.judgement.claim import Claim, Evidence, Finding, alarms
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport, concluded
from fedsim.audits.recorded.loop_steps import LoopSteps
from fedsim.audits.recorded.releases import NUMBERS, MeasuredRounds, Notes, ReleaseReport
from fedsim.audits.recorded.server_rounds import ServerRounds
from fedsim.audits.results.conditions import TRANSCRIPT
from fedsim.audits.steps.watch import unbelievable
from fedsim.federation.transcripts.reader import Reader
from fedsim.federation.transcripts.records import (
    LOOP,
    UNITS,
    ObservedRound,
    Transcript,
    TranscriptFacts,
)

# Why a claim is not judged, or what a supported one rests on

OTHER_UNIT = {
    "client": "the claim is about a record of a client's data, but a transcript measures what is "
    "learnt about a client's whole update",
    "record": "the claim is about a client's whole update, but the noise of this recorded training "
    "loop protects a record",
}
UNSTATED_UNIT = (
    "the claim does not state what it protects. State --claimed-unit client for a client's whole "
    "update, as its training returns it, or --claimed-unit record for one record of its data"
)
OWN_NOISE = (
    "the training's own code, {}, makes the noise. An audit measures its size, but not whether it "
    "is fresh, its seed secret and its kind Gaussian; let Flower or Opacus draw it"
)
UNSEEN = (
    "a transcript has each step's sum, and does not show how far one record moves it. A loop that "
    "holds a record twice, mixes records or reorders old noise gives less privacy; fedsim audit "
    "FILE:FUNCTION runs the code and measures it"
)
UNENDED = "the run has not ended"
NO_END = "the transcript does not state that the run has ended"

# Findings about the file

REPEATED = "the recorded run started again and repeated rounds; every attempt counts"
UNBELIEVABLE = "the recorded {} is neither 0 nor between 1e-30 and 1e30; it counts as not recorded"
TORN = "the recorder stopped during the last round, which was dropped"


@dataclass(frozen=True)
class Ending:
    """How the transcript's file ends. `incomplete`: why rounds are missing, "" if none are."""

    ended: bool
    incomplete: str
    torn_bytes: int

    @property
    def missing(self) -> str:
        """Why rounds may be missing, "" if none are."""
        if self.incomplete:
            return f"the transcript is incomplete ({self.incomplete})"
        return "" if self.ended and not self.torn_bytes else NO_END


@dataclass(frozen=True, kw_only=True)
class RecordedDetails:
    """What the audit of a recorded transcript alone has."""

    facts: TranscriptFacts
    rounds: int
    """Number of recorded rounds, or of steps of a loop."""
    mechanism: Mapping[str, Any]
    """The mechanism as recorded; the last round that names a value counts."""
    release: ReleaseReport | None
    transcript: Ending | None = None
    """How the transcript's file ends; None while the recorded run goes on."""

    @property
    def of_a_loop(self) -> bool:
        return self.facts.vantage == LOOP

    @property
    def unguaranteed(self) -> bool:
        """Whether nothing bounds what one update can change."""
        found = self.release
        return found is not None and found.noise != "none" and not found.clipped


RecordedReport = AuditReport[RecordedDetails]


class Auditor:
    """Reads a transcript round by round. Not thread-safe."""

    def __init__(self, facts: TranscriptFacts) -> None:
        self.facts = facts
        self.rounds = 0
        self._last_round = -1
        self._mechanism: dict[str, Any] = {}
        self._notes = Notes()
        of_a_loop = facts.vantage == LOOP
        self._vantage = LoopSteps(self._notes) if of_a_loop else ServerRounds(self._notes)

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
        self._vantage.observe(observed)

    def report(self, options: AuditOptions, ending: Ending | None = None) -> RecordedReport:
        """Return the report so far.

        ending: how the file ends; None while the recorded run goes on.
        """
        missing = UNENDED if ending is None else ending.missing
        delta, confidence, claim = options.stated_at, options.level, options.claim
        measured = self._vantage.measured(self._mechanism, delta, confidence)
        findings = list(measured.findings)
        if claim is not None:
            unit = claim.unit or self._mechanism.get("unit")
            claim = replace(claim, unit=unit if unit in UNITS else None)
        broken = alarms(findings) > 0
        if ending is not None and ending.incomplete:
            why = f"the transcript is incomplete: {ending.incomplete}"
            findings.insert(0, Finding(why, severity="caution"))
        if ending is not None and ending.torn_bytes:
            findings.append(Finding(TORN, severity="note"))
        return concluded(
            measured.views,
            recorded_evidence(measured, broken, missing, self._mechanism, claim),
            kind=TRANSCRIPT,
            name=self.facts.app or f"a recording by {self.facts.recorder}",
            unit=measured.unit,
            claim=claim,
            findings=findings,
            delta=delta,
            confidence=confidence,
            details=RecordedDetails(
                facts=self.facts,
                rounds=self.rounds,
                mechanism=self._mechanism,
                release=measured.release,
                transcript=ending,
            ),
            versions=self.facts.versions,
        )


def audit(transcript: Transcript | Reader, options: AuditOptions | None = None) -> RecordedReport:
    """Return the report of a whole transcript, as `Auditor.report`, with how its file ended."""
    auditor, options = Auditor(transcript.facts), options or AuditOptions()
    rounds = transcript.rounds() if isinstance(transcript, Reader) else transcript.rounds
    for observed in rounds:
        auditor.observe(observed)
    ending = Ending(transcript.ended, transcript.incomplete, transcript.torn)
    return auditor.report(options, ending)


# The verdict


def recorded_evidence(
    measured: MeasuredRounds,
    broken: bool,
    missing: str,
    mechanism: Mapping[str, Any],
    claim: Claim | None,
) -> Evidence:
    """Return what speaks for and against a claim about a recorded run.

    Args:
        broken: whether an alarm was raised.
        missing: why rounds may be missing, "" if none are.
        mechanism: as recorded; the last round that names a value counts.
    """
    if claim is not None and claim.unit != measured.unit:
        other = OTHER_UNIT[measured.unit] if claim.unit else UNSTATED_UNIT
        return Evidence(incomparable=other)
    if measured.unmeasured or (release := measured.release) is None:
        return Evidence(unknown=[measured.unmeasured])
    own = mechanism.get("own_noise")
    return Evidence(
        broken=broken,
        unknown=[f"{missing}, and the claim is about all rounds"] if missing else [],
        unsure=[*measured.doubts, *([OWN_NOISE.format(own)] if own else [])],
        in_favour=[] if release.clients else [UNSEEN],
    )
