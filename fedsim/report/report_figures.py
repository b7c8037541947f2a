"""Which figures a report shows, with their titles and captions."""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from scipy.special import logit

from adversaries.attacks.membership_attacks import ATTACKS as LOSS_ATTACKS
from adversaries.statistics.forecast import trial_mu
from fedsim.figures import belief_figures, bound_figures, canvas, training_figures
from fedsim.figures.bound_figures import Measured, VantagePoint
from fedsim.figures.canvas import Bools, Floats
from fedsim.report import bounds_report, one_run_section
from fedsim.report.guarantee_sections import budget
from fedsim.report.report_sections import SHORT, attack_names, score_caution
from fedsim.report.report_values import (
    Report,
    advantage_limit,
    at,
    confidence_of,
    first_to_last,
    interval_at,
    is_clipped,
    is_halves,
    is_pac,
    is_sampled,
    local_steps,
    number,
    percent,
    plain,
    rho_beta_of,
)

POPULATION = "yeom"
"""The attack on all records, in a report."""

CERTAIN = 700.0
"""Log-odds of a belief that differs from certainty by less than the smallest number."""

LARGEST_SVG = 500_000
"""Characters above which a figure is a PNG instead."""


@dataclass(frozen=True)
class Transcript:
    """What the adversary saw: worlds [T]; log_odds, sensitivities and noise_stds [T, k].

    poison_scores [T]: of the released models, where the challenge was made.
    """

    worlds: Bools
    log_odds: Floats
    sensitivities: Floats
    noise_stds: Floats
    poison_scores: Floats | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> "Transcript":
        """Take the arrays of a run, as `run_transcript.read` has checked them."""
        return cls(
            arrays["worlds"],
            arrays["log_odds"],
            arrays["sensitivities"],
            arrays["noise_stds"],
            arrays.get("poison_scores"),
        )


def drawn_figures(report: Report, seen: Transcript) -> dict[str, tuple[Figure, str, str]]:
    """Return name -> (figure, title, caption)."""
    rho_beta = None if is_pac(report) else rho_beta_of(report)
    # Subsampled steps mix the two hypotheses, and the Gaussian prediction does not hold.
    subsampled, density = is_sampled(report), _density(report)
    mu, prior = at(report, "prediction.mu"), at(report, "prior")
    per_trial = trial_mu(seen.sensitivities, seen.noise_stds)
    if at(report, "prediction.deterministic") and mu is not None:
        per_trial = np.full(len(seen.worlds), float(mu))
    rms, largest = (number(at(report, f"empirical.sensitivity_{n}")) for n in ("rms", "max"))
    bound = at(report, "empirical.sensitivity_bound")
    # Certainty has infinite log-odds; a belief that is 1 to the last bit draws the same.
    odds = np.clip(seen.log_odds - logit(prior), -CERTAIN, CERTAIN)
    drawn = {
        "belief": (
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
        ),
        "log-odds": (
            belief_figures.log_odds_histogram(
                seen.worlds,
                seen.log_odds[:, -1],
                None if subsampled or is_halves(report) else per_trial,
                at(report, "bounds.epsilon"),
                prior=prior,
                density=density if subsampled else None,
            ),
            "Final log-odds.",
            f"How far the two worlds lie apart after the last round. {_curves(report)}",
        ),
        "advantage": (
            bound_figures.advantages(
                _measured(report),
                bound=advantage_limit(report),
                prediction=at(report, "prediction.advantage"),
                theorem2=None if is_pac(report) else at(report, "bounds.theorem2_rho_alpha"),
                bound_name="PAC bound" if is_pac(report) else "bound ρα",
            ),
            "Advantage of every attack.",
            f"Against the bound {'of PAC privacy,' if is_pac(report) else 'ρα ='} "
            f"{number(advantage_limit(report))}; bars are measured, whiskers "
            f"their {confidence_of(report)}intervals.",
        ),
        "sensitivity": (
            training_figures.sensitivities(seen.sensitivities, bound),
            "Local sensitivity of the challenge.",
            f"How much the two worlds really differ in a round, over all trials: root mean square "
            f"{rms}, largest {largest}"
            + _clipping_allows(report, bound)
            + " Measured on the data itself: not part of what is released.",
        ),
    }
    if not np.isfinite(seen.log_odds[:, -1]).all():
        del drawn["log-odds"]
    if at(report, "vantage") == "released-model":
        del drawn["sensitivity"]  # of single rounds, which this adversary does not see
    if points := _vantage_points(report):
        drawn["to-whom"] = (
            bound_figures.vantages(points),
            "To whom the person is identifiable.",
            "The advantage of an adversary at each vantage: measured, with the "
            f"{confidence_of(report)}interval; predicted for this run; and the most that the noise "
            "allows (the grey bar). 0 is a coin, 1 is certainty.",
        )
    if seen.poison_scores is not None:
        bound = "crafted.lower_bounds.released_model"
        drawn["poison"] = (
            belief_figures.poison_scores(
                seen.worlds, seen.poison_scores, at(report, f"{bound}.details").get("threshold")
            ),
            "What the released model gives away.",
            "How far each trial's last model went the way that the challenge was made to push it. "
            "The threshold was chosen by half of the trials; the bound counts the others.",
        )
    by_round = at(report, "bayesian.by_round")
    if by_round and all(isinstance(series, list) for series in by_round.values()):
        share = f"{100 * (at(report, 'bayesian.percentile') or 0):g}%"
        drawn["bayesian"] = (
            bound_figures.epsilons(
                by_round["rounds"],
                {
                    "Bayesian": by_round["epsilon"],
                    f"Bayesian, each of {share}": by_round["epsilon_at_percentile"],
                    "DP, everybody": by_round["dp_epsilon"],
                },
            ),
            "Privacy spent, round by round.",
            f"ε at δ = {plain(at(report, 'bayesian.delta'))}: the Bayesian accountant's, as the "
            f"mean of {plain(at(report, 'bayesian.trials'))} trials, beside that of DP"
            + ("." if is_clipped(report) else ", which is infinite without clipping."),
        )
    # Where every value is infinite there is nothing to draw; the page says it in a sentence.
    if any(value is not None and math.isfinite(value) for value in budget_by_round(report)):
        drawn["budget"] = (
            bound_figures.epsilons(
                range(1, 1 + len(budget_by_round(report))),
                {"ε spent": budget_by_round(report)},
                at(report, "budget.stop_at")
                if at(report, "budget.stop_at_delta") == at(report, "budget.delta")
                and (at(report, "released.trainings") or 1) == 1
                else None,
            ),
            "The running budget.",
            budget(report),
        )
    if one_run := one_run_section.drawn(report):
        drawn["one-run"] = one_run
    limit = at(report, "bounds.tight_epsilon")
    proven = bounds_report.points(report)
    if proven and all(math.isfinite(epsilon) for _, epsilon, _, _ in proven):
        drawn["lower-bounds"] = (
            bound_figures.lower_bounds(proven, limit, confidence_of(report)),
            "Lower bounds on ε.",
            "What each estimator proves, beside theory's ε. The one that leads was chosen by a "
            "rule fixed in advance; the largest of several would claim too much.",
        )
    if profile := at(report, "empirical.privacy_profile"):
        drawn["privacy-profile"] = (
            bound_figures.privacy_profile(
                profile["epsilon"], profile["theory"], profile["directions"]
            ),
            "Privacy profile.",
            "δ as a function of ε, estimated from log-odds as if the noise is as claimed, and by "
            f"theory. Each point of the {confidence_of(report)}bands holds on its own.",
        )
    utility = at(report, "utility")
    if utility and at(utility, "accuracy.mean") and at(utility, "loss.mean"):
        accuracy = first_to_last(report, "accuracy", percent)
        drawn["utility"] = (
            training_figures.utility(utility["rounds"], utility["accuracy"], utility["loss"]),
            "Utility of the global model.",
            f"Mean and 5–95% band of {plain(utility.get('trials'))} trials on "
            f"{plain(utility.get('records'))} records: accuracy {accuracy}, loss "
            f"{first_to_last(report, 'loss', number)}.",
        )
    return drawn


def budget_by_round(report: Report) -> Sequence[float | None]:
    """Return what was spent after each round, None where infinite."""
    spent: Sequence[float | None] = at(report, "budget.epsilon_by_round")
    return spent


def _clipping_allows(report: Report, bound: float | None) -> str:
    """Say how far clipping lets the two worlds differ in a round."""
    if local_steps(report) > 1:
        return ". By the replay of the linearised attack, which clipping does not limit."
    if not is_clipped(report):
        return ". Gradients are not clipped, so that nothing bounds it."
    return f", of {number(bound)} that clipping allows."


def _density(report: Report) -> Mapping[str, Any] | None:
    """Return the simulated densities, None unless all of them are there."""
    density = {
        name: at(report, f"prediction.density.{name}")
        for name in ("edges", "world_d", "world_d_prime")
    }
    whole = all(isinstance(numbers, list) and None not in numbers for numbers in density.values())
    return density if whole else None


def _curves(report: Report) -> str:
    """Say what the curves in the histogram of log-odds are."""
    mu = number(at(report, "prediction.mu"))
    if is_halves(report):
        return "Random halves have no closed-form prediction."
    if not is_sampled(report):
        if local_steps(report) > 1:
            return (
                f"The curves are the normal prediction of the linearised attack (μ = {mu}), which "
                "its score follows at best roughly."
            )
        return f"The curves are theory's, not a fit (μ = {mu})."
    if _density(report) is None:
        return "Sampled steps have no Gaussian prediction."
    return (
        "The outlines are theory's, not a fit: the game of sampled steps, which is not Gaussian, "
        "played again with the recorded gradient norms and noise."
    )


def _vantage_points(report: Report) -> list[VantagePoint]:
    """Return what each vantage achieved; nothing where only one was measured, or none is bounded.

    Under PAC noise and without clipping no bound of differential privacy is there to compare with.
    """
    rows: Mapping[str, Report] = report["vantages"]
    points = [
        VantagePoint(
            name.replace("-", " "),
            float(at(row, "rho_alpha") or 0.0),
            at(row, "prediction.advantage"),
            at(row, "empirical.advantage"),
            interval_at(row, "empirical.advantage_interval"),
        )
        for name, row in rows.items()
    ]
    several = sum(point.measured is not None for point in points) > 1
    return points if several and not is_pac(report) else []


def _measured(report: Report) -> list[Measured]:
    attacks = {"empirical": "DI adversary"}
    for name in report["membership_inference"]:
        if name == POPULATION:
            continue  # about all records, which the bound is not about
        if name.replace("_", "-") in LOSS_ATTACKS and name not in SHORT:
            continue  # told in the table: a dozen of them would crowd the figure
        attacks[f"membership_inference.{name}"] = attack_names(report, name)[0]
    return [
        Measured(label, value, interval_at(report, f"{path}.advantage_interval"))
        for path, label in attacks.items()
        if (value := at(report, f"{path}.advantage")) is not None
    ]


def inline(figure: Figure, name: str, alternative: str) -> Markup:
    """Return the figure as HTML: inline SVG with ids of its own, or an embedded PNG."""
    return embedded(picture(figure), name, alternative)


def picture(figure: Figure) -> str | bytes:
    """Return the figure as an SVG document, or as a PNG where that would be too large."""
    svg = canvas.to_svg(figure)
    return svg if len(svg) <= LARGEST_SVG else canvas.to_png(figure)


def embedded(drawn: str | bytes, name: str, alternative: str) -> Markup:
    """Return a `picture` as HTML; its ids begin with the name."""
    if isinstance(drawn, bytes):
        data = base64.b64encode(drawn).decode()
        return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, alternative)
    # HTML needs no namespaces, and ids and styles must not reach other figures or the page.
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", drawn[drawn.index("<svg") :])
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(">*{", ">svg *{")
    label = Markup('<svg role="img" aria-label="{}"').format(alternative)
    return Markup(svg.replace("<svg", label, 1))
