"""The figures of a run's page, each with its caption."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from adversaries.statistics.forecast import trial_mu
from fedsim.audits.run.report import RunReport, accounted
from fedsim.reports.document.blocks import Figure
from fedsim.reports.document.wording import number
from fedsim.reports.figures import run_figures, training_figures
from fedsim.reports.sections.every_audit import named
from fedsim.reports.sections.section import (
    confidence_of,
    is_clipped,
    is_sampled,
    is_scored,
    score_caution,
    takes_local_steps,
)

CERTAIN = 700.0
"""Log-odds of a belief that differs from certainty by less than the smallest number."""

Arrays = Mapping[str, Any]
"""A run's transcript: worlds [T], log_odds, sensitivities and noise_stds [T, k], poison_scores."""


def figures(report: RunReport, seen: Arrays) -> Iterator[Figure]:
    """Yield the figures of a run."""
    yield from _of_beliefs(report, seen)
    yield from _of_canaries(report, seen)
    yield from _of_utility(report)
    yield from _of_theory(report)


def _of_beliefs(report: RunReport, seen: Arrays) -> Iterator[Figure]:
    rho_beta = accounted(report).rho_beta
    # Certainty has infinite log-odds; a belief that is 1 to the last bit draws the same.
    odds = np.clip(seen["log_odds"], -CERTAIN, CERTAIN)
    yield Figure(
        "belief",
        run_figures.belief_trajectories(seen["worlds"], odds, rho_beta),
        "Belief, round by round.",
        "The adversary's posterior belief, from even odds, that D was used: single trials, their "
        f"median, and the band of 90% of them. Theory's limit ρβ is {number(rho_beta)}."
        + score_caution(report),
    )
    if np.isfinite(seen["log_odds"][:, -1]).all():
        yield _log_odds(report, seen)
    if report.vantage != "released-model" and not is_scored(report):
        yield _sensitivity(report, seen)
    if report.details.trade_offs:
        yield Figure(
            "trade-offs",
            run_figures.trade_offs(
                {named(n).capitalize(): c for n, c in report.details.trade_offs.items()}
            ),
            "Measured trade-off curve.",
            "Right and wrong answers at every threshold of the belief. With "
            f"{confidence_of(report)}confidence, the pale band holds at all thresholds at once; a "
            "lower edge above the curve of theory would disprove the claimed noise.",
        )


CURVES = {
    "local": "The curves are the normal prediction of the linearised attack (μ = {}), which its "
    "score follows at best roughly.",
    "normal": "Theory predicts the curves (μ = {}); they are not fitted to the trials.",
    "none": "The log-odds of sampled steps have no Gaussian prediction.",
}


def _log_odds(report: RunReport, seen: Arrays) -> Figure:
    predicted, epsilon = report.details.prediction, accounted(report).epsilon
    per_trial = trial_mu(seen["sensitivities"], seen["noise_stds"])
    if predicted.deterministic and predicted.mu is not None:
        per_trial = np.full(len(seen["worlds"]), predicted.mu)
    curves = "local" if takes_local_steps(report) else "normal"
    if is_sampled(report):
        curves = "none"
    drawing = run_figures.log_odds_histogram(
        seen["worlds"],
        seen["log_odds"][:, -1],
        # Subsampled steps mix the two hypotheses, and the Gaussian prediction does not hold.
        None if is_sampled(report) else per_trial,
        epsilon if math.isfinite(epsilon) else None,
    )
    caption = "How far the trials on D and on D′ lie apart after the last round. "
    caption += CURVES[curves].format(number(predicted.mu))
    return Figure("log-odds", drawing, "Final log-odds.", caption)


BOUNDED = {
    "local": "They come from a replay of the linearised attack, which clipping does not limit.",
    "unclipped": "Gradients are not clipped, so nothing bounds it.",
    "clipped": "Clipping allows at most {}.",
}


def _sensitivity(report: RunReport, seen: Arrays) -> Figure:
    measured = report.details.empirical
    bounded = "clipped" if is_clipped(report) else "unclipped"
    bounded = "local" if takes_local_steps(report) else bounded
    return Figure(
        "sensitivity",
        training_figures.sensitivities(seen["sensitivities"], measured.sensitivity_bound),
        "Local sensitivity of the target.",
        "How far the sums on D and on D′ lie apart in a round, over all trials: root mean square "
        f"{number(measured.sensitivity_rms)}, largest {number(measured.sensitivity_max)}. "
        f"{BOUNDED[bounded].format(number(measured.sensitivity_bound))} "
        "Measured on the data; not released.",
    )


def _of_canaries(report: RunReport, seen: Arrays) -> Iterator[Figure]:
    if (run := report.details.one_run) is not None:
        scores = [*map(np.asarray, (run.scores.edges, run.scores.included, run.scores.excluded))]
        yield Figure(
            "one-run",
            run_figures.canary_scores(*scores),
            "Scores of included and left-out canaries.",
            "Scores of the canaries of the first trial. With less overlap, the auditor guesses "
            "more canaries right.",
        )
    if report.details.crafted is not None and seen.get("poison_scores") is not None:
        threshold = report.details.crafted.lower_bounds["released_model"].details.get(
            "threshold", math.inf
        )
        finite = threshold if math.isfinite(threshold) else None
        yield Figure(
            "poison",
            run_figures.poison_scores(seen["worlds"], seen["poison_scores"], finite),
            "Score of the released models.",
            "How far each trial's last model moved in the direction of the crafted target. Half of "
            "the trials chose the threshold; the bound counts the other half.",
        )


def _of_utility(report: RunReport) -> Iterator[Figure]:
    utility = report.details.utility
    losses = utility.loss.mean
    yield Figure(
        "utility",
        training_figures.utility(utility.rounds, utility.accuracy, utility.loss),
        "Utility of the global model.",
        f"Mean and 5–95% band of {utility.trials} trials, on {utility.measured.records} held-out "
        f"records: loss {number(losses[0])} → {number(losses[-1])}.",
    )


def _of_theory(report: RunReport) -> Iterator[Figure]:
    budget, together = report.details.budget, report.details.released
    if any(map(math.isfinite, budget.epsilon_by_round)):
        comparable = budget.stop_at_delta == budget.delta
        alone = together is None or together.trainings == 1
        drawing = run_figures.epsilons(
            range(1, 1 + len(budget.epsilon_by_round)),
            {"ε spent": budget.epsilon_by_round},
            budget.stop_at if comparable and alone else None,
        )
        yield Figure("budget", drawing, "The running budget.", "ε of one training, by round.")
