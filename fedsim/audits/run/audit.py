"""The report of a run, from its transcript: what the adversary achieved and what theory allows."""

from dataclasses import replace

import numpy as np

from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.measurements import (
    membership_audit,
    one_run_report,
    residual_report,
    trade_off_report,
)
from fedsim.audits.results import verdicts
from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Accounted, Budget, Fit, RunBounds
from fedsim.audits.results.verdicts import Checks
from fedsim.audits.run import empirical, guarantee, rows, set_up
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.federation.runs import spending
from fedsim.privacy import identifiability
from fedsim.privacy.trust import Vantage

EXCESS = 1 + 1e-4
"""Factor by which the realised mu may exceed the accounted one, since gradients are rounded."""

COMPOSITION = "composition"
"""Check of what the steps compose to, which is known: an honest run never raises its alarm."""

SURE = f"with confidence {ALARM_CONFIDENCE:g}"


ABOVE = (
    f"The advantage at the vantage {{}} is above its bound: it is at least {{:.3f}} {SURE}, but "
    "rho_alpha is {:.3f}. The noise is not the noise that was accounted for, or a clipped {} "
    "exceeds the sensitivity."
)
BELIEVED = (
    f"The belief passes rho_beta too often: in at least {{:.2g}} of the trials on D {SURE}, but "
    "under this noise no pair passes it in more than {:.2g}."
)
COMPOSED = (
    "More was released than was accounted for. The {} rounds of the transcript compose to mu = "
    "{:.3f}, but the accounting of {} steps allows {:.3f}. Not all rounds were composed, or a "
    "difference exceeds the sensitivity."
)
NOT_OF_THEORY = (
    "The log-odds in {} do not follow {} (Kolmogorov-Smirnov p = {:.2g}): the mechanism is not as "
    "claimed."
)
GAUSSIAN = "N(+-s^2/2, s^2), s = LS/sigma, step by step"


def checks(run: AuditedRun, report: Report) -> Checks:
    """Return every check that the run allows.

    Checks use `ALARM_CONFIDENCE`: at the report's 95 % an honest mechanism would raise an alarm in
    one report of twenty. With local steps only checks of counted decisions remain. Their log-odds
    are not a likelihood, so that beliefs cannot contradict theory.
    """
    parts = [
        _advantage_checks(run, report),
        _belief_checks(run, report),
        one_run_report.checks(report.one_run, run.config, run.transcript, run.delta),
        run.proven.checks(report.here.limit.epsilon),
        empirical.crafted_checks(run.transcript, report.here.limit.epsilon, run.delta),
        trade_off_report.checks(report.trade_offs, run.vantage),
        residual_report.checks(report.residuals),
    ]
    made = {name: alarm for part in parts for name, alarm in part.items()}
    if len(made) < sum(map(len, parts)):
        raise RuntimeError("two checks have one name, so that the alarm of one is lost")
    return made


def _advantage_checks(run: AuditedRun, report: Report) -> Checks:
    """Return the check of the advantage at every vantage.

    They count decisions, so that they also hold for attacks whose log-odds are not a posterior.
    """
    unit = "gradient" if run.config.privacy.unit == "record" else "update"
    made = {}
    for vantage, view in run.views.items():
        if view.both:
            limit, low = report.rows[vantage.value].limit.rho_alpha, view.surely.low
            name = "advantage" if view is run.view else f"advantage_{vantage.value}"
            above = ABOVE.format(vantage.value, low, limit, unit)
            made[name] = above if low > limit else ""
    return made


def _belief_checks(run: AuditedRun, report: Report) -> Checks:
    view, mechanism, bounds = run.view, run.mechanism, report.accounted
    made = dict[str, str]()
    if not view.exact:
        return made
    if (limit := bounds.exceeded) < 1:
        seen = view.worlds, view.final, bounds.epsilon
        low = estimators.delta_prime(*seen, ALARM_CONFIDENCE).interval.low
        made["delta_prime"] = BELIEVED.format(low, limit) if low > limit else ""
    realised = float(view.trial_mu.max())
    more = COMPOSED.format(report.rounds, realised, mechanism.steps, mechanism.mu)
    made[COMPOSITION] = more if realised > EXCESS * mechanism.mu else ""
    theory = "sampled steps" if run.config.participation.secret else GAUSSIAN
    for world in ("world_d", "world_d_prime"):
        fit: Fit | None = getattr(view.prediction.fit, world)
        if fit is not None:
            off = NOT_OF_THEORY.format(world, theory, fit.p_value)
            made[world] = off if fit.p_value < 1 - ALARM_CONFIDENCE else ""
    return made


def assemble(run: AuditedRun) -> Report:
    report = _measured(run)
    made = checks(run, report)
    raised = verdicts.alarms(made)
    report = replace(
        report,
        contradictions=raised,
        alarms=len(raised),
        chance_alarms=len(made) - (COMPOSITION in made),
        warnings=[*raised.values(), *_cautions(run, report)],
    )
    return replace(report, rows=rows.judged(run, report.rows, raised))


def _measured(run: AuditedRun) -> Report:
    config, facts, transcript = run.config, run.facts, run.transcript
    delta, confidence = run.delta, run.confidence
    attacked = config.challenge.kind, config.audit.attacks, transcript
    measured = empirical.measure(run)
    # A canary is one record, even where the target is a group of records.
    one_run = one_run_report.report(config, transcript, run.releases, delta, confidence)
    residuals = residual_report.report(config, transcript, confidence)
    return Report(
        config=set_up.configuration(run),
        name=config.run.name,
        job=config.run.job,
        created=facts["created"],
        seed=config.run.seed,
        versions=facts["versions"],
        runtime=facts["runtime"],
        device=facts["device"],
        noise_source=config.privacy.noise_source,
        trust=config.federation.trust.value,
        vantage=run.vantage.value,
        unit=config.privacy.unit,
        neighbouring=config.privacy.neighbouring.value,
        trials=run.trials,
        rounds=run.rounds,
        clients=config.federation.clients,
        colluding=config.federation.colluding,
        data=set_up.data(run),
        parameters=facts["parameters"],
        precision=facts["precision"],
        rows=rows.measure(run, measured, one_run, residuals),
        challenge=set_up.challenge(run),
        mechanism=set_up.mechanism(run),
        released=run.together.released,
        bounds=_bounds(run),
        dropouts=set_up.dropouts(config, run.noise_multiplier, run.rows),
        budget=_budget(run),
        prediction=run.view.prediction,
        empirical=measured,
        membership_inference={
            **empirical.yeom_attacks(run),
            **membership_audit.attacks(*attacked, confidence),
        },
        membership_missing=membership_audit.why_none(*attacked),
        one_run=one_run,
        utility=empirical.utility(run),
        timing=set_up.timing(run),
        crafted=empirical.crafted(run),
        residuals=residuals,
        contradictions={},
        alarms=0,
        chance_alarms=0,
        warnings=[],
        trade_offs=trade_off_report.report(
            {vantage: view.arrays for vantage, view in run.views.items()},
            run.releases.towards,
            run.confidence,
        ),
    )


def _bounds(run: AuditedRun) -> RunBounds:
    found, accounted = run.bounds, None
    if found.epsilon != found.tight_epsilon:
        exceeded = identifiability.tail_limit(run.mechanism, found.epsilon)
        accounted = Accounted(found.epsilon, found.rho_beta, exceeded)
    return RunBounds(
        delta=found.delta,
        accountant=found.accountant,
        accounted=accounted,
        tail_probability=found.tail_probability,
        theorem2_rho_alpha=found.theorem2_rho_alpha,
        yeom_bound=found.yeom_bound,
    )


def _cautions(run: AuditedRun, report: Report) -> list[str]:
    config, trials = run.config, run.trials
    return [
        *guarantee.cautions(config),
        *([guarantee.ONE_TRAINING] if trials == 1 else []),
        *set_up.cautions(config.federation, report.dropouts),
        *one_run_report.cautions(report.one_run),
        *guarantee.budget_cautions(report.budget, report.spent),
    ]


def _budget(run: AuditedRun) -> Budget:
    """Return the cost of one training's rounds for the worst-off client of the worst batch.

    Colluding clients are left out: their records are not secret. Where the noise comes from the
    operating system, privacy.stop-at limits the epsilon of everything released.
    """
    config, delta, rows = run.config, run.delta, run.rows
    spent = run.transcript[spending.EPSILON]
    if delta != config.privacy.delta:
        restated = config.privacy.model_copy(update={"delta": delta})
        config_then = config.model_copy(update={"privacy": restated})
        spent = spending.curve(config_then, run.noise_multiplier, rows)
    # The budget protects only clients with a guarantee.
    worst = np.delete(spent, sorted(spending.colluders(rows)), axis=0).max(axis=0)
    vantages, stop_at = list(Vantage), config.privacy.stop_at
    mine = worst[vantages.index(run.vantage)]
    return Budget(
        stop_at=stop_at or None,
        stop_at_delta=config.privacy.delta if stop_at else None,
        delta=delta,
        accountant=config.privacy.accountant,
        vantage=run.vantage.value,
        rounds_planned=config.training.rounds,
        rounds_run=run.rounds,
        stopped=run.rounds < config.training.rounds,
        epsilon={vantage.value: float(worst[place, -1]) for place, vantage in enumerate(vantages)},
        epsilon_by_round=mine.tolist(),
        earlier_attempts=spending.earlier_rounds(config, rows),
    )
