"""Sections about beliefs: observations, prediction, precision and residual noise of a run."""

import math
from collections.abc import Iterator

import numpy as np

from adversaries.statistics.forecast import trial_mu
from fedsim.audits.measurements.residual_report import MEANING, ratio_text
from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Fit, Residuals
from fedsim.report.document.blocks import Block, Entries, Figure, Listing, Prose
from fedsim.report.document.wording import DASH, number, plain, span
from fedsim.report.figures import run_figures, training_figures
from fedsim.report.figures.run_figures import MeasuredCurve
from fedsim.report.sections import attacks
from fedsim.report.sections.section import (
    Section,
    SectionTranscript,
    confidence_of,
    is_client,
    is_clipped,
    is_sampled,
    is_scored,
    score_caution,
    standard_errors_apart,
    takes_local_steps,
)

CERTAIN = 700.0
"""Log-odds of a belief that differs from certainty by less than the smallest number."""


def _figures(report: Report, transcript: SectionTranscript) -> list[Figure]:
    rho_beta = report.accounted.rho_beta
    # Certainty has infinite log-odds; a belief that is 1 to the last bit draws the same.
    odds = np.clip(transcript.log_odds, -CERTAIN, CERTAIN)
    return [
        Figure(
            "belief",
            run_figures.belief_trajectories(transcript.worlds, odds, rho_beta),
            "Belief, round by round.",
            "The adversary's posterior belief, from even odds, that D was used: single trials, "
            "their median, and the band of 90% of them. "
            f"Theory's limit ρβ is {number(rho_beta)}.{score_caution(report)}",
        )
    ]


def _observed(report: Report, transcript: SectionTranscript) -> list[Figure]:
    own, limit = report.attack, report.here.limit.rho_alpha
    played = attacks.drawn(report.membership_inference, is_client(report))
    advantages = {"this adversary": (own.advantage, own.interval)} | {
        name: (attack.advantage, attack.advantage_interval) for name, attack in played.items()
    }
    measured = [
        MeasuredCurve(name, value, ends)
        for name, (value, ends) in advantages.items()
        if value is not None
    ]
    return [
        *_log_odds(report, transcript),
        Figure(
            "advantage",
            run_figures.advantages(
                measured,
                bound=limit,
                prediction=report.prediction.advantage,
                theorem2=report.bounds.theorem2_rho_alpha,
            ),
            "Advantage of every attack.",
            f"Measured, with {confidence_of(report)}intervals. The limit ρα is {number(limit)}.",
        ),
        *_sensitivity(report, transcript),
    ]


def _log_odds(report: Report, transcript: SectionTranscript) -> Iterator[Figure]:
    final, mu = transcript.log_odds[:, -1], report.prediction.mu
    if not np.isfinite(final).all():
        return
    per_trial = trial_mu(transcript.sensitivities, transcript.noise_stds)
    if report.prediction.deterministic and mu is not None:
        per_trial = np.full(len(transcript.worlds), mu)
    epsilon = report.accounted.epsilon
    yield Figure(
        "log-odds",
        run_figures.log_odds_histogram(
            transcript.worlds,
            final,
            # Subsampled steps mix the two hypotheses, and the Gaussian prediction does not hold.
            None if is_sampled(report) else per_trial,
            epsilon if math.isfinite(epsilon) else None,
            density=report.prediction.density,
        ),
        "Final log-odds.",
        f"How far the trials on D and on D′ lie apart after the last round. {_curves(report)}",
    )


def _curves(report: Report) -> str:
    mu = number(report.prediction.mu)
    if not is_sampled(report):
        if takes_local_steps(report):
            return (
                f"The curves are the normal prediction of the linearised attack (μ = {mu}), which "
                "its score follows at best roughly."
            )
        return f"Theory predicts the curves (μ = {mu}); they are not fitted to the trials."
    if report.prediction.density is None:
        return "Sampled steps have no Gaussian prediction."
    return (
        "Theory predicts the outlines; they are not fitted to the trials. They show the game of "
        "sampled steps, which is not Gaussian, played again with the recorded gradient norms and "
        "noise."
    )


def _sensitivity(report: Report, transcript: SectionTranscript) -> Iterator[Figure]:
    if report.vantage == "released-model" or is_scored(report):
        return
    measured = report.empirical
    yield Figure(
        "sensitivity",
        training_figures.sensitivities(transcript.sensitivities, measured.sensitivity_bound),
        "Local sensitivity of the target.",
        "How far the sums on D and on D′ lie apart in a round, over all trials: root mean square "
        f"{number(measured.sensitivity_rms)}, largest {number(measured.sensitivity_max)}"
        + _clipping_allows(report)
        + " Measured on the data; not released.",
    )


def _clipping_allows(report: Report) -> str:
    if takes_local_steps(report):
        return ". They come from a replay of the linearised attack, which clipping does not limit."
    if not is_clipped(report):
        return ". Gradients are not clipped, so nothing bounds it."
    return f"; clipping allows at most {number(report.empirical.sensitivity_bound)}."


SECTION = Section("What the adversary believed", figures=_figures)
OBSERVED = Section("Log-odds, advantages and sensitivity", figures=_observed, specialist=True)


def _entries(report: Report) -> Entries:
    predicted, measured = report.prediction, report.empirical
    kind, how = _words_of(report)
    error = predicted.standard_error
    return [
        ("μ", f"{number(predicted.mu)} ({kind})"),
        (
            "Advantage predicted",
            f"{number(predicted.advantage)}{f' ± {number(error)}' if error else ''}{how}",
        ),
        (
            "Advantage measured",
            f"{number(report.attack.advantage)} ± "
            f"{number(report.attack.standard_error)} {standard_errors_apart(report)}",
        ),
        (
            "Trials won, lost, tied",
            ", ".join(map(plain, (measured.wins, measured.losses, measured.ties))),
        ),
        ("Fit on D", _fit(predicted.fit.world_d)),
        ("Fit on D′", _fit(predicted.fit.world_d_prime)),
    ]


def _words_of(report: Report) -> tuple[str, str]:
    alike, method, how = report.prediction.deterministic, report.prediction.method, ""
    if method == "simulation":
        kind = "the signal-to-noise ratio if no step were sampled; Λ is a mixture"
        how = " (by simulation of the game with these gradient norms, noise and sampling rate; "
        how += "equal in every trial)" if alike else "approximate, since trials differ)"
    elif alike:
        kind = "the same in every trial: Λ ~ N(±μ²/2, μ²)"
    else:
        kind = "differs between trials: Λ is a mixture over them, and μ a summary"
    if takes_local_steps(report):
        kind = "of the linearised attack, whose score follows N(±μ²/2, μ²) only roughly"
    if method == "none":
        kind = "no closed form: the log-odds are the score of an attack"
    return kind, how


def _fit(fit: Fit | None) -> str:
    if fit is None:
        return DASH
    return f"Kolmogorov–Smirnov distance {number(fit.statistic)}, p = {number(fit.p_value)}"


PREDICTION = Section(
    "Does the run agree with its own prediction?",
    lambda report: [Listing(_entries(report))],
    specialist=True,
)


def _residual_entries(residuals: Residuals) -> Entries:
    noise = residuals.noise
    lines = [
        (
            "Noise, divided by the claimed noise",
            f"{ratio_text(noise.ratio)}, interval {span(noise.interval, ratio_text)}; "
            f"{_p(noise.p_value)}, from {noise.degrees_of_freedom} numbers",
        )
    ]
    rounds = [step for step in noise.by_step if step is not None]
    if len(rounds) > 1:
        lines.append(
            (
                "Noise of single rounds, divided by the claimed noise",
                span((min(rounds), max(rounds)), ratio_text),
            )
        )
    if repeats := residuals.repeats:
        lines.append(
            (
                "Noise of a round, compared with the round before",
                f"cosine {number(repeats.cosine)} on average; {_p(repeats.p_value)}",
            )
        )
    if scale := residuals.scale:
        lines.append(
            (
                "Sum, divided by the sum of clipped gradients",
                f"{number(scale.factor)}; {_p(scale.p_value)}",
            )
        )
    if shape := residuals.shape:
        lines.append(
            (
                "Mean size of a coordinate, divided by its root mean square",
                f"{number(shape.ratio)}; {number(shape.normal)} if normal, {_p(shape.p_value)}",
            )
        )
    if sampling := residuals.sampling:
        lines.append(
            (
                "Variance of batch sizes, divided by the binomial variance",
                f"{number(sampling.dispersion)}, from {sampling.batches} batches with a share of "
                f"{number(sampling.rate)} of the records; {_p(sampling.p_value)}",
            )
        )
    return lines


def _p(value: float) -> str:
    return f"p = {number(value)}"


def _residuals(report: Report) -> list[Block]:
    residuals = report.residuals
    return [] if residuals is None else [Prose(MEANING), Listing(_residual_entries(residuals))]


RESIDUALS = Section("Is the residual pure noise?", _residuals, specialist=True)
