"""A run under audit: its configuration and transcript, and values that several parts need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from adversaries.arrays import Bools, Floats
from adversaries.statistics import estimators
from adversaries.statistics.estimators import AdvantageEstimate
from fedsim.audits.measurements import membership_audit, vantage_report
from fedsim.audits.measurements.bounds_audit import BoundsAudit
from fedsim.audits.results.measured import CampaignResult
from fedsim.audits.results.theory import PredictionResult
from fedsim.audits.run import guarantee
from fedsim.audits.run.guarantee import Guarantee
from fedsim.configuration import Config
from fedsim.configuration.campaign import TrialsConfig
from fedsim.federation.runs import spending
from fedsim.federation.runs.ledger_row import LedgerRow
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy import identifiability, risks
from fedsim.privacy.identifiability import Bounds, VantageBounds
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust.model import Vantage


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """A run of T trials and k rounds, with the confidence and delta of its report.

    Attributes:
        transcript: arrays by name, as `run_transcript.read` returns them
        rows: rows of the ledger, which state what was released; () for what was planned
    """

    config: Config
    facts: Mapping[str, Any]
    transcript: Arrays
    confidence: float
    delta: float
    rows: Sequence[LedgerRow] = ()

    @property
    def worlds(self) -> Bools:
        """Whether each trial trained on D, [T]."""
        return self.transcript["worlds"]

    @property
    def final(self) -> Floats:
        """Log-odds after the last round, [T]."""
        return self.transcript["log_odds"][:, -1]

    @property
    def trials(self) -> int:
        return len(self.worlds)

    @property
    def rounds(self) -> int:
        return int(self.transcript["log_odds"].shape[1])

    @property
    def noise_multiplier(self) -> float:
        return float(self.facts["noise_multiplier"])

    @property
    def vantage(self) -> Vantage:
        return self.config.federation.vantage

    @cached_property
    def releases(self) -> Releases:
        """Releases of one training."""
        target = self.facts["challenge"]["client"]
        return spending.describe(self.config.scheme, self.noise_multiplier, self.rows, target)

    @cached_property
    def worst_off(self) -> Mapping[Vantage, Releases]:
        scheme, nominal = self.config.scheme, self.noise_multiplier
        return {
            vantage: spending.describe(scheme, nominal, self.rows, vantage=vantage)
            for vantage in Vantage
        }

    @cached_property
    def mechanism(self) -> Mechanism:
        return self.releases.towards(self.vantage)

    @cached_property
    def together(self) -> Guarantee:
        config, rows = self.config, self.rows
        return guarantee.of(
            config.game,
            config.audit,
            self.releases,
            spending.describe_everything(config.scheme, self.noise_multiplier, rows),
            spending.trainings(rows) or self.trials,
            self.delta,
            disclosed=not membership_audit.withheld(self.transcript),
        )

    @cached_property
    def bounds(self) -> Bounds:
        return identifiability.bounds(self.mechanism, self.delta, self.config.privacy.accountant)

    @property
    def baselines(self) -> list[float]:
        """Successes of attacks without the release: the usual ones and the configured one."""
        return sorted({*risks.BASELINES, self.config.privacy.baseline_risk}, reverse=True)

    @cached_property
    def vantage_bounds(self) -> list[VantageBounds]:
        return [
            row if self.config.training.clipping else replace(row, note=guarantee.UNCLIPPED)
            for row in identifiability.vantage_bounds(
                self.releases, self.delta, baselines=self.baselines
            )
        ]

    @cached_property
    def predictions(self) -> Mapping[Vantage, PredictionResult]:
        return vantage_report.predictions(self.config.game, self.config.audit, self.transcript)

    @property
    def prediction(self) -> PredictionResult:
        return self.predictions[self.vantage]

    @cached_property
    def proven(self) -> BoundsAudit:
        config = self.config
        return BoundsAudit(config.game, self.mechanism, self.transcript, self.delta)

    @cached_property
    def advantage(self) -> AdvantageEstimate:
        return estimators.advantage(self.worlds, self.final, self.confidence)


EXTENDED = (
    "The campaign was extended from {first} to {trials} trials. Intervals and bounds are those of "
    "{trials} trials planned in advance. They hold if the results of the first {first} trials did "
    "not decide whether to continue."
)


def measure(run: AuditedRun, ends: tuple[float, float] | None) -> CampaignResult:
    """Return the `campaign` of the report."""
    first, trials = run.config.trials.first, run.trials
    return CampaignResult(
        trials=trials,
        extended_from=first if trials > first > 0 else None,
        halfwidth=None if ends is None else (ends[1] - ends[0]) / 2,
    )


def cautions(trials_config: TrialsConfig, trials: int) -> list[str]:
    first = trials_config.first
    if not 0 < first < trials:
        return []
    return [EXTENDED.format(first=first, trials=trials)]
