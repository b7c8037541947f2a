"""A run under audit: its configuration and transcript, and values that several parts need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from adversaries.arrays import Bools, Floats
from adversaries.statistics import estimators, forecast
from adversaries.statistics.estimators import AdvantageEstimate
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from adversaries.statistics.trials import two_sided
from fedsim.audits.measurements import vantage_report
from fedsim.audits.measurements.bounds_audit import BoundsAudit
from fedsim.audits.results.theory import PredictionResult
from fedsim.audits.run import guarantee
from fedsim.audits.run.guarantee import Guarantee
from fedsim.configuration import Config
from fedsim.federation.runs import spending
from fedsim.federation.runs.rows import LedgerRow
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms import vantages
from fedsim.game.observers import at_server
from fedsim.privacy import identifiability, risks
from fedsim.privacy.identifiability import Bounds, VantageBounds
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Vantage


@dataclass(frozen=True, eq=False)
class SeenFrom:
    """What the adversary saw of all trials at one vantage.

    Attributes:
        arrays: "worlds" [T], "log_odds", "sensitivities" and "noise_stds" [T, k].
    """

    vantage: Vantage
    arrays: Arrays
    mechanism: Mechanism
    exact: bool
    prediction: PredictionResult

    @property
    def worlds(self) -> Bools:
        return self.arrays["worlds"]

    @property
    def final(self) -> Floats:
        """Log-odds after the last round, [T]."""
        return self.arrays["log_odds"][:, -1]

    @property
    def both(self) -> bool:
        """Whether both worlds were played, so that there is an advantage."""
        return two_sided(self.worlds)

    @cached_property
    def trial_mu(self) -> Floats:
        """Signal to noise of each trial, [T]."""
        return forecast.trial_mu(self.arrays["sensitivities"], self.arrays["noise_stds"])

    @cached_property
    def surely(self) -> Interval:
        """The advantage's interval at the confidence of an alarm."""
        return estimators.advantage(self.worlds, self.final, ALARM_CONFIDENCE).interval


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """A run of T trials and k rounds, with the confidence and delta of its report.

    Attributes:
        rows: rows of the ledger, which state what was released; () for what was planned
    """

    config: Config
    facts: Mapping[str, Any]
    transcript: Arrays
    confidence: float
    delta: float
    rows: Sequence[LedgerRow] = ()

    @property
    def trials(self) -> int:
        return len(self.transcript["worlds"])

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
    def views(self) -> Mapping[Vantage, SeenFrom]:
        """Return what was seen at each vantage that was attacked."""
        config, found = self.config, {}
        for vantage in vantages.measured(self.vantage, config.audit.vantages):
            arrays = vantage_report.seen_from(self.transcript, vantage, self.vantage)
            if not arrays:
                continue  # a released model that is not attacked has no observations
            prediction = vantage_report.prediction(config.scheme, arrays, vantage)
            exact = at_server.is_exact(config.scheme, config.audit.mode, vantage)
            mechanism = self.releases.towards(vantage)
            found[vantage] = SeenFrom(vantage, arrays, mechanism, exact, prediction)
        return found

    @property
    def view(self) -> SeenFrom:
        """What was seen at the configured vantage."""
        return self.views[self.vantage]

    @cached_property
    def releases(self) -> Releases:
        """Releases of one training."""
        target = self.facts["challenge"]["client"]
        return spending.describe(self.config.scheme, self.noise_multiplier, self.rows, target)

    def worst_off(self, vantage: Vantage) -> Mechanism:
        """Return the mechanism of the client that takes part in most rounds."""
        scheme, nominal = self.config.scheme, self.noise_multiplier
        return spending.describe(scheme, nominal, self.rows, vantage=vantage).towards(vantage)

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
        )

    @cached_property
    def bounds(self) -> Bounds:
        return identifiability.bounds(self.mechanism, self.delta, self.config.privacy.accountant)

    @property
    def baselines(self) -> list[float]:
        """Successes of attacks without the release: the usual ones and the configured one."""
        return sorted({*risks.BASELINES, self.config.privacy.baseline_risk}, reverse=True)

    @property
    def vantage_bounds(self) -> list[VantageBounds]:
        found = identifiability.vantage_bounds(self.releases, self.delta, baselines=self.baselines)
        if self.config.training.clipping:
            return list(found)
        return [replace(row, note=guarantee.UNCLIPPED) for row in found]

    @cached_property
    def proven(self) -> BoundsAudit:
        config = self.config
        return BoundsAudit(config.game, self.mechanism, self.transcript, self.delta)

    @cached_property
    def advantage(self) -> AdvantageEstimate:
        return estimators.advantage(self.view.worlds, self.view.final, self.confidence)
