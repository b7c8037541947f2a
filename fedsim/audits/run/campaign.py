"""How precise a campaign of trials was, why it ended, and which numbers its design leaves valid."""

import math

import numpy as np
import scipy
from scipy.special import logit, ndtr

from adversaries.statistics import gaussian, stopping
from adversaries.statistics.design import pair_scores
from fedsim.audits.results.measured import Campaign, Variance
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.config.campaign import TrialsConfig
from fedsim.federation.runs.precision import halfwidth, interim_analyses

COMMON = (
    "Trials 2i and 2i + 1 share initial model, noise and sampling, and are in opposite worlds. The "
    "pair is the independent unit. Numbers that count the trials of one world, or bound each "
    "world's rate on its own, stay valid: delta', the Clopper-Pearson bound, the fit of each "
    "world. The advantage, its interval and membership inference are computed from pairs. Bounds "
    "that need two independent samples, such as the Gaussian one, are left out."
)
STOPPED = (
    "The trials could stop early, by their results, at one of {count} interim analyses planned in "
    "advance. Each analysis has its share of the significance; this one has {share:.3g}. Every "
    "interval and bound is computed at that share of 1 - confidence, and holds with the stated "
    "confidence at whichever analysis the trials stop. Only the numbers of a one-run audit use "
    "all of 1 - confidence: they are of trial 0, which is the same wherever the trials stop."
)
EXTENDED = (
    "The campaign was extended from {first} to {trials} trials. Intervals and bounds are those of "
    "{trials} trials planned in advance. They hold if the results of the first {first} trials did "
    "not decide whether to continue. The betting bound, and the interval of the advantage in its "
    "details, hold either way."
)

NEGLIGIBLE = 1e-9
"""Advantage below which no trial is decided."""


def measure(run: AuditedRun, ends: tuple[float, float] | None) -> Campaign:
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
        prior = run.config.audit.prior
        scores = np.where(run.worlds, 1, -1) * np.sign(run.final).astype(np.int64)
        alone = (scores[run.worlds].var() + scores[~run.worlds].var()) / 4
        variance = Variance(
            measured=float((pair_scores(run.worlds, scores) / 2).var() / alone) if alone else None,
            predicted=None if predicted is None else variance_ratio(predicted, prior),
        )
    return Campaign(
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


def variance_ratio(advantage: float, prior: float = 0.5) -> float:
    """Return the variance of the estimate with common random numbers over that without them.

    Let Lambda = l +- mu^2/2 + mu Z with l = logit(prior), and the same normal Z in both worlds. The
    trial on D is won with probability p1 = Phi(mu/2 + l/mu), that on D' with p0 = Phi(mu/2 - l/mu).
    Both are won with probability p1 + p0 - 1 = Adv, and never both lost. The mean score of a pair
    has variance Adv (1 - Adv), and that of independent trials p1 (1 - p1) + p0 (1 - p0). From even
    odds the ratio is (2p - 1)/p; from other odds it is larger. It is 0 for an advantage below
    `NEGLIGIBLE`, where almost no trial depends on the observations.
    """
    if not NEGLIGIBLE < advantage < 1:
        return 1.0 if advantage >= 1 else 0.0
    lead = abs(float(logit(prior)))

    def rates(mu: float) -> tuple[float, float]:  # of winning on D, and of losing on D'
        return float(ndtr(lead / mu + mu / 2)), float(ndtr(lead / mu - mu / 2))

    def excess(mu: float) -> float:
        won, lost = rates(mu)
        return won - lost - advantage

    # From even odds mu is least; lead/mu < mu/2 - 9 wins all but 1e-19 of the trials.
    least, most = gaussian.mu_of_advantage(advantage), 20 + 2 * math.sqrt(lead)
    won, lost = (
        rates(scipy.optimize.brentq(excess, least / 2, most))
        if excess(most) > 0
        else (1.0, 1 - advantage)
    )
    return advantage * (1 - advantage) / (won * (1 - won) + lost * (1 - lost))


def cautions(trials_config: TrialsConfig, trials: int) -> list[str]:
    first = trials_config.first
    if not 0 < first < trials or trials_config.until_halfwidth:
        return []
    return [EXTENDED.format(first=first, trials=trials)]


def imprecise(campaign: Campaign) -> list[str]:
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
            f"all {planned} trials were run before half the interval's length was at most "
            f"trials.until-halfwidth = {wanted:g}"
        )
    return (
        f"after {trials} trials half the interval's length was {stopped_at:.4g}, at most "
        f"trials.until-halfwidth = {wanted:g} at confidence {confidence:g}"
    )
