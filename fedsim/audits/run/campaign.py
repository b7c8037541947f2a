"""How precise a campaign was, why it ended, and what its design leaves valid."""

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
    "Trials 2i and 2i + 1 share initial model, noise and sampling, and are in opposite worlds: the "
    "pair is the independent unit. Valid as they are: whatever counts the trials of one world, or "
    "bounds each world's rate on its own (delta', the Clopper-Pearson bound, the fit of each "
    "world). Of pairs: the advantage and its interval, membership inference. Left out: bounds from "
    "the difference of two independent samples, such as the Gaussian one."
)
STOPPED = (
    "The trials were to stop by what they showed, at one of {count} interim analyses planned in "
    "advance, each with its share of the significance. At this one it is {share:.3g}: every "
    "interval and bound is computed at that much of 1 - confidence and holds with the stated "
    "confidence whichever the last one is. Those of a one-run audit alone keep all of 1 - "
    "confidence: they are of trial 0, which is the same wherever the trials stop."
)
EXTENDED = (
    "The campaign was extended from {first} to {trials} trials. Intervals and bounds are those of "
    "{trials} trials planned in advance: they hold if what the first {first} showed did not decide "
    "whether to go on. The betting bound, and the interval of the advantage in its details, hold "
    "either way."
)

NEGLIGIBLE = 1e-9
"""An advantage below this is none."""


def measure(run: AuditedRun, ends: tuple[float, float] | None) -> Campaign:
    """Return the `campaign` of the report.

    The variance is that of the advantage's estimate under common random numbers against independent
    ones of the same rates, as measured and as predicted where the log-odds are normal.

    Args:
        ends: of the advantage's interval; None where there is none.
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

    Where Lambda = l +- mu^2/2 + mu Z, l = logit(prior), with the same normal Z in both worlds, that
    on D is won with probability p1 = Phi(mu/2 + l/mu) and that on D' with p0 = Phi(mu/2 - l/mu).
    Both are won with p1 + p0 - 1 = Adv, and never both lost. The mean score of a pair then has
    variance Adv (1 - Adv), that of independent trials p1 (1 - p1) + p0 (1 - p0). From even odds the
    ratio is (2p - 1)/p; from others it is larger. 0 for an advantage below `NEGLIGIBLE`, where
    next to no trial is decided by what is seen, and neither estimate varies.

    Args:
        advantage: Adv, in [0, 1].
        prior: the adversary's, of D.
    """
    if not NEGLIGIBLE < advantage < 1:
        return 1.0 if advantage >= 1 else 0.0
    lead = abs(float(logit(prior)))

    def rates(mu: float) -> tuple[float, float]:  # of being won on D, and of being lost on D'
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
    """Return what a reader must know of a campaign of so many trials that was extended."""
    first = trials_config.first
    if not 0 < first < trials or trials_config.until_halfwidth:
        return []
    return [EXTENDED.format(first=first, trials=trials)]


def imprecise(campaign: Campaign) -> list[str]:
    """Return what a reader must know of a `campaign` that ended before it was precise enough."""
    if campaign.precise is not False:
        return []
    return [f"The advantage is not as precise as asked: {campaign.reason}."]


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
            f"{half:.4g}, above trials.until-halfwidth = "
            f"{wanted:g}, because {(run.final == 0).sum()} trials are ties, which count as lost at "
            "the interval's low end and as won at its high end; the interim analyses have spent "
            "all of the significance"
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
