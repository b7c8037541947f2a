"""The rows of a run: each observer's limit, measurement and state, the worst observer first.

Contradictions of theory come first: the bound is worth nothing then, and all others are in doubt.
Observers without a limit come next, then the others by the advantage that theory allows, the
largest first. Of two equal observers, the one that sees more comes first.

A row also states the shortfall of the noise that the audit would have detected. It is that of the
best check of `fedsim.audits.run.audit`, since any of them raises the alarm.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from scipy.special import expit, logit

from adversaries.arrays import Floats
from adversaries.bounds import lower_bounds, sample_size
from adversaries.bounds.gaussian_bounds import LARGEST_SHARE, mixed_share
from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.errors import InputError
from adversaries.statistics import estimators, forecast, gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from adversaries.statistics.trials import two_sided
from fedsim.audits.measurements import one_run_report, vantage_report
from fedsim.audits.results.canaries import OneRunResult
from fedsim.audits.results.measured import Empirical
from fedsim.audits.results.rows import (
    Answer,
    Attack,
    Limit,
    OwnLimit,
    RunRow,
    WorstOff,
    guessing,
    standing,
)
from fedsim.audits.results.theory import Predicted, PredictionResult, Residuals
from fedsim.audits.results.verdicts import AlarmCheck
from fedsim.audits.run import detectable
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms import vantages
from fedsim.game.observers import at_server, released_model
from fedsim.privacy import identifiability, risks
from fedsim.privacy.accounting import PLD
from fedsim.privacy.identifiability import VantageBounds
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust.model import Vantage

FIRST = {"contradicted": 0, "no-limit": 1}
ELSEWHERE = ("advantage_", "trade_off_")
"""Beginnings of the names of alarms about another vantage; its name follows."""

LINEARISED = "an attack that replays the training, not an exact posterior: its log-odds are a score"
NOT_MEASURED = 'not measured: set audit.vantages = "all" to measure every vantage'
CERTAIN = (
    "without noise, one step shows whether the record was used: the belief is certain, and "
    "epsilon' is infinite, not missing"
)


def measure(
    run: AuditedRun, empirical: Empirical, one_run: OneRunResult | None, residuals: Residuals | None
) -> dict[str, RunRow]:
    """Return a row for each observer, without the alarms that `judged` takes into account."""
    rows = {}
    for bound in run.vantage_bounds:
        vantage = bound.vantage
        view = vantage_report.seen_from(run.transcript, vantage, run.vantage)
        predicted = run.predictions[vantage] if view else None
        limit, attack = _limit(run, bound), None
        if predicted is not None:
            attack = _attack(run, vantage, view, limit, predicted)
            if vantage is run.vantage:
                attack = _leading(attack, empirical, one_run)
        rows[vantage.value] = RunRow(
            observer=vantage.value,
            standing="not-measured",
            limit=limit,
            attack=attack,
            predicted=None
            if predicted is None
            else Predicted(
                predicted.mu, predicted.advantage, predicted.standard_error, predicted.method
            ),
            detects=_detects(run, residuals, vantage, limit) if attack else None,
            note=_note(run, vantage, view),
        )
    return rows


def judged(
    run: AuditedRun, rows: Mapping[str, RunRow], alarms: Mapping[str, str]
) -> dict[str, RunRow]:
    """Return the rows with their states and own limits, the worst first."""
    sight = [vantage.value for vantage in Vantage]
    stated = []
    for row in rows.values():
        contradicted = alarmed(alarms, run.vantage.value, row.observer)
        found = replace(row, standing=standing(row, alarmed=contradicted))
        stated.append(replace(found, own_limits=[*_own_limits(run, alarms, found)]))

    def order(row: RunRow) -> tuple[int, float, int]:
        first = FIRST.get(row.standing, len(FIRST))
        return first, -row.limit.rho_alpha, sight.index(row.observer)

    return {row.observer: row for row in sorted(stated, key=order)}


def alarmed(alarms: Mapping[str, str], audited: str, observer: str) -> bool:
    """Return whether an alarm is about an observer.

    Args:
        alarms: by name; those of no single vantage are about the audited observer.
        audited: the configured vantage.
    """
    return any(f"{prefix}{observer}" in alarms for prefix in ELSEWHERE) or (
        observer == audited and any(not name.startswith(ELSEWHERE) for name in alarms)
    )


def checks(run: AuditedRun, rows: Mapping[str, RunRow]) -> Iterator[AlarmCheck]:
    """Yield the checks of the advantage at the vantages beside the configured one.

    They count decisions, so that they also hold for attacks whose log-odds are not a posterior.
    """
    if not two_sided(run.worlds):
        return
    for observer, row in rows.items():
        view = vantage_report.seen_from(run.transcript, Vantage(observer), run.vantage)
        if observer == run.vantage.value or not view:
            continue
        least = _surely(view).low
        alarm = (
            f"The advantage at the vantage {observer} is above its bound: it is at least "
            f"{least:.3f} with confidence {ALARM_CONFIDENCE:g}, but rho_alpha is "
            f"{row.limit.rho_alpha:.3f}. The noise is not the noise that was accounted for, or a "
            "clipped gradient exceeds the sensitivity."
        )
        yield AlarmCheck(f"advantage_{observer}", alarm if least > row.limit.rho_alpha else None)


def _limit(run: AuditedRun, bound: VantageBounds) -> Limit:
    mechanism = run.releases.towards(bound.vantage)
    worst = run.worst_off[bound.vantage].towards(bound.vantage)
    finite = math.isfinite(bound.epsilon)
    return Limit(
        epsilon=bound.epsilon,
        rho_beta=bound.rho_beta,
        exceeded=identifiability.tail_limit(mechanism, bound.epsilon) if finite else 1.0,
        rho_alpha=bound.rho_alpha,
        noise_multiplier=bound.noise_multiplier,
        worst=None if worst == mechanism else _worst_off(run, worst),
        risks=list(bound.risks),
        note=bound.note,
    )


def _worst_off(run: AuditedRun, mechanism: Mechanism) -> WorstOff:
    epsilon = PLD.epsilon(mechanism, run.delta)
    return WorstOff(
        epsilon,
        identifiability.rho_beta_of_epsilon(epsilon),
        identifiability.rho_alpha(mechanism),
        list(risks.success_by_baseline(mechanism, run.baselines)),
    )


def _note(run: AuditedRun, vantage: Vantage, view: Arrays) -> str:
    notes, attacked = [], vantage is Vantage.RELEASED_MODEL
    if view:
        notes += [LINEARISED] if attacked else []
        notes += [] if view["noise_stds"].any() else [CERTAIN]
    elif attacked and (reason := released_model.why_not(run.config.scheme)):
        notes.append(f"not attacked: {reason}")
    elif vantage not in vantages.measured(run.vantage, run.config.audit.vantages):
        notes.append(NOT_MEASURED)
    return "; ".join(notes)


def _surely(view: Arrays) -> Interval:
    """Return the advantage's interval at the confidence of an alarm."""
    return estimators.advantage(view["worlds"], view["log_odds"][:, -1], ALARM_CONFIDENCE).interval


def _attack(
    run: AuditedRun, vantage: Vantage, view: Arrays, limit: Limit, predicted: PredictionResult
) -> Attack:
    worlds, final, confidence = view["worlds"], view["log_odds"][:, -1], run.confidence
    both = two_sided(worlds)
    advantage = estimators.advantage(worlds, final, confidence)
    proven = lower_bounds.clopper_pearson_bound(worlds, final, run.delta, confidence)
    largest = estimators.epsilon_from_belief(worlds, final)
    # The configured accountant's epsilon decides which belief is too large, where it is stated.
    passed = run.bounds.epsilon if vantage is run.vantage else limit.epsilon
    exceeded = estimators.delta_prime(worlds, final, passed, confidence)
    own = run.config.report.limit_belief
    above = float(np.mean(final[worlds] > logit(own))) if own and worlds.any() and both else None
    return Attack(
        advantage=advantage.point if both else None,
        interval=advantage.interval.ends if both else None,
        standard_error=advantage.standard_error if both else None,
        confidence=confidence,
        trials=run.trials,
        chance=guessing(run.trials, confidence) if both else None,
        log_odds=largest,
        belief=float(expit(largest)),
        delta_prime=exceeded.point if both else None,
        delta_prime_interval=exceeded.interval.ends if both else None,
        above_own_limit=above,
        epsilon_at_least=proven.epsilon,
        estimator="clopper_pearson",
        best=at_server.is_exact(run.config.scheme, run.config.audit.mode, vantage),
        near_prediction=_near(view, predicted) if both else None,
    )


def _leading(attack: Attack, empirical: Empirical, one_run: OneRunResult | None) -> Attack:
    """Return the attack at the configured vantage with the bound that was chosen in advance."""
    name = empirical.leading
    epsilon = empirical.lower_bounds[name].epsilon
    if one_run is not None:
        name, epsilon = "one_run", one_run.bounds[one_run_report.LEADING].epsilon
    return replace(attack, epsilon_at_least=epsilon, estimator=name)


def _near(view: Arrays, predicted: PredictionResult) -> bool | None:
    if predicted.advantage is None:
        return None
    # A simulated prediction has an error of its own, which 3.3 standard errors cover with 99.9 %.
    slack = 3.3 * (predicted.standard_error or 0.0)
    sure = _surely(view)
    return sure.low - slack <= predicted.advantage <= sure.high + slack


def _own_limits(run: AuditedRun, alarms: Mapping[str, str], row: RunRow) -> Iterator[OwnLimit]:
    limits = run.config.report
    # An alarm puts theory in doubt; alarms about the noise do so everywhere.
    doubted = row.standing == "contradicted" or not all(
        name.startswith(ELSEWHERE) for name in alarms
    )
    if limits.limit_advantage:
        yield _of_advantage(row, limits.limit_advantage, doubted)
    if limits.limit_belief:
        yield _of_belief(run, row, limits.limit_belief, doubted)


def _of_advantage(row: RunRow, limit: float, doubted: bool) -> OwnLimit:
    measured, allowed = row.attack, row.limit
    if max(allowed.rho_alpha, allowed.largest.rho_alpha) <= limit and not doubted:
        return OwnLimit("advantage", limit, "meets", "theory", None)
    if measured is None or measured.interval is None or measured.advantage is None:
        # Where nothing hides the target, an observer is always right.
        hopeless = allowed.rho_alpha >= 1 and allowed.epsilon == math.inf
        answer: Answer = "misses" if hopeless else "cannot-tell"
        return OwnLimit("advantage", limit, answer, "theory", None)
    low, high = measured.interval
    if low > limit:
        return OwnLimit("advantage", limit, "misses", "measured", None)
    # An attack that is not the exact posterior shows nothing about better attacks.
    if high <= limit and measured.best:
        return OwnLimit("advantage", limit, "meets", "measured", None)
    point = measured.advantage
    tells = point > limit or measured.best
    trials = _trials(point, limit, measured.confidence) if tells else None
    return OwnLimit("advantage", limit, "cannot-tell", "measured", trials)


def _trials(point: float, limit: float, confidence: float) -> int | None:
    try:
        return sample_size.trials_to_tell(point, limit, confidence)
    except InputError:  # more trials than anyone would play
        return None


def _of_belief(run: AuditedRun, row: RunRow, limit: float, doubted: bool) -> OwnLimit:
    """Return how an observer stands to a limit b of the belief, which is epsilon = ln(b / (1 - b)).

    A measurement can prove enough epsilon to show that a limit is missed. It cannot show that the
    limit is met, since the belief may be larger for another record.
    """
    measured, allowed = row.attack, row.limit
    if max(allowed.rho_beta, allowed.largest.rho_beta) <= limit and not doubted:
        return OwnLimit("belief", limit, "meets", "theory", None)
    if measured is None:
        answer: Answer = "misses" if allowed.epsilon == math.inf else "cannot-tell"
        return OwnLimit("belief", limit, answer, "theory", None)
    if measured.epsilon_at_least > logit(limit):
        return OwnLimit("belief", limit, "misses", "measured", None)
    trials = _trials_for_epsilon(run, row.predicted, measured, float(logit(limit)))
    return OwnLimit("belief", limit, "cannot-tell", "measured", trials)


def _trials_for_epsilon(
    run: AuditedRun, predicted: Predicted | None, measured: Attack, epsilon: float
) -> int | None:
    """Return how many trials would prove an epsilon; None if no number would, or it is unknown.

    The formula needs normal log-odds, as in rounds in which all clients take part.
    """
    normal = predicted is not None and predicted.method == "closed form"
    if not normal or not measured.best:
        return None
    mu = None if predicted is None else predicted.mu
    if mu is None or not math.isfinite(mu) or measured.estimator not in LOWER_BOUNDS:
        return None
    return sample_size.trials_for_epsilon(
        measured.estimator, mu, epsilon, run.delta, measured.confidence
    )


def _detects(
    run: AuditedRun, residuals: Residuals | None, vantage: Vantage, limit: Limit
) -> float | None:
    """Return the share of the claimed noise below which the audit would have detected a shortfall.

    It is 0 where no shortfall can be named, and None where no noise hides the target. The audit
    detects the shortfall with probability `detectable.POWER`.
    """
    if math.isinf(limit.epsilon):
        return None
    return max((0.0, *_shares(run, residuals, vantage, limit)))


def _shares(
    run: AuditedRun, residuals: Residuals | None, vantage: Vantage, limit: Limit
) -> Iterator[float]:
    error = 1 - ALARM_CONFIDENCE
    configured = vantage is run.vantage
    if configured and residuals is not None:
        # Two-sided, and tested twice: over all steps, and at the step that is furthest off.
        yield detectable.by_energy(residuals.noise.degrees_of_freedom, error / 4)
    sampled = run.releases.towards(vantage).sampled
    if sampled or not at_server.is_exact(run.config.scheme, run.config.audit.mode, vantage):
        return
    view = vantage_report.seen_from(run.transcript, vantage, run.vantage)
    trial_mu = forecast.trial_mu(view["sensitivities"], view["noise_stds"])
    least = float(trial_mu.min())
    if two_sided(run.worlds):
        yield detectable.by_wins(least, limit.rho_alpha, run.trials, error / 2)
    if configured and run.proven.not_normal is None:
        yield _by_separation(run, limit.epsilon, trial_mu, error)


def _by_separation(run: AuditedRun, epsilon: float, trial_mu: Floats, error: float) -> float:
    share = mixed_share(trial_mu, float(trial_mu.max()))
    if share > LARGEST_SHARE or not math.isfinite(epsilon):
        return 0.0
    with_d = int(run.worlds.sum())
    limit = gaussian.mu_of_epsilon(epsilon, run.delta)
    signal = float(trial_mu.min()) * (1 - share)
    return detectable.by_separation(signal, limit, with_d, run.trials - with_d, error)
