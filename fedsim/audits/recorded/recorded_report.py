"""The report of a recorded transcript, as one typed value that report.json holds.

An infinite epsilon is `math.inf` here and "Infinity" in report.json.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound, Interval
from fedsim.audits.judgement.report import TranscriptReport
from fedsim.audits.results.checks import GateRule
from fedsim.audits.steps.step import Sampling
from fedsim.federation.transcripts.records import TranscriptFacts


@dataclass(frozen=True)
class OpenEstimate:
    """A number with the ends of its interval; its point is None where it cannot be estimated."""

    point: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Estimated(OpenEstimate):
    point: float

    def times(self, scale: float) -> "Estimated":
        return Estimated(self.point * scale, self.low * scale, self.high * scale)


@dataclass(frozen=True, kw_only=True)
class ClientPrivacy:
    """The privacy of one client's updates under the measured noise.

    Attributes:
        rounds: number of rounds in which the client took part.
        largest_weight: of its updates in the mean, in (0, 1].
        mu: signal-to-noise ratio of the largest update that the clipping norm allows.
        realised_mu: the same for the updates as they were.
        log_odds: that the client took part, after each round.
        belief: the same as a probability.
    """

    node: int
    rounds: int
    largest_weight: float
    mu: Estimated
    realised_mu: float
    epsilon: Estimated
    unbounded: bool
    rho_beta: float
    rho_alpha: float
    log_odds: list[float]
    belief: list[float]
    round_numbers: list[int]


@dataclass(frozen=True, kw_only=True)
class ProvenPrivacy:
    """What holds at the confidence of an alarm.

    Attributes:
        node: the client whose epsilon is proven; None for a training loop.
        epsilon: lower bound on the largest epsilon.
        epsilon_at_most: upper bound on it.
        rho_alpha_at_most: upper bound on the advantage, under the same noise.
    """

    noise_multiplier: Estimated | None
    node: int | None
    epsilon: float
    unbounded: bool
    epsilon_at_most: float
    rho_alpha_at_most: float
    confidence: float = ALARM_CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class Scores:
    """An attack on one release: scores of clients, and of random directions as bystanders."""

    members: int
    bystanders: int
    true_positives: int
    false_positives: int
    lower_bounds: Mapping[str, EpsilonBound]
    unit: str = "one release"


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What all releases together reveal, towards one observer, and their noise.

    Attributes:
        noise: "none", "hidden" (below rounding), "unclaimed", "less", "more" or "as claimed".
        seen_below: share of the configured noise below which the audit would raise an alarm.
        claimed_std: configured standard deviation of each round; None where unknown.
        left_over_std: standard deviation of the aggregate without all known updates.
        claimed_noise_multiplier: multiplier of equal steps that compose to these.
        epsilon_at_least: lower bound on the largest epsilon, at the report's confidence.
        independent: whether no two rounds have the same noise.
    """

    parameters: int
    clipped: bool
    count_known: bool
    noise: str
    seen_below: float | None
    claimed_std: list[float | None]
    left_over_std: list[float]
    left_over_interval: list[Interval]
    rounding_std: list[float]
    realised_over_claimed: Estimated | None
    claimed_noise_multiplier: float | None
    noise_multiplier: Estimated | None
    towards: str
    round_numbers: list[int]
    clients: list[ClientPrivacy]
    epsilon_at_least: float
    proven: ProvenPrivacy
    empirical: Scores | None
    independent: bool
    assumptions: list[str]

    @property
    def least_protected(self) -> list[ClientPrivacy]:
        """The clients, the one with the largest epsilon first; of equals, by belief."""
        return sorted(
            self.clients,
            key=lambda client: (
                client.unbounded,
                float(f"{client.epsilon.point:.6g}"),  # clients differ by rounding
                client.belief[-1],
                client.log_odds[-1],
            ),
            reverse=True,
        )


@dataclass(frozen=True, kw_only=True)
class UpdateRelease(ReleaseReport):
    """Releases of clients' updates: one client's, or a mean of all."""

    normality_p_value: float | None


@dataclass(frozen=True, kw_only=True)
class MeanRelease(UpdateRelease):
    """Releases of the server, with the weights of its mean and the evidence for them."""

    weighting: str
    weighting_basis: str
    weighting_evidence: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Accountants:
    """Epsilon of a loop's own accountants, one for each engine.

    Attributes:
        last_word: as the last engine states it.
        all_steps: of the steps that all engines counted.
        at_measured_noise: of these steps with the noise as measured.
    """

    engines: int
    steps_of_last: int
    last_word: float
    all_steps: float
    at_measured_noise: float


@dataclass(frozen=True, kw_only=True)
class StepRelease(ReleaseReport):
    """Releases of a training loop's steps, each a noised sum of clipped gradients.

    Attributes:
        unit: unit of privacy, a record or a user of the loop.
        right_at_most: largest share of right answers about one unit, under the measured noise.
        amplified: whether sampling amplifies privacy here.
        unsure: why no check could contradict that batches are Poisson samples; "" if one could.
    """

    unit: str
    steps: int
    epsilon: Estimated
    right_at_most: Estimated
    amplified: bool
    sampling: Sampling | None
    accountants: Accountants | None
    unsure: str


Release = MeanRelease | StepRelease | UpdateRelease


@dataclass(frozen=True, kw_only=True)
class CanaryReport:
    """What a participant's canaries measure through any server.

    Attributes:
        loud: number of rounds whose coin put the canary in.
        mu: signal of the canary, in standard deviations of all that hides it.
        epsilon_proven_all_rounds: lower bound at the confidence of an alarm.
        reason: why there is no estimate; None if there is one.
        belief: in the canary, from earlier rounds alone.
    """

    towards: str
    rounds: int
    loud: int
    mu: OpenEstimate
    reason: str | None
    p_value: float | None
    epsilon_one_round: OpenEstimate
    epsilon_all_rounds: OpenEstimate
    guesses: int
    right_guesses: int
    epsilon_proven_one_round: float
    epsilon_proven_all_rounds: float
    round_numbers: list[int]
    scores: list[float]
    coins: list[bool]
    log_odds: list[float]
    belief: list[float]
    assumptions: list[str]


@dataclass(frozen=True)
class Ending:
    """How the transcript's file ends. `incomplete`: why rounds are missing, "" if none are."""

    ended: bool
    incomplete: str
    torn_bytes: int


@dataclass(frozen=True, kw_only=True)
class RecordedDetails:
    """What the audit of a recorded transcript alone has."""

    facts: TranscriptFacts
    """What the recorder stated about itself and the run."""
    rounds: int
    """Number of recorded rounds, or of steps of a loop."""
    rounds_stated: int | None
    """Rounds of the recorded client's whole run, as the user states them."""
    mechanism: Mapping[str, Any]
    """The mechanism as recorded; the last round that names a value counts."""
    release: Release | None
    """What the releases reveal; None where no noise could be measured."""
    canary: CanaryReport | None
    """What canaries measured; None without canaries."""
    transcript: Ending | None = None
    """How the transcript's file ends; None while the recorded run goes on."""


@dataclass(frozen=True, kw_only=True)
class RecordedReport(TranscriptReport[RecordedDetails]):
    """What one vantage point of a federation or a loop reveals."""

    kind = "transcript audit"
    delta: float

    @property
    def name(self) -> str:
        return self.details.facts.app or "a Flower app"

    @property
    def versions(self) -> Mapping[str, str]:
        return self.details.facts.versions

    def further_checks(self) -> Iterator[GateRule]:
        yield GateRule(
            "details.transcript.torn_bytes > 0",
            "The transcript is whole.",
            "The end of the transcript is missing, as after a crash.",
            "The transcript is still being written.",
        )
        if "server" in self.rows:
            yield GateRule(
                "rows.server.rho_alpha >= 1",
                "The recording shows noise that protects a client's update from the server.",
                "The recording shows no noise that would protect a client's update from the "
                "server.",
            )
