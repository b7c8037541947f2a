"""The report leads with a bound chosen in advance and says whether trust and distrust agree."""

import numpy as np
import pytest

from adversaries.bounds.gaussian_bounds import mixed_share
from adversaries.statistics.intervals import EpsilonBound
from fedsim.audits.measurements import bounds_audit
from fedsim.audits.measurements.bounds_audit import BoundsAudit
from fedsim.audits.results import verdicts
from fedsim.game.mechanisms import privacy

ROUNDS = 30
NOISE = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 4.0}


@pytest.fixture
def config(small):
    return small({"training.rounds": ROUNDS, "privacy.delta": 0.01})


def play(config, noise, trials=600, seed=0, spread=0.0):
    """Log-odds by the claimed noise, where the real one is `noise` times as much.

    spread: of the challenge's sensitivity between the trials.
    """
    mechanism = privacy.mechanism(config, privacy.noise_multiplier(config))
    worlds = np.arange(trials) % 2 == 0
    draw = np.random.default_rng(seed).standard_normal(trials)
    log_odds = np.where(worlds, 0.5, -0.5) * mechanism.mu**2 + mechanism.mu * noise * draw
    transcript = {
        "worlds": worlds,
        "log_odds": log_odds[:, None],
        "sensitivities": np.linspace(1 - spread, 1, trials)[:, None],
        "noise_stds": np.ones((trials, 1)),
    }
    return mechanism, transcript


def judged(config, mechanism, transcript):
    """Return the alarms, the bounds, and the name of the one that leads."""
    audit = BoundsAudit(config, mechanism, transcript, 0.01)
    checks, found = audit.checks(1.3), audit.bounds(0.95)
    return verdicts.alarms(checks), found, bounds_audit.headline(found)


def test_noise_as_claimed_raises_no_alarm_and_much_less_raises_that_of_every_bound(config):
    assert judged(config, *play(config, noise=1.0))[0] == {}
    alarms, *_ = judged(config, *play(config, noise=0.05))
    assert alarms.keys() == {"clopper_pearson", "gaussian", "mu_gdp"}


def test_full_batches_lead_with_the_studentised_bound(config):
    _, found, leading = judged(config, *play(config, noise=1.0))
    assert leading == "gaussian"
    assert "trade_off" not in found


def test_a_challenge_that_moves_the_sums_differently_every_time_has_no_normal_log_odds(config):
    _, found, leading = judged(config, *play(config, noise=1.0, spread=0.1))
    assert leading == "mu_gdp"
    assert "differently in every trial" in found["gaussian"].reason


@pytest.mark.parametrize(("share", "leading"), [(0.049, "gaussian"), (0.051, "mu_gdp")])
def test_a_twentieth_of_the_spread_is_as_far_from_normal_as_log_odds_may_be(share, leading, config):
    mechanism, transcript = play(config, noise=1.0, spread=share**2)
    mu = transcript["sensitivities"][:, 0]
    assert mixed_share(mu, 1.0) == pytest.approx(share, abs=3e-4)
    assert judged(config, mechanism, transcript)[2] == leading


def test_where_it_hardly_does_the_bound_pays_for_it(config):
    """A mu that is uniform on [1 - s, 1] of the largest lacks s of its square on average."""
    spread = 1e-3
    exact, mixed = (
        judged(config, *play(config, noise=1.0, spread=s))[1]["gaussian"] for s in (0.0, spread)
    )
    assert mixed.details["mixed_share"] == pytest.approx(np.sqrt(spread), rel=0.01)
    assert mixed.details["mu_low"] == pytest.approx(
        exact.details["mu_low"] * (1 - mixed.details["mixed_share"])
    )
    assert 0 < mixed.epsilon < exact.epsilon


@pytest.mark.slow
def test_sampled_steps_lead_with_their_trade_off_curve(small):
    config = small({"training.sampling-rate": 0.3})
    _, bounds, leading = judged(config, *play(config, noise=1.0))
    assert leading == "trade_off"
    assert bounds["trade_off"].epsilon > 0
    assert "see trade_off" in bounds["mu_gdp"].reason
    assert bounds["gaussian"].reason == "log-odds are not normal under sampling"


def test_local_steps_leave_what_counts_decisions(small):
    config = small({"training.local-steps": 2, "federation.trust": "local"})
    assert judged(config, *play(config, noise=1.0))[2] == "mu_gdp"


def test_the_headline_does_not_depend_on_which_bound_is_largest():
    def bound(epsilon, reason=None):
        return EpsilonBound(epsilon, 0.01, 0.95, "", "", reason=reason)

    bounds = {"clopper_pearson": bound(9.0), "gaussian": bound(0.0), "mu_gdp": bound(3.0)}
    assert bounds_audit.headline(bounds) == "gaussian"
    assert bounds_audit.headline(bounds | {"gaussian": bound(0.0, "refused")}) == "mu_gdp"
    assert bounds_audit.headline({"clopper_pearson": bound(1.0)}) == "clopper_pearson"
