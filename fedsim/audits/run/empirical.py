"""Measurements at the configured vantage, Yeom's membership inference included."""

import math

import numpy as np

from adversaries.arrays import Floats
from adversaries.attacks import membership
from adversaries.bounds.lower_bounds import clopper_pearson_split
from adversaries.bounds.rate_bounds import by_mu
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.measurements import bounds_audit, membership_audit
from fedsim.audits.results.measured import (
    CraftedResult,
    Empirical,
    EstimatedEpsilons,
    MembershipAttack,
    RoundSeries,
    Utility,
)
from fedsim.audits.results.verdicts import Checks
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.federation.runs.run_directory import Arrays
from fedsim.learning.training.criterion import Measured
from fedsim.privacy.accounting import PLD, Accountant, accountant
from fedsim.privacy.mechanism import Mechanism, Neighbouring, sensitivity
from fedsim.privacy.trust import Vantage

POPULATION, CHALLENGE = "yeom", "yeom-challenge"


def measure(run: AuditedRun) -> Empirical:
    advantage, view = run.advantage, run.view
    proven, both = run.proven.bounds(run.confidence), view.both
    norms = run.transcript["sensitivities"]
    return Empirical(
        wins=advantage.wins if both else None,
        losses=advantage.losses if both else None,
        ties=advantage.ties if both else None,
        epsilon=EstimatedEpsilons(
            sensitivity=_epsilon_from_sensitivities(run, accountant("rdp-classic")),
            sensitivity_exact=_epsilon_from_sensitivities(run, PLD),
            advantage=estimators.epsilon_from_advantage(advantage.point, run.delta)
            if both
            else None,
        ),
        lower_bounds=proven,
        leading=bounds_audit.headline(proven),
        sensitivity_rms=float(np.sqrt(np.mean(norms**2))),
        sensitivity_max=float(norms.max()),
        sensitivity_bound=_sensitivity_bound(run),
    )


def utility(run: AuditedRun) -> Utility:
    accuracies, facts = run.transcript["accuracies"], run.facts
    accuracy, loss = _series(accuracies), _series(run.transcript["losses"])
    return Utility(
        rounds=list(range(len(accuracies))),
        accuracy=accuracy,
        loss=loss,
        trials=accuracies.shape[1],
        measured=Measured(
            task=run.config.model.task,
            records=facts["held_out"],
            accuracy=accuracy.mean[-1] if accuracy.mean else None,
            majority=facts["majority"],
            loss=loss.mean[-1] if loss.mean else None,
            of_class=tuple(facts.get("of_class", ())),
            balanced_accuracy=_mean(run.transcript, "balanced_accuracies"),
            area_under_curve=_mean(run.transcript, "areas_under_curve"),
            baseline_loss=facts.get("baseline_loss"),
        ),
    )


def _mean(transcript: Arrays, name: str) -> float | None:
    mean = float(transcript[name].mean()) if name in transcript else math.nan
    return None if math.isnan(mean) else mean


def _series(curves: Floats) -> RoundSeries:
    low, high = np.quantile(curves, [0.05, 0.95], axis=1)
    return RoundSeries(curves.mean(1).tolist(), low.tolist(), high.tolist())


def _sensitivity_bound(run: AuditedRun) -> float | None:
    """Return the largest sensitivity of a round that clipping allows; None where nothing bounds it.

    Clipping bounds a single step. Over a client's own steps the worlds may drift further apart.
    """
    training = run.config.training
    if run.config.training.scored_by_counts:
        return None
    if training.local_steps > 1 or not training.clipping or run.vantage is Vantage.RELEASED_MODEL:
        return None
    return sensitivity(run.config.privacy.neighbouring, training.clipping_norm)


def _epsilon_from_sensitivities(run: AuditedRun, chosen_accountant: Accountant) -> float | None:
    """Return the paper's estimate by one accountant; None where no single distance describes D, D'.

    For sampled steps it uses the trial's root mean square ratio for every step. Under replace
    neighbours, sampled steps depend on both gradients, not only on their distance.
    """
    config, steps = run.config, run.rounds
    q = config.participation.rate
    if config.training.scored_by_counts:
        return None
    if q < 1 and config.privacy.neighbouring is Neighbouring.REPLACE:
        return None
    if q < 1 and run.vantage is Vantage.RELEASED_MODEL:
        return None

    def epsilon(mu: float, delta: float) -> float:
        if mu == 0:
            return 0.0
        return chosen_accountant.epsilon(Mechanism.alike(math.sqrt(steps) / mu, steps, q), delta)

    ratios = run.transcript["sensitivities"], run.transcript["noise_stds"]
    return estimators.epsilon_from_sensitivities(*ratios, run.delta, epsilon)


def yeom_attacks(run: AuditedRun) -> dict[str, MembershipAttack]:
    config, transcript = run.config, run.transcript
    if membership_audit.withheld(transcript):
        return {}
    attacks = {POPULATION: _against_all(run)}
    if config.challenge.kind != "gradient" and run.view.both:
        answers = np.where(transcript["challenge_is_member"], 1.0, -1.0)
        challenge = estimators.advantage(run.view.worlds, answers, run.confidence)
        attacks[CHALLENGE] = MembershipAttack(challenge.point, challenge.interval.ends)
    return attacks


def _against_all(run: AuditedRun) -> MembershipAttack:
    rates = run.transcript["true_positive_rate"], run.transcript["false_positive_rate"]
    false_positives = float(rates[1].mean())
    population = membership.membership_advantage(*rates, run.confidence)
    return MembershipAttack(
        advantage=population.point,
        advantage_interval=population.interval and population.interval.ends,
        tpr=float(rates[0].mean()),
        fpr=false_positives,
    )


REVEALED = (
    "The released model reveals the target beyond what the noise allows: epsilon of one record is "
    f"at least {{:.3f}} with confidence {ALARM_CONFIDENCE:g}, but theory allows {{:.3f}} at delta "
    "{:g}."
)
WHAT = {
    "record": "a record of D",
    "clipbkd": (
        "a record along the direction that the data use least, labelled with the class that the "
        "first model finds least likely (ClipBKD)"
    ),
    "mislabelled": "a record of D with another label",
    "gradient": "a crafted gradient with the clipping norm, which belongs to no record",
}


def crafted(run: AuditedRun) -> CraftedResult | None:
    """Return the `crafted` of the report; None where the target is one record of D."""
    kind = run.config.challenge.kind
    if kind == "record":
        return None
    gaussian = "mu_gdp" not in run.proven.refused
    bounds = released_bounds(run.transcript, run.delta, run.confidence, gaussian=gaussian)
    return CraftedResult(WHAT[kind], bounds)


def released_bounds(
    transcript: Arrays, delta: float, confidence: float, *, gaussian: bool
) -> dict[str, EpsilonBound]:
    """Return lower bounds on the epsilon of one record from the crafted target's scores.

    Half of the trials choose the threshold, which differs for a bound by mu. The result is empty
    where no score was kept. gaussian: whether the counts may bound mu of a Gaussian mechanism.
    """
    if "poison_scores" not in transcript:
        return {}
    scores = np.asarray(transcript["poison_scores"], np.float64)
    counted = transcript["worlds"], scores, delta, confidence
    proven = {"released_model": clopper_pearson_split(*counted)}
    if gaussian:
        proven["released_model_mu_gdp"] = by_mu(clopper_pearson_split(*counted, for_mu=True))
    return proven


def crafted_checks(transcript: Arrays, epsilon: float, delta: float) -> Checks:
    """Return the check of the released model's bound against the epsilon of one record.

    `bounds_audit` checks the bounds of the log-odds.
    """
    proven = released_bounds(transcript, delta, ALARM_CONFIDENCE, gaussian=False)
    if not proven:
        return {}
    least = max(bound.epsilon for bound in proven.values())
    return {"poison_score": REVEALED.format(least, epsilon, delta) if least > epsilon else ""}
