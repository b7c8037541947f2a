"""The audit of an auditor's transcript, with the further files that the auditor has."""

from dataclasses import dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.live.live_report import LiveReport, assemble
from fedsim.federation.transcripts.reader import Reader, has_ended
from fedsim.federation.transcripts.records import ObservedRound
from fedsim.game.canary import Canaries


def check_options(options: AuditOptions) -> None:
    if options.canary_seed_file is not None:
        _planted(options.canary_seed_file)


@dataclass(frozen=True)
class AuditorsTranscript:
    """The audit of an auditor's transcript, with the further files that the auditor has."""

    path: Path
    options: AuditOptions
    audit: LiveAudit

    def begin(self, observed: ObservedRound) -> None:
        """Observe the first message, which brings the configuration."""
        self.audit.observe(observed)
        watches = self.audit.canaries, self.audit.noise
        unaudited = all(watch is None for watch in watches)
        if self.options.no_challenge and unaudited:
            raise InputError(
                "--no-challenge leaves only canaries to audit in a run of several trials; give "
                "their seeds with --canary-seed-file, or leave --no-challenge out"
            )

    def report(self) -> LiveReport:
        with Reader(self.path) as reader:
            facts = reader.facts
        options, ended = self.options, has_ended(self.path)
        return assemble(self.audit, facts, options.level, options.claim, ended)


def opened(path: Path, options: AuditOptions) -> AuditorsTranscript:
    options.taken("an auditor's transcript")
    seeds, root = options.canary_seed_file, options.data_root
    audit = LiveAudit(
        "" if root is None else str(root.expanduser().absolute()),
        planted=[] if seeds is None else _planted(seeds),
        challenge=not options.no_challenge,
        confidence=options.level,
        weights="" if options.weights is None else str(options.weights.expanduser().absolute()),
    )
    return AuditorsTranscript(path, options, audit)


def _planted(path: Path) -> list[Canaries]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        planted = [_of_line(*line.split()) for line in lines if line.strip()]
        if not planted:
            raise ValueError("it names no canaries")
    except (OSError, ValueError, TypeError, InputError) as error:
        raise InputError(
            f"cannot read seeds from '{path}': {error}. Write a line for each client that plants "
            "canaries, with the canary-seed and canary-count of its node.toml, such as 1234 100"
        ) from None
    return planted


def _of_line(seed: str, count: str = "1") -> Canaries:
    return Canaries(int(seed), int(count))
