"""The report of a live audit as typed values, which report.json holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedsim.audits.judgement.report import TranscriptReport
from fedsim.audits.live.live_rounds import CanaryFindings
from fedsim.audits.results.checks import TOTAL, GateRule
from fedsim.federation.transcripts.records import TranscriptFacts


@dataclass(frozen=True)
class EverythingReleased:
    """Everything that was released, together."""

    epsilon: float
    """Its epsilon, at the delta of the report."""
    rho_beta: float
    """The belief bound of this epsilon."""


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Beliefs that D was used, of all trials at their end and of the last batch by round."""

    mean: float
    """Mean belief of all trials."""
    log_odds: list[float]
    """Log-odds of each trial."""
    rounds: list[int]
    """Rounds of the last batch of trials."""
    mean_by_round: list[float]
    """Mean belief after each of these rounds."""
    highest_by_round: list[float]
    """Highest belief after each of these rounds."""


@dataclass(frozen=True)
class NoiseLimits:
    """The largest possible noise, from the released numbers alone, valid after every round."""

    at_most: Mapping[str, float]
    """Noise over the claimed noise, of the sums and of each client's messages."""
    confidence: float
    """Confidence of each, in (0, 1)."""


@dataclass(frozen=True, kw_only=True)
class LiveDetails:
    """What the audit of an auditor's node alone has; None where it cannot know."""

    facts: TranscriptFacts
    """What the node stated about itself and the run."""
    sees: str
    """What the auditor sees, in words."""
    trust: str | None
    """Source of the noise: "local", "distributed" or "central"."""
    neighbouring: str | None
    """How D' differs from D: "add-remove" or "replace"."""
    rounds_planned: int | None
    """Rounds of each training, as configured."""
    rounds: int
    """Rounds of the longest observed training."""
    missed: int
    """Number of rounds that the auditor did not see."""
    single: bool
    """Whether the run has a single training."""
    trials: int
    """Number of observed trials with beliefs."""
    released: EverythingReleased | None
    """None where the noise comes from the seed."""
    belief: Beliefs | None
    """None without the records."""
    noise: NoiseLimits | None
    """None where the noise of the sums is not judged."""
    canaries: CanaryFindings | None
    """None without canaries."""


@dataclass(frozen=True, kw_only=True)
class LiveReport(TranscriptReport[LiveDetails]):
    """An auditor's report so far."""

    kind = "live audit"

    @property
    def name(self) -> str:
        return f"Run {self.details.facts.run}"

    @property
    def versions(self) -> Mapping[str, str]:
        return self.details.facts.versions

    @property
    def epsilon(self) -> float | None:
        """Epsilon of everything released, where that is known; else of one training."""
        released = self.details.released
        return super().epsilon if released is None else released.epsilon

    def further_checks(self) -> Iterator[GateRule]:
        yield GateRule("missed > 0", "The auditor saw every round.", "The auditor missed rounds.")
        limit = self.row.limit
        if limit is None:
            return
        if limit.rho_alpha < 1:
            yield GateRule(
                f"advantage.high > {limit.rho_alpha!r}",
                "The measured advantage lies below the limit of theory.",
                "",
                "The audit does not show that the auditor stays below the limit of theory.",
                proof="",
            )
        if np.isfinite(limit.epsilon):
            yield GateRule(
                f"{TOTAL[self.kind]} > {1.001 * limit.epsilon!r}",
                "Everything released has no more ε than one training.",
                "Everything released costs more ε than one training.",
                "The total ε of everything released is not known.",
            )
