"""A run under audit: its configuration and transcript, and values that several parts need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.bounds.agreement import EstimateComparison
from adversaries.statistics import estimators, stopping
from adversaries.statistics.design import Design, pair_scores
from adversaries.statistics.estimators import AdvantageEstimate
from fedsim.audits.measurements import membership_audit, vantage_report
from fedsim.audits.measurements.bounds_audit import BoundsAudit
from fedsim.audits.results.measured import CampaignResult, Variance
from fedsim.audits.results.theory import PredictionResult
from fedsim.audits.run import guarantee
from fedsim.audits.run.guarantee import Guarantee
from fedsim.config import Config
from fedsim.config.campaign import TrialsConfig
from fedsim.federation.runs import precision, spending
from fedsim.federation.runs.ledger_row import LedgerRow
from fedsim.federation.runs.precision import halfwidth, interim_analyses
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy import identifiability, risks
from fedsim.privacy.identifiability import Bounds, VantageBounds
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases, of_group
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
        return self.releases.towards(self.vantage)

    @cached_property
    def together(self) -> Guarantee:
        config, rows = self.config, self.rows
        return guarantee.of(
            config.game,
            config.audit,
            self.of_one,
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
    def comparisons(self) -> list[EstimateComparison]:
        return self.proven.comparisons(self.prediction)

    @cached_property
    def proven(self) -> BoundsAudit:
        config = self.config
        return BoundsAudit(config.game, config.audit, self.mechanism, self.transcript, self.delta)

    @cached_property
    def advantage(self) -> AdvantageEstimate:
        return estimators.advantage(self.worlds, self.final, self.confidence, self.played)


COMMON = (
    "Trials 2i and 2i + 1 share initial model, noise and sampling, and are in opposite worlds. The "
    "pair is the independent unit. Numbers that count the trials of one world, or bound each "
    "world's rate on its own, stay valid: delta', the Clopper-Pearson bound, the fit of each "
    "world. The advantage, its interval and membership inference are computed from pairs. Bounds "
    "that need two independent samples, such as the Gaussian one, are left out."
)
STOPPED = (
    "The trials could stop early, by their results, at one of {count} interim analyses planned "
    "in advance. Each analysis has its share of the significance; this one has {share:.3g}. "
    "Every interval and bound is computed at that share of 1 - confidence, and holds with the "
    "stated confidence no matter at which analysis the trials stop. Only the numbers of a "
    "one-run audit use all of 1 - confidence: they come from trial 0, which is the same wherever "
    "the trials stop."
)
EXTENDED = (
    "The campaign was extended from {first} to {trials} trials. Intervals and bounds are those of "
    "{trials} trials planned in advance. They hold if the results of the first {first} trials did "
    "not decide whether to continue. The betting bound, and the interval of the advantage in its "
    "details, hold either way."
)


def measure(run: AuditedRun, ends: tuple[float, float] | None) -> CampaignResult:
    """Return the `campaign` of the report.

    The variance is that of the advantage under common random numbers, over that of independent
    trials with the same rates: as measured, and as predicted where the log-odds are normal.
    """
    config, trials, predicted = run.config.trials, run.trials, run.prediction.advantage
    schedule = interim_analyses(config, run.config.audit.confidence)
    notes = [COMMON] if run.played.common else []
    if config.until_halfwidth > 0:
        notes.append(STOPPED.format(count=len(schedule), share=run.played.share))
    variance = None
    if run.played.common:
        scores = np.where(run.worlds, 1, -1) * np.sign(run.final).astype(np.int64)
        alone = (scores[run.worlds].var() + scores[~run.worlds].var()) / 4
        variance = Variance(
            measured=float((pair_scores(run.worlds, scores) / 2).var() / alone) if alone else None,
            predicted=None if predicted is None else variance_ratio(predicted),
        )
    return CampaignResult(
        trials=trials,
        planned=run.facts["planned_trials"],
        extended_from=config.first if trials > config.first > 0 else None,
        pairing=config.pairing,
        until_halfwidth=config.until_halfwidth or None,
        halfwidth=None if ends is None else (ends[1] - ends[0]) / 2,
        interim_analyses=list(schedule.items()) or None,
        precise=run.facts["stopped_at"] is not None if config.until_halfwidth else None,
        reason=_reason(run),
        variance=variance,
        validity=" ".join(notes) or None,
    )


def variance_ratio(advantage: float) -> float:
    """Return the variance of the estimate with common random numbers over that without them.

    Let Lambda = +-mu^2/2 + mu Z with the same normal Z in both worlds. A trial is won with
    probability p = (1 + Adv)/2. Both trials of a pair are won with probability Adv, and never both
    lost. The mean score of a pair has variance Adv (1 - Adv), and that of independent trials
    2 p (1 - p).
    """
    return 2 * advantage / (1 + advantage) if advantage > 0 else 0.0


def cautions(trials_config: TrialsConfig, trials: int) -> list[str]:
    first = trials_config.first
    if not 0 < first < trials or trials_config.until_halfwidth:
        return []
    return [EXTENDED.format(first=first, trials=trials)]


def imprecise(campaign: CampaignResult) -> list[str]:
    if campaign.precise is not False:
        return []
    return [f"The advantage is not as precise as configured: {campaign.reason}."]


def _reason(run: AuditedRun) -> str:
    config, confidence, trials = run.config.trials, run.config.audit.confidence, run.trials
    planned, stopped_at = run.facts["planned_trials"], run.facts["stopped_at"]
    wanted = config.until_halfwidth
    if not wanted:
        return f"all {planned} trials were run"
    if stopped_at is None and trials >= stopping.enough(wanted, confidence, run.played.common):
        half = halfwidth(config, confidence, run.worlds, run.final)
        return (
            f"after {trials} trials, at the last interim analysis, half the interval's length was "
            f"{half:.4g}, above trials.until-halfwidth = {wanted:g}. The cause is that "
            f"{(run.final == 0).sum()} trials are ties, which count as lost at the interval's low "
            "end and as won at its high end. The interim analyses have spent all of the "
            "significance"
        )
    if stopped_at is None:
        return (
            f"all {planned} trials were run, but the interval's half-width is still above "
            f"trials.until-halfwidth = {wanted:g}"
        )
    return (
        f"after {trials} trials half the interval's length was {stopped_at:.4g}, at most "
        f"trials.until-halfwidth = {wanted:g} at confidence {confidence:g}"
    )
