"""The verdict of a run: the measurement at every vantage beside its bound, the worst first.

Contradictions of theory come first: the bound is worth nothing then, and all others are in doubt.
Vantages without a limit come next, then the others by the advantage that theory allows, the largest
first. Of two equal vantages, the one that sees more comes first.

A verdict also states the shortfall of the noise that the audit would have detected. It is that of
the best check of `fedsim.audits.run.audit`, since any of them raises the alarm.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.special import logit
from scipy.stats import binom

from adversaries.arrays import Floats
from adversaries.bounds import sample_size
from adversaries.bounds.gaussian_bounds import LARGEST_SHARE, mixed_share
from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.errors import InputError
from adversaries.statistics import estimators, forecast, gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from adversaries.statistics.trials import two_sided
from fedsim.audits.measurements import one_run_report, vantage_report
from fedsim.audits.results.measured import AtVantage
from fedsim.audits.results.numbers import Ends
from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import (
    AllowedThere,
    Answer,
    MeasuredThere,
    OwnLimit,
    State,
    Towards,
    VantageVerdict,
    standing,
)
from fedsim.audits.run import detectable
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.game.observers import at_server
from fedsim.privacy import identifiability, risks
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust.model import Vantage


def towards(vantage: Vantage, mechanism: Mechanism, delta: float) -> Towards:
    epsilon = PLD.epsilon(mechanism, delta)
    return Towards(
        vantage.value,
        epsilon,
        identifiability.rho_beta_of_epsilon(epsilon),
        identifiability.rho_alpha(mechanism),
    )


FIRST = {"above": 0, "no-limit": 1}
ELSEWHERE = ("advantage_", "trade_off_")
"""Beginnings of the names of alarms about another vantage; its name follows."""


def measure(run: AuditedRun, report: Report) -> list[VantageVerdict]:
    sight = [vantage.value for vantage in Vantage]

    def order(verdict: VantageVerdict) -> tuple[int, float, int]:
        first = FIRST.get(verdict.state, len(FIRST))
        return first, -verdict.allowed.advantage, sight.index(verdict.vantage)

    return sorted((_verdict(run, report, vantage) for vantage in Vantage), key=order)


def _verdict(run: AuditedRun, report: Report, vantage: Vantage) -> VantageVerdict:
    row = report.vantages[vantage.value]
    view = vantage_report.seen_from(run.transcript, vantage, run.vantage)
    finite = math.isfinite(row.epsilon)
    mechanism = run.releases.towards(vantage)
    worst = run.worst_off[vantage].towards(vantage)
    allowed = AllowedThere(
        advantage=row.rho_alpha,
        kind="none" if row.rho_alpha >= 1 else "rho-alpha",
        rho_alpha=row.rho_alpha,
        rho_beta=row.rho_beta,
        passed=identifiability.tail_limit(mechanism, row.epsilon) if finite else 1.0,
        epsilon=row.epsilon,
        delta=run.delta,
        worst=replace(
            Towards(vantage.value, row.epsilon, row.rho_beta, row.rho_alpha)
            if worst == mechanism
            else towards(vantage, worst, run.delta),
            risks=list(risks.success_by_baseline(worst, run.baselines)),
        ),
    )
    measured = _measured(run, report, vantage, row) if view else None
    verdict = VantageVerdict(
        vantage=vantage.value,
        state=state(report, vantage.value, measured, allowed),
        basis="theory" if measured is None else "measured",
        measured=measured,
        allowed=allowed,
        limits=[],
        seen_below=seen_below(run, report, vantage, row) if view else None,
    )
    return VantageVerdict(**vars(verdict) | {"limits": [*_limits(run, report, verdict)]})


def state(
    report: Report, vantage: str, measured: MeasuredThere | None, allowed: AllowedThere
) -> State:
    mine = vantage == report.vantage
    alarmed = any(f"{prefix}{vantage}" in report.contradictions for prefix in ELSEWHERE) or (
        mine and any(not name.startswith(ELSEWHERE) for name in report.contradictions)
    )
    # A weak attack says nothing about a better one.
    exact = measured is not None and measured.exact_posterior
    interval = None if measured is None else measured.interval
    found = standing(interval, allowed.advantage, exact=exact, alarmed=alarmed)
    # Sampling alone limits how often an observer is right; no noise hides a sampled record from it.
    return "no-limit" if math.isinf(allowed.epsilon) and found != "above" else found


def _measured(
    run: AuditedRun, report: Report, vantage: Vantage, row: AtVantage
) -> MeasuredThere | None:
    measured = row.empirical
    if measured is None:
        return None
    epsilon, by = measured.lower_bound.epsilon, "clopper_pearson"
    if vantage is run.vantage:
        epsilon, by = report.empirical.headline.epsilon, report.empirical.headline.name
        if report.one_run is not None:
            epsilon, by = (
                report.one_run.bounds[one_run_report.LEADING].epsilon,
                "one_run",
            )
    single = not two_sided(run.worlds)
    interval, share = (None, None) if single else _passed(run, vantage, row.epsilon)
    return MeasuredThere(
        advantage=None if single else measured.advantage,
        interval=None if single else measured.advantage_interval,
        confidence=measured.confidence,
        trials=run.trials,
        chance=None if single else guessing(run.trials, measured.confidence),
        belief=measured.belief,
        passed=None if single else measured.delta_prime,
        passed_interval=interval,
        passed_limit=share,
        epsilon=epsilon,
        epsilon_by=by,
        exact_posterior=row.exact_posterior,
    )


def guessing(trials: int, confidence: float) -> float:
    """Return the advantage, above or below 0, that a coin toss keeps with this confidence."""
    return float(2 * binom.ppf((1 + confidence) / 2, trials, 0.5) / trials - 1)


def _passed(run: AuditedRun, vantage: Vantage, epsilon: float) -> tuple[Ends, float | None]:
    """Return the interval of delta', and the share of trials on D above the organisation's limit.

    The share is None without a limit of the belief, or without trials on D.
    """
    view = vantage_report.seen_from(run.transcript, vantage, run.vantage)
    loss = view["log_odds"][:, -1]
    limit = run.config.report.limit_belief
    interval = estimators.delta_prime(view["worlds"], loss, epsilon, run.confidence).interval
    share = None
    if limit and view["worlds"].any():
        share = float(np.mean(loss[view["worlds"]] > logit(limit)))
    return interval.ends, share


def _limits(run: AuditedRun, report: Report, verdict: VantageVerdict) -> Iterator[OwnLimit]:
    limits = run.config.report
    if limits.limit_advantage:
        yield _of_advantage(run, report, verdict, limits.limit_advantage)
    if limits.limit_belief:
        yield _of_belief(run, report, verdict, limits.limit_belief)


def _doubted(report: Report, verdict: VantageVerdict) -> bool:
    """Return whether an alarm puts theory in doubt; alarms about the noise do so everywhere."""
    return verdict.state == "above" or not all(
        name.startswith(ELSEWHERE) for name in report.contradictions
    )


def _of_advantage(
    run: AuditedRun, report: Report, verdict: VantageVerdict, limit: float
) -> OwnLimit:
    measured, allowed = verdict.measured, verdict.allowed
    kept = allowed.advantage <= limit and allowed.worst.rho_alpha <= limit
    if kept and not _doubted(report, verdict):
        return OwnLimit("advantage", limit, "meets", "theory", None)
    if measured is None or measured.interval is None or measured.advantage is None:
        # Where nothing hides the target, an observer is always right.
        hopeless = allowed.kind == "none" and allowed.epsilon == math.inf
        answer: Answer = "misses" if hopeless else "cannot-tell"
        return OwnLimit("advantage", limit, answer, "theory", None)
    low, high = measured.interval
    if low > limit:
        return OwnLimit("advantage", limit, "misses", "measured", None)
    # An attack that is not the exact posterior shows nothing about better attacks.
    if high <= limit and measured.exact_posterior:
        return OwnLimit("advantage", limit, "meets", "measured", None)
    point = measured.advantage
    tells = point > limit or measured.exact_posterior
    trials = _trials(point, limit, measured.confidence) if tells else None
    return OwnLimit("advantage", limit, "cannot-tell", "measured", trials)


def _trials(point: float, limit: float, confidence: float) -> int | None:
    try:
        return sample_size.trials_to_tell(point, limit, confidence)
    except InputError:  # more trials than anyone would play
        return None


def _of_belief(run: AuditedRun, report: Report, verdict: VantageVerdict, limit: float) -> OwnLimit:
    """Return how a vantage stands to a limit b of the belief, which is epsilon = ln(b / (1 - b)).

    A measurement can prove enough epsilon to show that a limit is missed. It cannot show that the
    limit is met, since the belief may be larger for another record.
    """
    measured, allowed = verdict.measured, verdict.allowed
    if max(allowed.rho_beta, allowed.worst.rho_beta) <= limit and not _doubted(report, verdict):
        return OwnLimit("belief", limit, "meets", "theory", None)
    if measured is None:
        answer: Answer = "misses" if allowed.epsilon == math.inf else "cannot-tell"
        return OwnLimit("belief", limit, answer, "theory", None)
    if measured.epsilon > logit(limit):
        return OwnLimit("belief", limit, "misses", "measured", None)
    trials = _trials_for_epsilon(run, report, verdict.vantage, measured, float(logit(limit)))
    return OwnLimit("belief", limit, "cannot-tell", "measured", trials)


def _trials_for_epsilon(
    run: AuditedRun, report: Report, vantage: str, measured: MeasuredThere, epsilon: float
) -> int | None:
    """Return how many trials would prove an epsilon; None if no number would, or it is unknown.

    The formula needs normal log-odds, as in rounds in which all clients take part.
    """
    predicted = report.vantages[vantage].prediction
    normal = predicted is not None and predicted.method == "closed form"
    if not normal or not measured.exact_posterior:
        return None
    mu = None if predicted is None else predicted.mu
    if mu is None or not math.isfinite(mu) or measured.epsilon_by not in LOWER_BOUNDS:
        return None
    return sample_size.trials_for_epsilon(
        measured.epsilon_by, mu, epsilon, run.delta, measured.confidence
    )


def seen_below(run: AuditedRun, report: Report, vantage: Vantage, row: AtVantage) -> float | None:
    """Return the share of the claimed noise below which the audit would have detected a shortfall.

    It is 0 where no shortfall can be named, and None where nothing was measured or no noise
    hides the target. The audit detects the shortfall with probability `detectable.POWER`.
    """
    if row.empirical is None:
        return None
    if math.isinf(row.epsilon):
        return None
    return max((0.0, *_shares(run, report, vantage, row)))


def _shares(run: AuditedRun, report: Report, vantage: Vantage, row: AtVantage) -> Iterator[float]:
    error = 1 - ALARM_CONFIDENCE
    configured = vantage is run.vantage
    if configured and report.residuals is not None:
        # Two-sided, and tested twice: over all steps, and at the step that is furthest off.
        yield detectable.by_energy(report.residuals.noise.degrees_of_freedom, error / 4)
    sampled = run.releases.towards(vantage).sampled
    if sampled or not at_server.is_exact(run.config.scheme, run.config.audit.mode, vantage):
        return
    view = vantage_report.seen_from(run.transcript, vantage, run.vantage)
    trial_mu = forecast.trial_mu(view["sensitivities"], view["noise_stds"])
    least = float(trial_mu.min())
    if two_sided(run.worlds):
        yield detectable.by_wins(least, row.rho_alpha, run.trials, error / 2)
    if configured and run.proven.not_normal is None:
        yield _by_separation(run, row.epsilon, trial_mu, error)


def _by_separation(run: AuditedRun, epsilon: float, trial_mu: Floats, error: float) -> float:
    share = mixed_share(trial_mu, float(trial_mu.max()))
    if share > LARGEST_SHARE or not math.isfinite(epsilon):
        return 0.0
    with_d = int(run.worlds.sum())
    limit = gaussian.mu_of_epsilon(epsilon, run.delta)
    signal = float(trial_mu.min()) * (1 - share)
    return detectable.by_separation(signal, limit, with_d, run.trials - with_d, error)
