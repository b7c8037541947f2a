"""What the report of a run has beside its rows: the type of its `details`, and its reader.

An infinite number is "Infinity" in JSON. A number that was not measured, or does not apply, is None
and null. A report.json that does not have these types is damaged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.judgement import report as document
from fedsim.audits.judgement.claim import Verdict
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.results import measured
from fedsim.audits.results.conditions import RUN, kind_of
from fedsim.audits.results.measured import OneRunResult, Residuals
from fedsim.audits.results.numbers import Real
from fedsim.common.tables import Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.privacy.trust import Vantage


@dataclass(frozen=True)
class DataFacts:
    """The data, and which client holds what."""

    name: str
    records: int
    held_out: int
    client_sizes: list[int]
    mean_label_skew: Real | None
    """How far the clients' label mixes are from D's."""


@dataclass(frozen=True)
class ChallengeFacts:
    """The difference between D and D'."""

    record: int | None
    """Position of the target in D; None where it is not one record."""
    replacement: int | str | None
    """What D' has in its place: a position in the pool, or words; None for nothing."""
    client: int
    choice: str
    """How the target was chosen: "max" or "min" of the dissimilarity, or "given"."""
    measure: str
    kind: str
    """"record" for a record of D; otherwise how the target was crafted."""
    label: int | None
    records: int
    """Number of records in which D and D' differ."""


@dataclass(frozen=True)
class RoundingCost:
    """Cost of sending integers, under distributed trust."""

    secure_aggregation: str
    """"simulated", in the clear, or "secagg+"."""
    note: str
    """How the messages were summed, in words that follow "they were"."""
    step: Real
    """Step g of the grid."""
    bits: int
    limit: Real
    sensitivity: Real
    """Sensitivity of a sum of rounded messages, to which the noise is scaled."""
    relative_growth: Real
    """Relative growth of the sensitivity, and of the noise, due to rounding."""
    total_variation: Real
    """Total variation distance of all rounds from the accounted Gaussian mechanism; 0 where that is
    below what a double can hold."""


@dataclass(frozen=True)
class MechanismFacts:
    """The mechanism, as configured and as accounted for."""

    noise_multiplier: Real
    """Nominal: standard deviation of all noise over the sensitivity."""
    effective_noise_multiplier: Real | None
    """Multiplier of the noise that the configured vantage faces; None where rounds differ."""
    clipping: bool
    sensitivity: str
    """Sensitivity that scales the noise: "global", or "local" for the target's own."""
    steps: int
    mu: Real
    """Mu of Gaussian privacy, if no step were sampled."""
    local_steps: int
    sampling_rate: Real
    """Probability that a record takes part in a step; 1 for always."""
    joining_rate: Real
    """Probability that a client joins, where records are the unit and its coin is public."""
    rounding: RoundingCost | None
    """None where messages are not rounded."""
    dp_guarantee: bool
    """Whether everything released has a finite epsilon, by noise that no observer can remove."""
    dp_note: str


@dataclass(frozen=True)
class Dropouts:
    """Rounds with missing clients."""

    tolerated: int
    rounds_with_missing_clients: int
    """Over all batches of trials and attempts; rounds that the seed repeats count once."""
    fewest_shares: int
    """Smallest number of clients whose noise was in a round."""
    effective_noise_multiplier: tuple[Real, Real]
    """Smallest and largest multiplier that the configured vantage faced in a round."""


@dataclass(frozen=True)
class Timing:
    """Wall-clock times, in seconds."""

    federation: Real
    """From the first round of the trials to the last."""
    total: Real


@dataclass(frozen=True, kw_only=True)
class RunDetails:
    """What the report of a run alone has."""

    config: Mapping[str, Scalar]
    """The configuration by dotted keys, without those of the server's machine."""
    job: str
    """"experiment", or "rehearsal" of a training with the same configuration."""
    created: str
    seed: int
    """Seed of batches and worlds, and of the noise unless noise_source says otherwise."""
    runtime: str
    """"in process", "Flower simulation" or "Flower deployment"."""
    device: str
    noise_source: str
    """"seed", or "system" for the operating system's entropy."""
    trust: str
    """Source of the noise: "local", "distributed" or "central"."""
    neighbouring: str
    """How D' differs from D: "add-remove" or "replace"."""
    trials: int
    rounds: int
    clients: int
    colluding: int
    """Number of clients that disclosed their noise to the adversary."""
    data: DataFacts
    parameters: int
    precision: str
    """Floating-point format of forward and backward passes."""
    challenge: ChallengeFacts
    mechanism: MechanismFacts
    released: measured.ReleasedTogether | None
    """None where the noise comes from the seed."""
    bounds: measured.RunBounds
    dropouts: Dropouts | None
    """None where no client may be missing."""
    budget: measured.Budget
    prediction: measured.PredictionResult
    empirical: measured.Empirical
    membership_inference: Mapping[str, measured.MembershipAttack]
    membership_missing: str | None
    """Why configured attacks were not played; None if they were."""
    one_run: OneRunResult | None
    """None where no canaries were planted."""
    utility: measured.Utility
    timing: Timing
    crafted: measured.CraftedResult | None
    """None where the target is one record of D."""
    residuals: Residuals | None
    """None where the adversary formed no residuals."""
    trade_offs: Mapping[str, measured.TradeOff]
    """Measured trade-off curves by vantage; empty for trials of one world."""
    chance_alarms: int
    """Number of checks that an honest run could fail by chance, each rarely."""

    @property
    def unguaranteed(self) -> bool:
        return not self.mechanism.clipping

    @property
    def spent(self) -> float:
        """Epsilon that privacy.stop-at limits: of everything released, where noise is secret."""
        if self.released is not None:
            return self.released.epsilon
        return self.budget.epsilon[self.budget.vantage]


RunReport = AuditReport[RunDetails]

NO_GUARANTEE = "no-guarantee"
"""Rule of the cautions that say why a run has no guarantee."""


def cautions(report: RunReport) -> list[str]:
    """Return what a reader of the numbers should know, without why there is no guarantee."""
    return [each.sentence for each in report.findings if not each.rule]


def accounted(report: RunReport) -> measured.Accounted:
    """Return the bounds at the configured vantage, by the configured accountant."""
    limit = report.row.allowed
    exact = measured.Accounted(limit.epsilon, limit.rho_beta, limit.exceeded)
    return report.details.bounds.accounted or exact


def decode(values: Mapping[str, Any]) -> RunReport:
    """Return the report of the values of report.json. Raises ValueError for other types."""
    report: RunReport = document.decode(values, RunDetails)
    if missing := [name for name, row in report.rows.items() if row.limit is None]:
        raise ValueError(f"its 'rows.{missing[0]}.limit' is None")
    if report.row.attack is None:
        raise ValueError(f"its 'rows.{report.vantage}.attack' is None")
    if report.delta is None or report.unit is None:
        raise ValueError(f"its '{'unit' if report.unit is None else 'delta'}' is None")
    if report.claim is not None or report.verdict is not Verdict.NO_CLAIM:
        raise ValueError(f"its 'verdict' is {report.verdict!r}, and a run has no claim")
    if set(report.rows) != set(Vantage):
        raise ValueError(f"its 'rows' are {', '.join(report.rows)}")
    return report


def read(directory: RunDirectory) -> RunReport:
    """Return report.json of a run.

    Raises InputError if it is damaged, or the report of something else, such as a training.
    """
    values = directory.read_json("report.json")
    if (kind := kind_of(values)) != RUN:
        raise InputError(
            f"'{directory.path}' has the report of a {kind}, which played no trials; name the "
            "directory of an experiment's run"
        )
    with directory.reading("report.json"):
        return decode(values)
