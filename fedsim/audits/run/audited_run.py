"""A run under audit: its configuration and transcript, and values that several parts need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from adversaries.statistics import estimators
from adversaries.statistics.agreement import Comparison
from adversaries.statistics.design import Design
from adversaries.statistics.estimators import Advantage
from adversaries.statistics.trials import Bools, Floats
from fedsim.audits.measurements import membership_audit, prediction
from fedsim.audits.measurements.bounds_audit import BoundsAudit
from fedsim.audits.results.theory import Prediction
from fedsim.audits.run import cautions, guarantee
from fedsim.audits.run.guarantee import Guarantee
from fedsim.config import Config
from fedsim.federation.runs import precision, spending
from fedsim.federation.runs.ledger_row import Row
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy import identifiability, risks
from fedsim.privacy.group_privacy import of_group
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
    rows: Sequence[Row] = ()

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
        """Number of trainings, T."""
        return len(self.worlds)

    @property
    def rounds(self) -> int:
        """Number of rounds of each training, k."""
        return int(self.transcript["log_odds"].shape[1])

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier, as configured or calibrated."""
        return float(self.facts["noise_multiplier"])

    @property
    def vantage(self) -> Vantage:
        """The configured vantage."""
        return self.config.federation.vantage

    @cached_property
    def played(self) -> Design:
        """Design of the trials. Raises InputError for a number of trials that was not planned."""
        return precision.design(self.config.trials, self.config.audit.confidence, self.trials)

    @cached_property
    def of_one(self) -> Releases:
        """Releases of one training, towards one record."""
        target = self.facts["challenge"]["client"]
        return spending.describe(self.config.scheme, self.noise_multiplier, self.rows, target)

    @cached_property
    def releases(self) -> Releases:
        """Releases of one training, towards all records in which D and D' differ."""
        return of_group(self.of_one, self.config.challenge.copies)

    @cached_property
    def worst_off(self) -> Mapping[Vantage, Releases]:
        """Releases of one training towards the worst-off client, by vantage."""
        config, copies = self.config, self.config.challenge.copies
        return {
            vantage: of_group(
                spending.describe(config.scheme, self.noise_multiplier, self.rows, vantage=vantage),
                copies,
            )
            for vantage in Vantage
        }

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism that the configured vantage sees."""
        return self.releases.towards(self.vantage)

    @cached_property
    def together(self) -> Guarantee:
        """The guarantee for everything that was released."""
        config, rows = self.config, self.rows
        return guarantee.of(
            config,
            self.of_one,
            spending.describe_everything(config.scheme, self.noise_multiplier, rows),
            spending.trainings(rows) or self.trials,
            self.delta,
            disclosed=not membership_audit.withheld(self.transcript),
        )

    @cached_property
    def bounds(self) -> Bounds:
        """What theory allows at the configured vantage."""
        return identifiability.bounds(self.mechanism, self.delta, self.config.privacy.accountant)

    @property
    def baselines(self) -> list[float]:
        """Successes of attacks without the release: the usual ones and the configured one."""
        return sorted({*risks.BASELINES, self.config.privacy.baseline_risk}, reverse=True)

    @cached_property
    def vantage_bounds(self) -> list[VantageBounds]:
        """What theory allows at every vantage."""
        return [
            row if self.config.training.clipping else replace(row, note=cautions.UNCLIPPED)
            for row in identifiability.vantage_bounds(
                self.releases, self.delta, baselines=self.baselines
            )
        ]

    @cached_property
    def predictions(self) -> Mapping[Vantage, Prediction]:
        """What theory predicts, at every vantage that was measured."""
        return prediction.predictions(self.config, self.transcript)

    @property
    def prediction(self) -> Prediction:
        """What theory predicts at the configured vantage."""
        return self.predictions[self.vantage]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Comparisons of methods that trust the claimed noise with methods that do not."""
        return self.proven.comparisons(self.prediction)

    @cached_property
    def proven(self) -> BoundsAudit:
        """What the trials prove of epsilon at the configured vantage."""
        return BoundsAudit(self.config, self.mechanism, self.transcript, self.delta)

    @cached_property
    def advantage(self) -> Advantage:
        """The adversary's advantage at the configured vantage."""
        return estimators.advantage(self.worlds, self.final, self.confidence, self.played)
