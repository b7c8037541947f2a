"""The report of a live audit as typed values, which report.json holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsim.audits.judgement.report import TranscriptReport
from fedsim.audits.live.live_rounds import CanaryFindings
from fedsim.federation.transcripts.records import TranscriptFacts
from fedsim.privacy import identifiability

CANARIES = (
    "The signal of one made-up record of norm C in the sums of one training so far. It is "
    "divided by the noise and the other records that hide it. The claimed signal counts the "
    "noise alone, and is an upper bound. The belief in a canary's true state starts at 1/2, and "
    "assumes the claimed noise."
)

NOISE = (
    "The largest possible noise, as a multiple of the claimed noise. It is found from the released "
    "numbers alone, for any records, and is valid after every round."
)


@dataclass(frozen=True, kw_only=True)
class LiveBounds(identifiability.Bounds):
    """Limits of theory. `noise_multiplier`: the least of all rounds."""

    noise_multiplier: float


@dataclass(frozen=True)
class EverythingReleased:
    """Epsilon and rho_beta of everything that was released."""

    epsilon: float
    rho_beta: float


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Beliefs that D was used, of all trials at their end and of the last batch by round."""

    mean: float
    highest: float
    log_odds: list[float]
    rounds: list[int]
    mean_by_round: list[float]
    highest_by_round: list[float]


@dataclass(frozen=True)
class NoiseLimits:
    """Largest noise over the claimed noise, of the sums and of each client's messages."""

    at_most: Mapping[str, float]
    confidence: float
    note: str = NOISE


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """How often the auditor guesses the worlds; None of it is known without the worlds."""

    trials: int
    advantage: float
    advantage_interval: list[float]
    delta_prime: float
    delta_prime_interval: list[float]

    @property
    def ends(self) -> tuple[float, float]:
        low, high = self.advantage_interval
        return low, high


@dataclass(frozen=True, kw_only=True)
class LiveReport(TranscriptReport):
    """An auditor's report so far; None where the auditor cannot know or did not measure.

    Attributes:
        missed: number of rounds that the auditor did not see.
        single: whether the run has a single training.
        trials: number of observed trials.
        contradictions: alarms, in sentences.
        seen_below: share of the claimed noise below which the auditor would raise an alarm.
        epsilon_at_least: lower bound on epsilon at the claim's delta, else the run's, at the
            report's confidence; None where nothing was measured.
        proven: the same at the confidence of an alarm.
    """

    facts: TranscriptFacts
    vantage: str
    trust: str | None
    neighbouring: str | None
    unit: str | None
    rounds_planned: int | None
    rounds: int
    missed: int
    single: bool
    trials: int
    bounds: LiveBounds | None
    released: EverythingReleased | None
    belief: Beliefs | None
    noise: NoiseLimits | None
    empirical: Guesses | None
    canaries: CanaryFindings | None
    contradictions: Sequence[str]
    seen_below: float | None
    epsilon_at_least: float | None
    proven: float | None
    kind: str = field(default="live audit", init=False)

    @property
    def alarms(self) -> int:
        return len(self.contradictions)

    @property
    def epsilon(self) -> float | None:
        spent = self.released or self.bounds
        return None if spent is None else spent.epsilon

    @property
    def proven_epsilon(self) -> float | None:
        return self.proven

    def as_json(self) -> dict[str, Any]:
        written = self._document()
        del written["findings"]
        if written["canaries"] is not None:
            written["canaries"]["note"] = CANARIES
        return written
