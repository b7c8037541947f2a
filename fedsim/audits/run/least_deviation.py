"""Which shortfall of the noise the audit of a run would have seen, at every vantage.

The checks of `fedsim.audits.run.alarms` raise the alarm; any one of them suffices, so that the most
that one of them would have seen is what the audit would have.
"""

import math
from collections.abc import Iterator

from adversaries.statistics import forecast, gaussian
from adversaries.statistics.gaussian_bounds import LARGEST_SHARE, mixed_share
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from adversaries.statistics.trials import Floats
from fedsim.audits.measurements import vantage_report
from fedsim.audits.results.measured import AtVantage
from fedsim.audits.results.report import Report
from fedsim.audits.run import detectable
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.game.observers import at_server
from fedsim.privacy.trust.model import Vantage


def seen_below(run: AuditedRun, report: Report, vantage: Vantage, row: AtVantage) -> float | None:
    """Return the share of the claimed noise below which the audit would have seen a shortfall.

    Returns:
        The share, with `detectable.POWER`; 0 where no shortfall can be named, and None where
        nothing was measured or there is no limit to fall short of.
    """
    if row.empirical is None:
        return None
    if report.mechanism.noise == "pac":
        return 0.0
    if row.rho_alpha >= 1:
        return None
    return max((0.0, *_shares(run, report, vantage, row)))


def _shares(run: AuditedRun, report: Report, vantage: Vantage, row: AtVantage) -> Iterator[float]:
    error = 1 - run.played.level(ALARM_CONFIDENCE)
    configured = vantage is run.vantage
    if configured and report.residuals is not None:
        # Two-sided, and twice: of all steps together, and of the one that is furthest off.
        yield detectable.by_energy(report.residuals.noise.degrees_of_freedom, error / 4)
    sampled = run.releases.towards(vantage).sampled
    if (
        not at_server.is_exact(
            run.config.training.local_steps,
            run.config.federation.adversary_rounds,
            run.config.audit.mode,
            vantage,
        )
        or sampled
        or run.played.common
    ):
        return
    seen = vantage_report.seen_from(run.transcript, vantage, run.vantage)
    trial_mu = forecast.trial_mu(seen["sensitivities"], seen["noise_stds"])
    least = float(trial_mu.min())
    yield detectable.by_wins(least, row.rho_alpha, run.trials, error / 2)
    if configured and run.proven.not_normal is None:
        yield _by_separation(run, row.epsilon, trial_mu, error)


def _by_separation(run: AuditedRun, epsilon: float, trial_mu: Floats, error: float) -> float:
    """Return the share for the Gaussian bound, which is lessened where sensitivities vary."""
    share = mixed_share(trial_mu, float(trial_mu.max()))
    if share > LARGEST_SHARE or not math.isfinite(epsilon):
        return 0.0
    with_d = int(run.worlds.sum())
    limit = gaussian.mu_of_epsilon(epsilon, run.delta)
    signal = float(trial_mu.min()) * (1 - share)
    return detectable.by_separation(signal, limit, with_d, run.trials - with_d, error)
