"""All checks of a run against theory, from its transcript and its report."""

from collections.abc import Iterator

from scipy.special import logit

from adversaries.statistics import estimators, forecast
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from adversaries.statistics.trials import two_sided
from fedsim.audits.measurements import (
    one_run_report,
    residual_report,
    trade_off_report,
    vantage_report,
)
from fedsim.audits.measurements.check import Check
from fedsim.audits.results.report import Report
from fedsim.audits.run import crafted_report
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.game.observers import at_server

EXCESS = 1 + 1e-4
"""Factor by which the realised mu may exceed the accounted one, since gradients are rounded."""

SURE = f"with confidence {ALARM_CONFIDENCE:g}"


def checks(run: AuditedRun, report: Report) -> list[Check]:
    """Return every check that the run allows.

    Checks use `ALARM_CONFIDENCE`: at the report's 95 % an honest mechanism would raise an alarm in
    one report of twenty. With local steps only checks of counted decisions remain. Their log-odds
    are not a likelihood, so that beliefs cannot contradict theory.
    """
    return [
        *_advantage(run, report),
        *_beliefs(run, report),
        *one_run_report.checks(report.one_run),
        *run.proven.checks(run.comparisons, report.bounds.tight_epsilon),
        *crafted_report.checks(report.crafted, run.transcript, run.played),
        *vantage_report.checks(report.vantages, run.vantage),
        *trade_off_report.checks(report.trade_offs, run.vantage),
        *residual_report.checks(report.residuals, run.played),
    ]


def _advantage(run: AuditedRun, report: Report) -> Iterator[Check]:
    """Yield the checks of counted decisions; none if all trials are of one world."""
    if not two_sided(run.worlds):
        return
    sure = estimators.advantage(run.worlds, run.final, ALARM_CONFIDENCE, run.played)
    low = sure.interval.low
    alarm, limit = None, report.bounds.rho_alpha
    if low > limit:
        alarm = (
            f"The advantage is above its bound: it is at least {low:.3f} {SURE}, but rho_alpha is "
            f"{limit:.3f}. The noise is not the noise that was accounted for, or a clipped "
            f"{'gradient' if run.config.privacy.unit == 'record' else 'update'} exceeds the "
            "sensitivity."
        )
    yield Check("advantage", alarm)
    alarm, limit = None, report.pac.advantage_bound
    if low > limit:
        alarm = (
            f"The advantage is above what the mutual information allows: it is at least {low:.3f} "
            f"{SURE}, but the bound of PAC privacy is {limit:.3f}. The noise is not the noise that "
            "was budgeted, or the secret was not drawn from the stated prior."
        )
    yield Check("pac_advantage", alarm)


def _beliefs(run: AuditedRun, report: Report) -> Iterator[Check]:
    """Yield the checks of log-odds as a likelihood; none if they are an attack's score."""
    config, transcript, mechanism = run.config, run.transcript, run.mechanism
    if not at_server.is_exact(
        config.training.local_steps,
        config.federation.adversary_rounds,
        config.audit.mode,
        run.vantage,
    ):
        return
    level = run.played.level(ALARM_CONFIDENCE)
    bounds, prediction = report.bounds, report.prediction
    if (limit := bounds.tail_limit) < 1:
        loss = run.final - logit(config.audit.prior)
        low = estimators.delta_prime(run.worlds, loss, bounds.epsilon, level).interval.low
        alarm = None
        if low > limit:
            alarm = (
                f"The belief passes rho_beta too often: in at least {low:.2g} of the trials on D "
                f"{SURE}, but under this noise no pair passes it in more than {limit:.2g}."
            )
        yield Check("delta_prime", alarm)
    # The steps are known, and so is the mu that they compose to: this check has no chance in it.
    realised = float(forecast.trial_mu(transcript["sensitivities"], transcript["noise_stds"]).max())
    alarm = None
    if realised > EXCESS * mechanism.mu:
        alarm = (
            f"More was released than was accounted for. The {report.rounds} rounds of the "
            f"transcript compose to mu = {realised:.3f}, but the accounting of "
            f"{mechanism.steps} steps allows {mechanism.mu:.3f}. Not all rounds were composed, or "
            "a difference exceeds the sensitivity."
        )
    yield Check("composition", alarm, by_chance=False)
    sampled = config.participation.secret
    theory = "sampled steps" if sampled else "N(+-s^2/2, s^2), s = LS/sigma, step by step"
    fits = {"world_d": prediction.fit.world_d, "world_d_prime": prediction.fit.world_d_prime}
    for world, fit in fits.items():
        if fit is None:
            continue
        alarm = None
        if fit.p_value < 1 - level:
            alarm = (
                f"The log-odds in {world} do not follow {theory} "
                f"(Kolmogorov-Smirnov p = {fit.p_value:.2g}): the mechanism is not as claimed."
            )
        yield Check(world, alarm)
