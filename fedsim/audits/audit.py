"""From a transcript to a report: what the adversary achieved, beside what theory allows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from adversaries.attacks import membership
from adversaries.statistics import estimators
from adversaries.statistics.agreement import Comparison
from adversaries.statistics.design import Design
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from adversaries.statistics.trials import two_sided
from fedsim.audits import (
    alarms,
    bounds_audit,
    cautions,
    check,
    crafted_report,
    guarantee,
    membership_audit,
    one_run_report,
    one_training,
    pac_report,
    prediction,
    residual_report,
    trust_report,
    vantage_report,
)
from fedsim.audits.bayesian_audit import bayesian_report
from fedsim.audits.guarantee import Guarantee
from fedsim.campaign import precision, spending
from fedsim.campaign.ledger_row import Row
from fedsim.campaign.run_directory import Arrays
from fedsim.common.strict_json import strict_json
from fedsim.config import Config
from fedsim.privacy import identifiability
from fedsim.privacy.accountant import Accountant
from fedsim.privacy.accounting import PLD, accountant
from fedsim.privacy.group_privacy import of_group
from fedsim.privacy.mechanism import Mechanism, Neighbouring, sensitivity
from fedsim.privacy.releases import Releases
from fedsim.trust.model import Vantage

MECHANISM_KEYS = {"rounds", "clipping_norm", "clipping", "sampling_rate", "local_steps"}
"""Keys of the training that the report lists under the mechanism."""

SENSITIVITY_NOTE = (
    "Local sensitivities are measured on the data: they say how tight the theory is, and are never "
    "part of a DP release."
)


def assemble(
    config: Config,
    facts: Mapping[str, Any],
    transcript: Arrays,
    confidence: float,
    delta: float,
    rows: Sequence[Row] = (),
) -> dict[str, Any]:
    """Return report.json as a dictionary of JSON values; infinity is null, explained beside it.

    rows: of the run's ledger, which says what was released; without any it is what was planned.
    """
    nominal, rounds = facts["noise_multiplier"], transcript["log_odds"].shape[1]
    of_one = spending.describe(config, nominal, rows, facts["challenge"]["client"])
    trials = len(transcript["worlds"])
    together = guarantee.of(
        config,
        of_one,
        spending.describe_everything(config, nominal, rows),
        spending.trainings(rows) or trials,
        delta,
        told=not membership_audit.withheld(transcript),
    )
    releases = of_group(of_one, config.challenge.copies)
    mechanism = releases.towards(config.federation.vantage)
    bounds = identifiability.bounds(mechanism, delta, config.privacy.accountant)
    everywhere = [
        row if config.training.clipping else replace(row, note=cautions.UNCLIPPED)
        for row in identifiability.vantage_bounds(releases, delta)
    ]
    predictions = prediction.predictions(config, transcript)
    mine = predictions[config.federation.vantage]
    comparisons = bounds_audit.comparisons_of(config, mine, transcript)
    played = precision.design(config, trials)
    empirical = _empirical(
        config, mechanism, transcript, bounds.epsilon, confidence, delta, comparisons
    )
    report: dict[str, Any] = {
        **_setting(config, facts, transcript),
        "mechanism": _mechanism(config, facts, of_one, mechanism, rounds, together),
        "released": together.released,
        "bounds": {
            **asdict(bounds),
            "tail_limit": identifiability.tail_limit(mechanism, bounds.epsilon),
            "vantages": [asdict(row) for row in everywhere],
        },
        "dropouts": trust_report.dropouts(config, nominal, rows),
        "budget": _budget(config, nominal, transcript, rows, delta, together),
        "prediction": mine | {"distance": _distance(mine["advantage"], transcript, played)},
        "empirical": empirical,
        "membership_inference": {
            **_membership(config, facts, transcript, confidence),
            **membership_audit.attacks(config, transcript, confidence),
        },
        "membership_missing": membership_audit.why_none(config, transcript),
        "bayesian": bayesian_report(config, transcript, delta, releases),
        # A canary is one record, whatever the group in question is.
        "one_run": one_run_report.report(config, transcript, of_one, delta, confidence),
        "utility": _utility(transcript, facts["held_out"]),
        "timing": facts["timing"],
        "vantages": vantage_report.report(
            config, transcript, everywhere, predictions, delta, confidence
        ),
        "pac": pac_report.report(config, mechanism, transcript, empirical["advantage"], delta),
        "crafted": crafted_report.report(
            config,
            facts["challenge"],
            transcript,
            of_one,
            delta,
            confidence,
            not_normal=bounds_audit.not_normal(config, transcript),
            not_gaussian=bounds_audit.refused(config).get("mu_gdp"),
            played=played,
        ),
        "residuals": residual_report.report(config, transcript, confidence, played),
        "campaign": precision.assemble(config, facts, transcript, empirical, mine["advantage"]),
    }
    checks = alarms.checks(config, mechanism, transcript, report, comparisons)
    report["alarms"] = check.alarms(checks)
    report["chance_alarms"] = check.chance_alarms(checks)
    report["warnings"] = [
        *report["alarms"].values(),
        *cautions.cautions(config),
        *([one_training.CAUTION] if trials == 1 else []),
        *precision.cautions(config, trials),
        *precision.imprecise(report["campaign"]),
        *trust_report.cautions(config, report),
        *one_run_report.cautions(report["one_run"]),
        *cautions.budget_cautions(report["budget"]),
    ]
    told = one_training.without_rates(report) if trials == 1 else report
    finite: dict[str, Any] = strict_json(told)
    return finite


def _setting(config: Config, facts: Mapping[str, Any], transcript: Arrays) -> dict[str, Any]:
    """Return who trained what on which data, where, and about whom the question is."""
    return {
        "name": config.run.name,
        "created": facts["created"],
        "seed": config.run.seed,
        "versions": facts["versions"],
        "runtime": facts["runtime"],
        "device": facts["device"],
        "noise_source": config.privacy.noise_source,
        "trust": config.federation.trust.value,
        "vantage": config.federation.vantage.value,
        "unit": config.privacy.unit,
        "neighbouring": config.privacy.neighbouring.value,
        "prior": config.audit.prior,
        "trials": len(transcript["worlds"]),
        "rounds": transcript["log_odds"].shape[1],
        "clients": config.federation.clients,
        "colluding": config.federation.colluding,
        "data": {
            "name": facts["dataset"],
            "records": config.data.records,
            "held_out": facts["held_out"],
            "partition": config.federation.partition,
            "partition_key": config.federation.partition_key or None,
            "client_sizes": facts["client_sizes"],
            "label_skew": facts["label_skew"],
        },
        "model": {
            "name": config.model.name,
            "parameters": facts["parameters"],
            "gradient_fallbacks": facts["gradient_fallbacks"],
            "frozen": config.model.frozen,
            "frozen_parameters": facts["frozen_parameters"],
            "batch_norm": config.model.batch_norm,
        },
        "precision": facts["precision"],
        "training": config.training.model_dump(exclude=MECHANISM_KEYS),
        "audit_mode": config.audit.mode,
        "challenge": _challenge(config, facts),
    }


def _mechanism(
    config: Config,
    facts: Mapping[str, Any],
    releases: Releases,
    mechanism: Mechanism,
    rounds: int,
    together: Guarantee,
) -> dict[str, Any]:
    """Return the `mechanism` of report.json.

    releases: of one training, for one record; mechanism: towards the vantage, for all in
    question; together: of everything released, which is all that a guarantee speaks of.
    """
    nominal = facts["noise_multiplier"]
    return {
        "noise_multiplier": nominal,
        "effective_noise_multiplier": _common_noise_multiplier(
            releases.towards(config.federation.vantage)
        ),
        "clipping_norm": config.training.clipping_norm,
        "clipping": config.training.clipping,
        "sensitivity": config.privacy.sensitivity,
        "noise": config.privacy.noise.value,
        "steps": mechanism.steps,
        "mu": mechanism.mu,
        "local_steps": config.training.local_steps,
        "sampling_rate": config.training.sampling_rate,
        "learning_rate": config.training.learning_rate,
        "rounding": trust_report.rounding(config, nominal, facts["parameters"], rounds),
        "dp_guarantee": together.given,
        "dp_note": together.note,
    }


def _challenge(config: Config, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the challenge, with how many records it is and what D' has in its place."""
    found = facts["challenge"] | {"records": _in_question(config, facts)}
    if config.challenge.is_crafted and found["replacement"] is not None:
        # Its position is beyond the records of the pool.
        found["replacement"] = "the original record"
    return found


def _in_question(config: Config, facts: Mapping[str, Any]) -> int:
    """Return how many records the neighbouring datasets differ in."""
    if config.privacy.unit == "record":
        return config.challenge.copies
    return int(facts["client_sizes"][facts["challenge"]["client"]])


def _common_noise_multiplier(mechanism: Mechanism) -> float | None:
    """Return the noise multiplier of all steps: 0 if any has none, None where they differ."""
    multipliers = {group.noise_multiplier for group in mechanism.groups}
    if mechanism.noiseless:
        return 0.0
    return multipliers.pop() if len(multipliers) == 1 else None


def _budget(
    config: Config,
    nominal: float,
    transcript: Arrays,
    rows: Sequence[Row],
    delta: float,
    together: Guarantee,
) -> dict[str, Any]:
    """Return what the rounds of one training cost the worst client of the worst batch of trials, at
    delta.

    Colluders are left out: their records are no secret. spent: what privacy.stop-at limits, which
    is of everything released where the noise is the operating system's.
    """
    spent, run = transcript[spending.EPSILON], transcript["log_odds"].shape[1]
    if delta != config.privacy.delta:
        restated = config.privacy.model_copy(update={"delta": delta})
        spent = spending.curve(config.model_copy(update={"privacy": restated}), nominal, rows)
    # A budget is for those whom a guarantee is meant for.
    worst = np.delete(spent, sorted(spending.colluders(rows)), axis=0).max(axis=0)
    vantages, stop_at = list(Vantage), config.privacy.stop_at
    return {
        "stop_at": stop_at or None,
        "stop_at_delta": config.privacy.delta if stop_at else None,
        "delta": delta,
        "accountant": config.privacy.accountant,
        "vantage": config.federation.vantage.value,
        "rounds_planned": config.training.rounds,
        "rounds_run": run,
        "stopped": run < config.training.rounds,
        "epsilon": {
            vantage.value: float(worst[place, -1]) for place, vantage in enumerate(vantages)
        },
        "spent": float(worst[vantages.index(config.federation.vantage), -1])
        if together.released is None
        else together.released["epsilon"],
        "epsilon_by_round": worst[vantages.index(config.federation.vantage)].tolist(),
        "earlier_attempts": spending.earlier_rounds(config, rows),
    }


def _empirical(
    config: Config,
    mechanism: Mechanism,
    transcript: Arrays,
    epsilon: float,
    confidence: float,
    delta: float,
    comparisons: list[Comparison],
) -> dict[str, Any]:
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    norms = transcript["sensitivities"]
    played = precision.design(config, len(worlds))
    advantage = estimators.advantage(worlds, final, confidence, played)
    # Epsilon bounds the privacy loss, which is the log-odds without what the prior put in.
    loss = final - logit(config.audit.prior)
    exceeded = estimators.delta_prime(worlds, loss, epsilon, played.level(confidence))
    proven = bounds_audit.bounds_of(config, mechanism, transcript, delta, confidence)
    return {
        "advantage": advantage.point,
        # Trials on D alone measure 2 TPR - 1, which is no advantage and has no bound.
        "advantage_interval": _interval(advantage.interval if two_sided(worlds) else None),
        "standard_error": advantage.standard_error,
        "confidence": confidence,
        "wins": advantage.wins,
        "losses": advantage.losses,
        "ties": advantage.ties,
        "delta_prime": exceeded.point,
        "delta_prime_interval": [exceeded.interval.low, exceeded.interval.high],
        "epsilon": {
            "sensitivity": _epsilon_from_sensitivities(
                config, transcript, delta, accountant("rdp-classic")
            ),
            "sensitivity_exact": _epsilon_from_sensitivities(config, transcript, delta, PLD),
            "belief": estimators.epsilon_from_belief(worlds, loss),
            "advantage": estimators.epsilon_from_advantage(advantage.point, delta),
        },
        **bounds_audit.report(
            proven,
            bounds_audit.chances_of(config, mechanism, transcript, proven),
            comparisons,
            bounds_audit.profile_of(config, mechanism, transcript, confidence),
        ),
        "sensitivity_rms": float(np.sqrt(np.mean(norms**2))),
        "sensitivity_max": float(norms.max()),
        # Of every step and trial: `sensitivities` of transcript.npz.
        "sensitivity_by_round": {
            "rms": np.sqrt(np.mean(norms**2, axis=0)).tolist(),
            **dict(
                zip(
                    ("low", "median", "high"),
                    np.quantile(norms, (0.05, 0.5, 0.95), axis=0).tolist(),
                    strict=True,
                )
            ),
        },
        "sensitivity_note": SENSITIVITY_NOTE,
        # Clipping bounds a step; the worlds may drift further apart over a client's own steps.
        "sensitivity_bound": config.challenge.copies
        * sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
        if config.training.local_steps == 1
        and config.training.clipping
        and config.federation.vantage is not Vantage.RELEASED_MODEL
        else None,
    }


def _distance(
    predicted: float | None, transcript: Arrays, played: Design
) -> dict[str, float] | None:
    """Return how far the advantage is from the one predicted; None where nothing tells.

    Of trials that share their random numbers no law of the wins follows from an advantage.
    """
    if predicted is None or played.common:
        return None
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    found = estimators.advantage(worlds, final, ALARM_CONFIDENCE)
    return asdict(estimators.distance(found, predicted))


def _epsilon_from_sensitivities(
    config: Config, transcript: Arrays, delta: float, chosen_accountant: Accountant
) -> float | None:
    """Return the paper's estimator by one accountant; None where no one distance is the pair's.

    Of sampled steps it takes every step of a trial at the trial's root mean square ratio. Under
    replace neighbours these depend on both gradients, and not only on how far they lie apart.
    """
    q, steps = config.training.sampling_rate, transcript["sensitivities"].shape[1]
    if config.privacy.pac_prior == "halves":
        return None
    if q < 1 and config.privacy.neighbouring is Neighbouring.REPLACE:
        return None
    if q < 1 and config.federation.vantage is Vantage.RELEASED_MODEL:
        return None

    def epsilon(mu: float, delta: float) -> float:
        if mu == 0:
            return 0.0
        return chosen_accountant.epsilon(Mechanism.alike(math.sqrt(steps) / mu, steps, q), delta)

    return estimators.epsilon_from_sensitivities(
        transcript["sensitivities"], transcript["noise_stds"], delta, epsilon
    )


def _membership(
    config: Config, facts: Mapping[str, Any], transcript: Arrays, confidence: float
) -> dict[str, Any]:
    if membership_audit.withheld(transcript):
        return {}
    rates = transcript["true_positive_rate"], transcript["false_positive_rate"]
    played = precision.design(config, len(transcript["worlds"]))
    if played.common:  # pairs are what is independent
        rates = rates[0].reshape(-1, 2).mean(1), rates[1].reshape(-1, 2).mean(1)
    level = played.level(confidence)
    population = membership.membership_advantage(*rates, level)
    members = sum(facts["client_sizes"]) - _in_question(config, facts)
    fresh = membership.over_records(*rates, members, facts["held_out"], level)
    # Of random halves, half of the records that the attack takes for members are none.
    scored = config.privacy.pac_prior != "halves"
    found = {
        "yeom": {
            "advantage": population.point if scored else None,
            "advantage_interval": _interval(fresh) if scored else None,
            # About these members and these others alone.
            "advantage_interval_of_these": _interval(population.interval) if scored else None,
            "tpr": float(rates[0].mean()) if scored else None,
            "fpr": float(rates[1].mean()),
        }
    }
    if config.challenge.kind == "gradient":
        return found
    worlds = transcript["worlds"]
    challenge = membership.challenge_advantage(
        worlds, transcript["challenge_is_member"], confidence, played
    )
    found["yeom_challenge"] = {
        "advantage": challenge.point,
        "advantage_interval": _interval(challenge.interval if two_sided(worlds) else None),
    }
    return found


def _interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _utility(transcript: Arrays, records: int) -> dict[str, Any]:
    def band(curves: npt.NDArray[np.float64]) -> dict[str, list[float]]:
        low, high = np.quantile(curves, [0.05, 0.95], axis=1)
        return {"mean": curves.mean(1).tolist(), "low": low.tolist(), "high": high.tolist()}

    accuracies = transcript["accuracies"]
    return {
        "rounds": list(range(len(accuracies))),
        "accuracy": band(accuracies),
        "loss": band(transcript["losses"]),
        "trials": accuracies.shape[1],
        "records": records,
    }
