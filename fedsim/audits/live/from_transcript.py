"""The audit of an auditor's transcript, from its first message or of a whole file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from adversaries.statistics.intervals import significance
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport, of_transcript
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.config import Scalar, to_run_config
from fedsim.federation.runs import run_transcript
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.transcripts.reader import Reader, has_ended
from fedsim.federation.transcripts.records import ObservedRound
from fedsim.game.canary import DIRECTION, Canaries


def check(options: AuditOptions) -> None:
    """Refuse options with which no auditor's transcript can be audited.

    Raises:
        InputError: the confidence is out of range, or the canaries' seeds cannot be read.
    """
    significance(options.level)
    if options.canary_seed_file is not None:
        _planted(options.canary_seed_file)


@dataclass(frozen=True)
class AuditorsTranscript:
    """The audit of an auditor's transcript, with the further files that the auditor has.

    Attributes:
        run: directory with the worlds; None before the run ended.
    """

    path: Path
    options: AuditOptions
    audit: LiveAudit
    run: RunDirectory | None

    def begin(self, observed: ObservedRound) -> None:
        """Observe the first message, which brings the configuration.

        Raises InputError for another run, or one that cannot be audited, before any file is
        written.
        """
        self.audit.observe(observed)
        if self.run is not None:
            _check_same(self.run, to_run_config(self.audit.run))
        watches = self.audit.canaries, self.audit.texts, self.audit.noise
        unaudited = all(watch is None for watch in watches)
        if self.options.no_challenge and unaudited:
            raise InputError(
                "--no-challenge leaves only canaries to audit in a run of several trials; give "
                "their seeds with --canary-seed-file, or leave --no-challenge out"
            )

    def report(self) -> AuditReport:
        """Return the report so far. Raises InputError if the worlds are of another run."""
        worlds: npt.NDArray[np.bool_] | None = None
        if self.run is not None:
            worlds = run_transcript.read(self.run)["worlds"]
        with Reader(self.path) as reader:
            facts = reader.facts
        options, ended = self.options, has_ended(self.path)
        made = live_report.assemble(self.audit, facts, options.level, worlds, options.claim, ended)
        spent = made["released"] or made["bounds"]
        return of_transcript(made, spent and spent["epsilon"], None)


def opened(path: Path, options: AuditOptions) -> AuditorsTranscript:
    """Return the audit of a transcript, before anything of it is read."""
    options.taken("an auditor's transcript")
    check(options)
    run = None if options.worlds is None else RunDirectory.open(options.worlds)
    seeds, root = options.canary_seed_file, options.data_root
    audit = LiveAudit(
        "" if root is None else str(root.expanduser().absolute()),
        planted=[] if seeds is None else _planted(seeds),
        challenge=not options.no_challenge,
        confidence=options.level,
        weights="" if options.weights is None else str(options.weights.expanduser().absolute()),
    )
    return AuditorsTranscript(path, options, audit, run)


def audited(path: Path, options: AuditOptions) -> AuditReport:
    """Return the report of a whole transcript of an auditor's node."""
    auditors = opened(path, options)
    with Reader(path) as reader:
        rounds: Iterable[ObservedRound] = iter(reader.rounds())
        for place, observed in enumerate(rounds):
            auditors.audit.observe(observed) if place else auditors.begin(observed)
    return auditors.report()


def _check_same(run: RunDirectory, recorded: Mapping[str, Scalar]) -> None:
    """Raise InputError unless a run directory is that of the recorded run."""

    def compared(keys: Mapping[str, Scalar]) -> dict[str, Scalar]:
        # Paths and hardware do not change the worlds.
        return {
            key: value
            for key, value in keys.items()
            if key not in ("data.root", "data.download", "trials.batch")
            and (key == "run.seed" or not key.startswith("run."))
        }

    named, observed = compared(to_run_config(run.config)), compared(recorded)
    differing = sorted(key for key in observed if named[key] != observed[key])
    if differing:
        key = differing[0]
        raise InputError(
            f"'{run.path}' is not the recorded run: its {key} is {named[key]!r}, and that of the "
            f"recorded run is {observed[key]!r}; name the recorded run's directory with --worlds"
        )


def _planted(path: Path) -> list[Canaries]:
    """Return the canaries of consenting clients. Raises InputError for a file without any."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        planted = [_of_line(*line.split()) for line in lines if line.strip()]
        if not planted:
            raise ValueError("it names no canaries")
    except (OSError, ValueError, TypeError, InputError) as error:
        raise InputError(
            f"cannot read seeds from '{path}': {error}; the file has a line for each client that "
            "plants canaries, with the canary-seed and canary-count of its node.toml: 1234 100, "
            "followed by text where its canary-kind is text"
        ) from None
    return planted


def _of_line(seed: str, count: str = "1", kind: str = DIRECTION) -> Canaries:
    return Canaries(int(seed), int(count), kind)
