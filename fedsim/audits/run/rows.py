"""The rows of a run: each observer's limit, measurement and state, the worst observer first.

Contradictions of theory come first: the bound is worth nothing then, and all others are in doubt.
Observers without a limit come next, then the others by the advantage that theory allows, the
largest first. Of two equal observers, the one that sees more comes first.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from adversaries.bounds import lower_bounds
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.measurements import one_run_report
from fedsim.audits.results import rows as states
from fedsim.audits.results.measured import Empirical, OneRunResult, Predicted, Residuals
from fedsim.audits.results.rows import Limit, Row, View, WorstOff, audit_view
from fedsim.audits.run import detectable
from fedsim.audits.run.audited_run import AuditedRun, SeenFrom
from fedsim.game.mechanisms import vantages
from fedsim.game.observers import released_model
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD
from fedsim.privacy.identifiability import VantageBounds
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust import Vantage

FIRST = {"contradicted": 0, "no-limit": 1}
ELSEWHERE = ("advantage_", "curve_")
"""Beginnings of the names of alarms about another vantage; its name follows."""

LINEARISED = "an attack that replays the training, not an exact posterior: its log-odds are a score"
NOT_MEASURED = 'not measured: set audit.vantages = "all" to measure every vantage'
BESIDE_CANARIES = "not measured: a run with canaries measures the configured vantage alone"
CERTAIN = (
    "without noise, one step shows whether the record was used: the belief is certain, and "
    "epsilon' is infinite, not missing"
)


def measure(
    run: AuditedRun, empirical: Empirical, one_run: OneRunResult | None, residuals: Residuals | None
) -> dict[str, Row]:
    """Return a row for each observer, without the alarms that `judged` takes into account."""
    rows = {}
    for bound in run.vantage_bounds:
        seen, limit = run.views.get(bound.vantage), _limit(run, bound)
        shown = _view(run, bound.vantage, seen, limit, empirical, one_run, residuals)
        row = audit_view(shown, run.confidence, alarm=None)
        attack = row.attack
        if seen is not None and attack is not None:
            attack = replace(attack, near_prediction=_near(seen))
        rows[row.observer] = replace(row, attack=attack)
    return rows


def judged(run: AuditedRun, rows: Mapping[str, Row], alarms: Collection[str]) -> dict[str, Row]:
    """Return the rows with their states, the worst first; alarms: names of those raised."""
    sight = [vantage.value for vantage in Vantage]
    accused = [name for name in rows if alarmed(alarms, run.vantage.value, name)]
    stated = states.judged(rows.values(), accused)

    def order(row: Row) -> tuple[int, float, int]:
        first = FIRST.get(row.standing, len(FIRST))
        return first, -row.allowed.rho_alpha, sight.index(row.observer)

    return {row.observer: row for row in sorted(stated.values(), key=order)}


def alarmed(alarms: Collection[str], audited: str, observer: str) -> bool:
    """Return whether an alarm is about an observer.

    Args:
        alarms: names of those raised; those of no single vantage are about the audited observer.
        audited: the configured vantage.
    """
    return any(f"{prefix}{observer}" in alarms for prefix in ELSEWHERE) or (
        observer == audited and any(not name.startswith(ELSEWHERE) for name in alarms)
    )


def _limit(run: AuditedRun, bound: VantageBounds) -> Limit:
    mechanism, worst = run.releases.towards(bound.vantage), run.worst_off(bound.vantage)
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
    return WorstOff(PLD.epsilon(mechanism, run.delta), identifiability.rho_alpha(mechanism))


def _note(run: AuditedRun, vantage: Vantage, view: SeenFrom | None) -> str:
    released = vantage is Vantage.RELEASED_MODEL
    if view is not None:
        notes = [LINEARISED] if released else []
        notes += [] if view.arrays["noise_stds"].any() else [CERTAIN]
        return "; ".join(notes)
    if released and (reason := released_model.why_not(run.config)):
        return f"not attacked: {reason}"
    if run.config.canaries.count:
        return BESIDE_CANARIES
    attacked = vantages.measured(run.vantage, run.config.audit.vantages)
    return "" if vantage in attacked else NOT_MEASURED


def _view(
    run: AuditedRun,
    vantage: Vantage,
    seen: SeenFrom | None,
    limit: Limit,
    empirical: Empirical,
    one_run: OneRunResult | None,
    residuals: Residuals | None,
) -> View:
    note = _note(run, vantage, seen)
    if seen is None:
        return View(observer=vantage.value, limit=limit, detects=None, note=note)
    worlds, final, predicted = seen.worlds, seen.final, seen.prediction

    def bounds(confidence: float) -> dict[str, float]:
        """Return the bound that was chosen in advance."""
        if seen is not run.view:
            counted = lower_bounds.clopper_pearson_bound(worlds, final, run.delta, confidence)
            return {"clopper_pearson": counted.epsilon}
        if one_run is not None:
            return {"one_run": one_run.bounds[one_run_report.LEADING].epsilon}
        return {empirical.leading: empirical.lower_bounds[empirical.leading].epsilon}

    return View(
        observer=vantage.value,
        limit=limit,
        worlds=worlds if seen.both else None,
        scores=final if seen.both else None,
        # The configured accountant's epsilon decides which belief is too large, where it is stated.
        passed=run.bounds.epsilon if seen is run.view else limit.epsilon,
        trials=run.trials,
        log_odds=estimators.epsilon_from_belief(worlds, final),
        bounds=bounds,
        exact=seen.exact,
        detects=_detects(run, residuals, seen, limit),
        predicted=Predicted(
            predicted.mu, predicted.advantage, predicted.standard_error, predicted.method
        ),
        note=note,
    )


def _near(view: SeenFrom) -> bool | None:
    predicted = view.prediction
    if predicted.advantage is None or not view.both:
        return None
    # A simulated prediction has an error of its own, which 3.3 standard errors cover with 99.9 %.
    slack = 3.3 * (predicted.standard_error or 0.0)
    return view.surely.low - slack <= predicted.advantage <= view.surely.high + slack


# What would have been detected


def _detects(
    run: AuditedRun, residuals: Residuals | None, view: SeenFrom, limit: Limit
) -> list[float] | None:
    """Return the share of the claimed noise below which each check would have raised an alarm.

    Any of them raises it with probability `detectable.POWER`. None where no noise hides the target.
    """
    if math.isinf(limit.epsilon):
        return None
    error, shares = 1 - ALARM_CONFIDENCE, list[float]()
    if view is run.view and residuals is not None:
        # Two-sided, and tested twice: over all steps, and at the step that is furthest off.
        shares.append(detectable.by_energy(residuals.noise.degrees_of_freedom, error / 4))
    if view.mechanism.sampled or not view.exact:
        return shares
    if view.both:
        least = float(view.trial_mu.min())
        shares.append(detectable.by_wins(least, limit.rho_alpha, run.trials, error / 2))
    return shares
