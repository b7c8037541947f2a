"""The report leads with a bound chosen in advance and says whether trust and distrust agree."""

from collections.abc import Callable

import numpy as np
import pytest

from adversaries.bounds.gaussian_bounds import mixed_share
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.measurements import bounds_audit
from fedsim.audits.measurements.bounds_audit import BoundsAudit
from fedsim.audits.results import verdicts
from fedsim.audits.results.measured import Agreement
from fedsim.audits.results.theory import Fits, PredictionResult
from fedsim.config import Config, Scalar
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism

ROUNDS = 30
NOISE: dict[str, Scalar] = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 4.0}
Make = Callable[..., Config]


@pytest.fixture
def config(small: Make) -> Config:
    return small({"training.rounds": ROUNDS, "privacy.delta": 0.01})


def play(
    config: Config, noise: float, trials: int = 600, seed: int = 0, spread: float = 0.0
) -> tuple[Mechanism, Arrays]:
    """Log-odds by the claimed noise, where the real one is `noise` times as much.

    spread: of the challenge's sensitivity between the trials.
    """
    mechanism = privacy.mechanism(config.scheme, privacy.noise_multiplier(config.scheme))
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


def predicted(mu: float) -> PredictionResult:
    """Theory's word that mu is the same in all trials."""
    return PredictionResult(mu, None, None, "closed form", True, Fits(None, None), None)


def judged(
    config: Config, mechanism: Mechanism, transcript: Arrays
) -> tuple[dict[str, str], bounds_audit.Proven]:
    """Return the alarms, and the entries of the report."""
    prediction = predicted(mechanism.mu)
    audit = BoundsAudit(config.game, config.audit, mechanism, transcript, 0.01)
    comparisons = audit.comparisons(prediction)
    checks, found = audit.checks(comparisons, 1.3), audit.bounds(0.95)
    report = bounds_audit.report(found, audit.chances(found), comparisons, None)
    return verdicts.alarms(checks), report


def test_a_bound_above_epsilon_says_how_often_chance_alone_puts_it_there(config: Config) -> None:
    """Honest noise: the first seed whose Gaussian bound is above, as one in twenty may be."""
    for seed in range(200):
        mechanism, transcript = play(config, 1.0, 100, seed)
        audit = BoundsAudit(config.game, config.audit, mechanism, transcript, 0.01)
        chances = audit.chances(audit.bounds(0.95))
        if "gaussian" in chances:
            break
    p_value = chances["gaussian"]
    assert 0.001 < p_value < 0.05
    limit = PLD.epsilon(mechanism, 0.01)
    for significance, above in ((0.97 * p_value, False), (1.03 * p_value, True)):
        bounds = audit.bounds(1 - significance)
        assert (bounds["gaussian"].epsilon > limit) is above
    assert "jeffreys" not in chances
    # What is as sure as an alarm must be is no matter of chance.
    convicting = BoundsAudit(config.game, config.audit, *play(config, 0.5, 400), 0.01)
    assert "gaussian" not in convicting.chances(convicting.bounds(0.95))


def test_where_the_claim_is_true_trust_and_distrust_agree(config: Config) -> None:
    alarms, report = judged(config, *play(config, noise=1.0))
    assert alarms == {}
    assert report["agreement"].agree is True
    assert [each.name for each in report["agreement"].comparisons] == ["calibration", "mu"]


def test_honest_noise_is_not_accused(config: Config) -> None:
    """Two comparisons share one in ten thousand."""
    accused = 0
    for seed in range(60):
        mechanism, transcript = play(config, 1.0, 100, seed)
        prediction = predicted(mechanism.mu)
        comparisons = BoundsAudit(
            config.game, config.audit, mechanism, transcript, 0.01
        ).comparisons(prediction)
        accused += not all(comparison.agree for comparison in comparisons)
    assert accused == 0


@pytest.mark.parametrize(
    ("noise", "cause"), [(0.5, "less noise than claimed"), (2.0, "more noise than claimed")]
)
def test_other_noise_than_claimed_is_an_alarm_with_its_causes(
    config: Config, noise: float, cause: str
) -> None:
    alarms, report = judged(config, *play(config, noise))
    assert cause in alarms["trust"]
    assert "measured between" in alarms["trust"]
    assert report["agreement"].agree is False


def test_bounds_that_trust_the_noise_or_are_credible_raise_no_alarm(config: Config) -> None:
    mechanism, transcript = play(config, noise=0.05)
    alarms, report = judged(config, mechanism, transcript)
    assert {"clopper_pearson", "gaussian", "mu_gdp"} <= set(alarms)
    assert not {"jeffreys", "privacy_profile"} & set(alarms)
    assert report["lower_bounds"]["jeffreys"].kind == "credible"
    assert report["lower_bounds"]["privacy_profile"].trusts_noise


def test_full_batches_lead_with_the_studentised_bound(config: Config) -> None:
    _, report = judged(config, *play(config, noise=1.0))
    assert report["headline"].name == "gaussian"
    assert "trade_off" not in report["lower_bounds"]


def test_a_challenge_that_moves_the_sums_differently_every_time_has_no_normal_log_odds(
    config: Config,
) -> None:
    _, report = judged(config, *play(config, noise=1.0, spread=0.1))
    assert report["headline"].name == "mu_gdp"
    assert "differently in every trial" in report["lower_bounds"]["gaussian"].reason


@pytest.mark.parametrize(
    ("share", "leading", "comparisons"),
    [(0.049, "gaussian", ["calibration", "mu"]), (0.051, "mu_gdp", ["calibration"])],
)
def test_a_twentieth_of_the_spread_is_as_far_from_normal_as_log_odds_may_be(
    share: float, leading: str, comparisons: list[str], config: Config
) -> None:
    mechanism, transcript = play(config, noise=1.0, spread=share**2)
    mu = transcript["sensitivities"][:, 0]
    assert mixed_share(mu, 1.0) == pytest.approx(share, abs=3e-4)
    _, report = judged(config, mechanism, transcript)
    assert report["headline"].name == leading
    assert [each.name for each in report["agreement"].comparisons] == comparisons


def test_where_it_hardly_does_the_bound_pays_for_it(config: Config) -> None:
    """A mu that is uniform on [1 - s, 1] of the largest lacks s of its square on average."""
    spread = 1e-3
    exact, mixed = (
        judged(config, *play(config, noise=1.0, spread=s))[1]["lower_bounds"]["gaussian"]
        for s in (0.0, spread)
    )
    assert mixed.details["mixed_share"] == pytest.approx(np.sqrt(spread), rel=0.01)
    assert mixed.details["mu_low"] == pytest.approx(
        exact.details["mu_low"] * (1 - mixed.details["mixed_share"])
    )
    assert 0 < mixed.epsilon < exact.epsilon


def test_the_comparisons_share_the_error_of_an_alarm(config: Config) -> None:
    mechanism, transcript = play(config, noise=1.0)
    comparisons = BoundsAudit(config.game, config.audit, mechanism, transcript, 0.01).comparisons(
        predicted(mechanism.mu)
    )
    assert len(comparisons) == 2
    errors = sum(1 - comparison.confidence for comparison in comparisons)
    assert errors == pytest.approx(1 - ALARM_CONFIDENCE)


@pytest.mark.slow
def test_sampled_steps_lead_with_their_trade_off_curve(small: Make) -> None:
    config = small({"training.sampling-rate": 0.3})
    _, report = judged(config, *play(config, noise=1.0))
    bounds = report["lower_bounds"]
    assert report["headline"].name == "trade_off"
    assert report["headline"].epsilon == bounds["trade_off"].epsilon > 0
    assert "see trade_off" in bounds["mu_gdp"].reason
    assert bounds["gaussian"].reason == "log-odds are not normal under sampling"


def test_local_steps_leave_what_counts_decisions(small: Make) -> None:
    config = small({"training.local-steps": 2, "federation.trust": "local"})
    _, report = judged(config, *play(config, noise=1.0))
    assert report["headline"].name == "mu_gdp"
    assert report["lower_bounds"]["privacy_profile"].reason
    assert report["agreement"] == Agreement(None, [])


def test_the_headline_does_not_depend_on_which_bound_is_largest() -> None:
    def bound(epsilon: float, reason: str | None = None) -> EpsilonBound:
        return EpsilonBound(epsilon, 0.01, 0.95, "", "", False, reason=reason)

    bounds = {"clopper_pearson": bound(9.0), "gaussian": bound(0.0), "mu_gdp": bound(3.0)}
    assert bounds_audit.headline(bounds) == "gaussian"
    assert bounds_audit.headline(bounds | {"gaussian": bound(0.0, "refused")}) == "mu_gdp"
    assert bounds_audit.headline({"clopper_pearson": bound(1.0)}) == "clopper_pearson"


def test_the_profile_lies_about_that_of_the_claimed_mechanism(config: Config) -> None:
    game = play(config, noise=1.0)
    profile = BoundsAudit(config.game, config.audit, *game, 0.01).profile(0.999)
    assert profile is not None
    for direction in profile.directions.values():
        assert np.all(np.array(direction.low) <= profile.theory)
        assert np.all(np.array(direction.high) >= profile.theory)
