"""Figures of the observations and beliefs of the adversary."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import logit

from adversaries.statistics.forecast import trial_mu
from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Figure
from fedsim.report.document.wording import number
from fedsim.report.figures import belief_figures, bound_figures, training_figures
from fedsim.report.figures.bound_figures import Measured
from fedsim.report.sections import membership
from fedsim.report.sections.facts import (
    advantage_limit,
    confidence_of,
    is_client,
    is_clipped,
    is_halves,
    is_pac,
    is_sampled,
    is_scored,
    score_caution,
    takes_local_steps,
)
from fedsim.report.sections.section import Section, Transcript

CERTAIN = 700.0
"""Log-odds of a belief that differs from certainty by less than the smallest number."""


def _figures(report: Report, seen: Transcript) -> list[Figure]:
    return [
        _belief(report, seen),
        *_log_odds(report, seen),
        _advantage(report),
        *_sensitivity(report, seen),
    ]


def _belief(report: Report, seen: Transcript) -> Figure:
    rho_beta = None if is_pac(report) else report.bounds.rho_beta
    # Certainty has infinite log-odds; a belief that is 1 to the last bit draws the same.
    odds = np.clip(seen.log_odds - logit(report.prior), -CERTAIN, CERTAIN)
    return Figure(
        "belief",
        belief_figures.belief_trajectories(seen.worlds, odds, rho_beta),
        "Belief, round by round.",
        "The adversary's posterior belief, from even odds, that D was used: single trials, "
        "their median, and the band of 90% of them. "
        + (
            "PAC privacy is about averages and sets it no limit."
            if is_pac(report)
            else f"Theory's limit ρβ is {number(rho_beta)}."
        )
        + score_caution(report),
    )


def _log_odds(report: Report, seen: Transcript) -> Iterator[Figure]:
    """Yield the final log-odds; nothing where some are infinite."""
    final, mu = seen.log_odds[:, -1], report.prediction.mu
    if not np.isfinite(final).all():
        return
    per_trial = trial_mu(seen.sensitivities, seen.noise_stds)
    if report.prediction.deterministic and mu is not None:
        per_trial = np.full(len(seen.worlds), mu)
    density, epsilon = report.prediction.density, report.bounds.epsilon
    yield Figure(
        "log-odds",
        belief_figures.log_odds_histogram(
            seen.worlds,
            final,
            # Subsampled steps mix the two hypotheses, and the Gaussian prediction does not hold.
            None if is_sampled(report) or is_halves(report) else per_trial,
            epsilon if math.isfinite(epsilon) else None,
            prior=report.prior,
            density=None
            if density is None
            else {
                "edges": density.edges,
                "world_d": density.world_d,
                "world_d_prime": density.world_d_prime,
            },
        ),
        "Final log-odds.",
        f"How far the two worlds lie apart after the last round. {_curves(report)}",
    )


def _curves(report: Report) -> str:
    """Say what the curves in the histogram of log-odds are."""
    mu = number(report.prediction.mu)
    if is_halves(report):
        return "Random halves have no closed-form prediction."
    if not is_sampled(report):
        if takes_local_steps(report):
            return (
                f"The curves are the normal prediction of the linearised attack (μ = {mu}), which "
                "its score follows at best roughly."
            )
        return f"The curves are theory's, not a fit (μ = {mu})."
    if report.prediction.density is None:
        return "Sampled steps have no Gaussian prediction."
    return (
        "The outlines are theory's, not a fit: the game of sampled steps, which is not Gaussian, "
        "played again with the recorded gradient norms and noise."
    )


def _advantage(report: Report) -> Figure:
    limit = advantage_limit(report)
    own = report.empirical
    attacks = membership.drawn(report.membership_inference, is_client(report))
    shown = {"DI adversary": (own.advantage, own.advantage_interval)} | {
        name: (found.advantage, found.advantage_interval) for name, found in attacks.items()
    }
    measured = [
        Measured(name, value, ends) for name, (value, ends) in shown.items() if value is not None
    ]
    return Figure(
        "advantage",
        bound_figures.advantages(
            measured,
            bound=limit,
            prediction=report.prediction.advantage,
            theorem2=None if is_pac(report) else report.bounds.theorem2_rho_alpha,
            bound_name="PAC bound" if is_pac(report) else "bound ρα",
        ),
        "Advantage of every attack.",
        f"Against the bound {'of PAC privacy,' if is_pac(report) else 'ρα ='} "
        f"{number(limit)}; bars are measured, whiskers "
        f"their {confidence_of(report)}intervals.",
    )


def _sensitivity(report: Report, seen: Transcript) -> Iterator[Figure]:
    """Yield local sensitivities; nothing where the adversary does not see single rounds."""
    if report.vantage == "released-model" or is_scored(report):
        return
    measured = report.empirical
    yield Figure(
        "sensitivity",
        training_figures.sensitivities(seen.sensitivities, measured.sensitivity_bound),
        "Local sensitivity of the challenge.",
        "How much the two worlds really differ in a round, over all trials: root mean square "
        f"{number(measured.sensitivity_rms)}, largest {number(measured.sensitivity_max)}"
        + _clipping_allows(report)
        + " Measured on the data itself: not part of what is released.",
    )


def _clipping_allows(report: Report) -> str:
    """Say how far clipping lets the two worlds differ in a round."""
    if takes_local_steps(report):
        return ". By the replay of the linearised attack, which clipping does not limit."
    if not is_clipped(report):
        return ". Gradients are not clipped, so that nothing bounds it."
    return f", of {number(report.empirical.sensitivity_bound)} that clipping allows."


SECTION = Section("What the adversary saw and believed", figures=_figures)
