"""The measured trade-off curve stands beside the one of theory, and crosses it under less noise."""

import numpy as np
import pytest
from scipy.stats import norm

from fedsim.audits.measurements import trade_off_report
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust import Vantage

MU, TRIALS = 1.0, 600


def _seen(mu):
    """Return exact log-odds of a Gaussian game whose distance is `mu`."""
    worlds = np.arange(TRIALS) % 2 == 0
    scores = np.random.default_rng(0).normal(size=TRIALS) + mu * (worlds - 0.5)
    return {"worlds": worlds, "log_odds": (mu * scores)[:, None]}


def _towards(vantage):
    return Mechanism.alike(0.0 if vantage is Vantage.SERVER else 1 / MU, 1)


@pytest.mark.parametrize(("mu", "alarmed"), [(MU, False), (2 * MU, True)])
def test_only_a_game_that_leaks_more_than_claimed_is_alarmed(mu, alarmed):
    views = {Vantage.PARTICIPANT: _seen(mu), Vantage.SERVER: _seen(mu)}
    curves = trade_off_report.report(views, _towards, 0.95)
    curve = curves["participant"]
    np.testing.assert_allclose(curve.allowed, norm.cdf(norm.ppf(curve.rates) + MU))
    assert (curve.surely_above > 0) == alarmed
    inside = np.searchsorted(curve.false, 0.5)
    assert curve.true_low[inside] < norm.cdf(norm.ppf(curve.false[inside]) + mu)
    assert curve.true_high[inside] > norm.cdf(norm.ppf(curve.false[inside]) + mu)
    checks = trade_off_report.checks(curves, Vantage.PARTICIPANT)
    found = {name: bool(alarm) for name, alarm in checks.items()}
    assert found == {"curve": alarmed, "curve_server": False}


def test_a_vantage_that_was_not_measured_has_no_band():
    views = {Vantage.PARTICIPANT: _seen(MU), Vantage.RELEASED_MODEL: {}}
    assert list(trade_off_report.report(views, _towards, 0.95)) == ["participant"]
