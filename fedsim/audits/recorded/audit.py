"""The report of a recorded transcript: what its vantage point reveals about each client.

`Auditor` reads rounds one by one, keeps a few numbers of each, and can report at any time. It reads
a file and a running federation in the same way.

- A *server's* transcript has every update. The aggregate less the updates is noise. Its size is
  measured, and so is what the aggregate reveals about one client to an observer who knows the rest.
- A *participant's* transcript with a local mechanism has its update before and after the noise. The
  same is measured, towards the server.
- A participant's transcript with *canaries* measures the privacy of one update through any server,
  by a coin that only this client knows.
- A training *loop*'s transcript has the sums to which DP-SGD added its noise. The size of the noise
  is measured, and batches, divisor and accountant are checked.

In a federation the unit of privacy is a client's whole update of a round. In a neighbouring run the
mean has no change in place of this update, with the same weights and number of clients.
"""

import math
from dataclasses import asdict
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.judgement.judge import Finding, alarms
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport, of_transcript
from fedsim.audits.recorded import client_noise, transcript_claim
from fedsim.audits.recorded.client_noise import Epsilon
from fedsim.audits.recorded.loop_steps import LoopSteps
from fedsim.audits.recorded.participant_rounds import ParticipantRounds
from fedsim.audits.recorded.recorded_noise import NUMBERS, unbelievable
from fedsim.audits.recorded.server_rounds import ServerRounds
from fedsim.audits.recorded.transcript_claim import Recorded
from fedsim.audits.recorded.transcript_findings import Asked, Notes
from fedsim.audits.recorded.transcript_release import worst
from fedsim.federation.transcripts.reader import Reader
from fedsim.federation.transcripts.records import LOOP, Facts, ObservedRound, Transcript

REPEATED = "rounds were repeated: the recorded run began again, and every attempt counts"

UNBELIEVABLE = "the recorded {} is neither 0 nor from 1e-30 to 1e30; it counts as not recorded"


DEFAULTS = AuditOptions()


class Auditor:
    """Reads a transcript round by round. Not thread-safe."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.rounds = 0
        self._last_round = -1
        self._mechanism: dict[str, Any] = {}
        self._reported: dict[int, list[Epsilon]] = {}
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
        for node, epsilon in client_noise.epsilons_of(observed, self.facts.node).items():
            self._reported.setdefault(node, []).append(epsilon)
        if observed.model or observed.replies:
            self.rounds += 1
            # A loop's recorder counts the steps of each engine from 1.
            if observed.round <= self._last_round and self.facts.vantage != LOOP:
                self._notes.add("caution", REPEATED, observed.round)
            self._last_round = observed.round
        self._vantage.observe(observed)

    def report(self, options: AuditOptions, missing: str = "the run goes on") -> dict[str, Any]:
        """Return the report so far, with infinity as `math.inf`.

        missing: why rounds may be missing, which a claim also covers.
        """
        check(options)
        delta, confidence, claim = options.stated_at, options.level, options.claim
        findings = self._notes.findings()
        measured = self._vantage.measured(Asked(self._mechanism, delta, confidence, findings))
        reported = client_noise.composed(self._reported.values())
        if reported is not None:
            short = claim is not None and reported.total > claim.epsilon
            findings.append(Finding("caution" if short else "note", "", str(reported)))
        judged = None
        if claim is not None:
            evidence = Recorded(self._mechanism, measured, reported, missing, alarms(findings) > 0)
            judged = transcript_claim.judge(claim, evidence, findings)
        return {
            "kind": "transcript audit",
            "facts": asdict(self.facts),
            "rounds": self.rounds,
            "delta": delta,
            "confidence": confidence,
            "claim": judged,
            "reported": None if reported is None else asdict(reported),
            "mechanism": self._mechanism,
            "release": measured.release,
            "canary": measured.canary,
            "filtered": measured.filtered,
            "findings": [each.as_json() for each in findings],
            "alarms": alarms(findings),
        }


def audit(transcript: Transcript | Reader, options: AuditOptions = DEFAULTS) -> dict[str, Any]:
    """Return the report of a whole transcript, as `Auditor.report`, with how its file ended.

    transcript: in memory, or a `Reader`, which is read to its end one round at a time.
    """
    check(options)
    auditor = Auditor(transcript.facts)
    rounds = transcript.rounds() if isinstance(transcript, Reader) else transcript.rounds
    for observed in rounds:
        auditor.observe(observed)
    report = auditor.report(options, _missing(transcript))
    report["transcript"] = {
        "ended": transcript.ended,
        "incomplete": transcript.incomplete,
        "torn_bytes": transcript.torn,
    }
    if transcript.incomplete:
        text = f"the transcript is incomplete: {transcript.incomplete}"
        report["findings"].insert(0, Finding("caution", "", text).as_json())
    if transcript.torn:
        text = "the recorder stopped during the last round, which was dropped"
        report["findings"].append(Finding("note", "", text).as_json())
    return report


def concluded(report: dict[str, Any]) -> AuditReport:
    """Return the conclusion of a report, as for every audit."""
    release, canary = report["release"], report["canary"]
    if release is not None:
        # A training loop has one unit of privacy, a federation one for each client.
        exposed = release if "steps" in release else worst(release)
        return of_transcript(report, exposed["epsilon"]["point"], release["proven"]["epsilon"])
    return of_transcript(report, None, canary and canary["proven"]["epsilon_all_rounds"])


def _missing(transcript: Transcript | Reader) -> str:
    """Return why rounds may be missing from a transcript that was read to its end; "" if not."""
    if transcript.incomplete:
        return f"the transcript is incomplete ({transcript.incomplete})"
    # A client does not receive the end of a run.
    if transcript.torn or (transcript.facts.vantage in ("server", LOOP) and not transcript.ended):
        return "the transcript does not state that the run has ended"
    return ""


def check(options: AuditOptions) -> None:
    """Refuse options that no report can use, before a transcript is read. Raises InputError."""
    for name, value in (("delta", options.stated_at), ("confidence", options.level)):
        if not 0 < value < 1:
            raise InputError(f"{name} is {value}; it must lie between 0 and 1")
