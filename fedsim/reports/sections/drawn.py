"""The figures of a run's page, each with its caption."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from adversaries.statistics.forecast import trial_mu
from fedsim.audits.run.report import RunReport, accounted
from fedsim.reports.document.blocks import Figure
from fedsim.reports.document.wording import number
from fedsim.reports.figures import drawings
from fedsim.reports.sections import section as facts
from fedsim.reports.sections.every_audit import named

CERTAIN = 700.0
"""Log-odds of a belief that differs from certainty by less than the smallest number."""

BELIEF = (
    "The adversary's posterior belief, from even odds, that D was used: single trials, their "
    "median, and the band of 90% of them. Theory's limit ρβ is {}.{}"
)
LOG_ODDS = "How far the trials on D and on D′ lie apart after the last round. {}"
CURVES = {
    "local": "The curves are the normal prediction of the linearised attack (μ = {}), which its "
    "score follows at best roughly.",
    "normal": "Theory predicts the curves (μ = {}); they are not fitted to the trials.",
    "none": "The log-odds of sampled steps have no Gaussian prediction.",
}
SENSITIVITY = (
    "How far the sums on D and on D′ lie apart in a round, over all trials: root mean square {}, "
    "largest {}. {} Measured on the data; not released."
)
BOUNDED = {
    "local": "They come from a replay of the linearised attack, which clipping does not limit.",
    "unclipped": "Gradients are not clipped, so nothing bounds it.",
    "clipped": "Clipping allows at most {}.",
}
TRADE_OFFS = (
    "Right and wrong answers at every threshold of the belief. With {}confidence, the pale band "
    "holds at all thresholds at once; a lower edge above the curve of theory would disprove the "
    "claimed noise."
)
CANARIES = (
    "Scores of the canaries of the first trial. With less overlap, the auditor guesses more "
    "canaries right."
)
POISON = (
    "How far each trial's last model moved in the direction of the crafted target. Half of the "
    "trials chose the threshold; the bound counts the other half."
)
UTILITY = "Mean and 5–95% band of {} trials, on {} held-out records: loss {} → {}."


def figures(report: RunReport, seen: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield the figures of a run.

    seen: its transcript: worlds [T], log_odds, sensitivities and noise_stds [T, k], poison_scores.
    """
    yield from _of_beliefs(report, seen)
    yield from _of_canaries(report, seen)
    found = report.details.utility
    losses, records = found.loss.mean, found.measured.records
    caption = UTILITY.format(found.trials, records, number(losses[0]), number(losses[-1]))
    drawing = drawings.utility(found.rounds, found.accuracy, found.loss)
    yield Figure("utility", drawing, "Utility of the global model.", caption)
    budget, together = report.details.budget, report.details.released
    if any(map(math.isfinite, budget.epsilon_by_round)):
        alone = together is None or together.trainings == 1
        comparable = alone and budget.stop_at_delta == budget.delta
        spent = drawings.epsilons(budget.epsilon_by_round, budget.stop_at if comparable else None)
        yield Figure("budget", spent, "The running budget.", "ε of one training, by round.")


def _of_beliefs(report: RunReport, seen: Mapping[str, Any]) -> Iterator[Figure]:
    rho_beta = accounted(report).rho_beta
    # Certainty has infinite log-odds; a belief that is 1 to the last bit draws the same.
    odds = np.clip(seen["log_odds"], -CERTAIN, CERTAIN)
    drawing = drawings.beliefs(seen["worlds"], odds, rho_beta)
    caption = BELIEF.format(number(rho_beta), facts.score_caution(report))
    yield Figure("belief", drawing, "Belief, round by round.", caption)
    if np.isfinite(seen["log_odds"][:, -1]).all():
        yield _log_odds(report, seen)
    if report.vantage != "released-model" and not facts.is_scored(report):
        measured = report.details.empirical
        bounded = "clipped" if facts.is_clipped(report) else "unclipped"
        bounded = "local" if facts.takes_local_steps(report) else bounded
        drawing = drawings.sensitivities(seen["sensitivities"], measured.sensitivity_bound)
        numbers = number(measured.sensitivity_rms), number(measured.sensitivity_max)
        bound = BOUNDED[bounded].format(number(measured.sensitivity_bound))
        caption = SENSITIVITY.format(*numbers, bound)
        yield Figure("sensitivity", drawing, "Local sensitivity of the target.", caption)
    if curves := report.details.trade_offs:
        drawing = drawings.trade_offs({named(n).capitalize(): c for n, c in curves.items()})
        caption = TRADE_OFFS.format(facts.confidence_of(report))
        yield Figure("trade-offs", drawing, "Measured trade-off curve.", caption)


def _log_odds(report: RunReport, seen: Mapping[str, Any]) -> Figure:
    predicted, epsilon = report.details.prediction, accounted(report).epsilon
    per_trial: Floats | None = trial_mu(seen["sensitivities"], seen["noise_stds"])
    if predicted.deterministic and predicted.mu is not None:
        per_trial = np.full(len(seen["worlds"]), predicted.mu)
    curves = "local" if facts.takes_local_steps(report) else "normal"
    if facts.is_sampled(report):
        # Subsampled steps mix the two hypotheses, and the Gaussian prediction does not hold.
        curves, per_trial = "none", None
    drawing = drawings.log_odds_histogram(
        seen["worlds"],
        seen["log_odds"][:, -1],
        per_trial,
        epsilon if math.isfinite(epsilon) else None,
    )
    caption = LOG_ODDS.format(CURVES[curves].format(number(predicted.mu)))
    return Figure("log-odds", drawing, "Final log-odds.", caption)


def _of_canaries(report: RunReport, seen: Mapping[str, Any]) -> Iterator[Figure]:
    if (run := report.details.one_run) is not None:
        scores = [*map(np.asarray, (run.scores.edges, run.scores.included, run.scores.excluded))]
        title = "Scores of included and left-out canaries."
        yield Figure("one-run", drawings.canary_scores(*scores), title, CANARIES)
    if report.details.crafted is not None and seen.get("poison_scores") is not None:
        bound = report.details.crafted.lower_bounds["released_model"]
        threshold = bound.details.get("threshold", math.inf)
        finite = threshold if math.isfinite(threshold) else None
        drawing = drawings.poison_scores(seen["worlds"], seen["poison_scores"], finite)
        yield Figure("poison", drawing, "Score of the released models.", POISON)
