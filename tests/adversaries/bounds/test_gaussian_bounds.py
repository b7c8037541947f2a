"""The studentised bounds hold for normal log-odds, equal variances or not, and refuse others."""

import warnings

import numpy as np
import pytest
from games import often_at_most
from scipy import stats

from adversaries.bounds.gaussian_bounds import (
    NORMALITY_LEVEL,
    NOT_NORMAL,
    TOO_MIXED,
    gaussian_bound,
    lessened,
    mixed_share,
    normality,
)

DELTA = 0.01


def adaptive(lacking, repeats, trials):
    """Worlds, log-odds and trial_mu of two steps, the second unnoticed where the first convinced.

    The largest mu is 1; lacking: how much of its square the second step has.
    """
    worlds, draw = np.arange(trials) % 2 == 0, np.random.default_rng(0)
    signs = np.where(worlds, 0.5, -0.5)
    noise, other = draw.standard_normal((2, repeats, trials))
    first = signs * (1 - lacking) + np.sqrt(1 - lacking) * noise
    second = np.where(first <= 0.5, lacking, 0.0)
    log_odds = first + signs * second + np.sqrt(second) * other
    return worlds, log_odds, np.sqrt(1 - lacking + second)


@pytest.mark.parametrize("lacking", [0.01, 0.1, 0.5])
def test_log_odds_of_varying_sensitivities_are_as_near_to_normal_as_their_share_says(lacking):
    worlds, log_odds, trial_mu = adaptive(lacking, 1, 200_000)
    share = mixed_share(trial_mu, 1.0)
    means = [log_odds[0, world].mean() for world in (worlds, ~worlds)]
    spreads = [log_odds[0, world].std() for world in (worlds, ~worlds)]
    assert means[0] - means[1] <= 1 + 0.01
    assert min(spreads) >= 1 - share
    assert lacking < 0.5 or min(spreads) < 0.9


def test_a_lessened_bound_is_rarely_above_the_largest_mu_and_says_what_it_assumes():
    worlds, log_odds, trial_mu = adaptive(0.004, 200, 60)
    wrong = lessen = 0
    for row, mu in zip(log_odds, trial_mu, strict=True):
        assert 0.02 < mixed_share(mu, 1.0) < 0.06
        bound = lessened(gaussian_bound(worlds, row, DELTA, 0.9), mu, DELTA)
        wrong += bound.details.get("mu_low", 0.0) > 1.0
        lessen += not bound.reason
    assert often_at_most(wrong, 200, 0.1)
    assert lessen > 150
    assert "approximately normal log-odds" in bound.assumes
    assert "noise as claimed, up to one scale" in bound.assumes
    assert mixed_share(np.array([1.0, 1 + 1e-7]), 1.0) == mixed_share(np.zeros(3), 1.0) == 0
    # Sensitivities may differ by more than the log-odds themselves: then nothing is left.
    refused = lessened(bound, np.array([0.0, 60.0]), DELTA)
    assert (refused.epsilon, refused.reason) == (0, TOO_MIXED)


def test_what_is_lessened_does_not_depend_on_the_noise_that_was_claimed():
    """Worlds that lie far apart pay for a mu of that size, and are refused earlier."""
    worlds, rng = np.arange(400) % 2 == 0, np.random.default_rng(1)
    varying = np.where(np.arange(400) % 100, 1.0, 0.9)  # a hundredth lacks .19 of its square
    found = {}
    for mu in (1.0, 2.0, 20.0):
        log_odds = mu * rng.standard_normal(400) + np.where(worlds, 0.5, -0.5) * mu**2
        bound = gaussian_bound(worlds, log_odds, DELTA, 0.95)
        low = bound.details["mu_low"]
        share = np.sqrt(0.0019 + 0.19**2 / 100 * low**2 / 4)
        found[mu] = [lessened(bound, claim * varying, DELTA) for claim in (0.1, mu, 50.0)]
        for less in found[mu]:
            assert less.epsilon == pytest.approx(found[mu][0].epsilon, rel=1e-9)
            assert less.reason or less.details["mu_low"] == pytest.approx(low * (1 - share))
    shares = [found[mu][0].details.get("mixed_share") for mu in found]
    assert shares[0] < shares[1]
    assert (shares[2], found[20.0][0].reason) == (None, TOO_MIXED)


@pytest.mark.parametrize(("share", "refused"), [(0.049, False), (0.051, True)])
def test_no_bound_is_lessened_by_more_than_a_twentieth(share, refused):
    """Mu squared that is even on [1 - 2 s^2, 1] of the largest lacks s^2 of it on average."""
    trial_mu = np.sqrt(np.linspace(1 - 2 * share**2, 1, 60))
    worlds = np.arange(60) % 2 == 0
    bound = gaussian_bound(worlds, worlds + stats.norm.ppf((np.arange(60) + 0.5) / 60), DELTA, 0.9)
    assert 0 < bound.details["mu_low"] < 1
    found = lessened(bound, trial_mu, DELTA)
    assert (found.epsilon == 0, found.reason is not None) == (refused, refused)


def test_the_check_is_anderson_and_darlings():
    sample = np.random.default_rng(2).standard_t(6, 300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy is changing what else it returns
        exact = stats.anderson(sample, "norm").statistic
    modified = exact * (1 + 0.75 / 300 + 2.25 / 300**2)
    p_value = np.exp(1.2937 - 5.709 * modified + 0.0186 * modified**2)
    assert modified > 0.6
    assert normality(sample, stats.norm.ppf((np.arange(300) + 0.5) / 300)) == pytest.approx(
        2 * p_value, rel=1e-9
    )


@pytest.mark.parametrize("n", [8, 30, 300])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.3, 0.9])
def test_normal_samples_are_refused_about_as_often_as_said(n, level):
    noise = np.random.default_rng(n).standard_normal((1500, 2, n))
    found = np.array([normality(one, other) for one, other in 5 * noise + 3])
    # Two independent looks at half the level each.
    expected = 1500 * (1 - (1 - level / 2) ** 2)
    assert abs((found <= level).sum() - expected) < 4 * np.sqrt(expected) + 0.1 * expected


def test_log_odds_that_do_not_look_normal_get_a_reason_and_no_number():
    worlds = np.arange(400) % 2 == 0
    generator = np.random.default_rng(3)
    for noise in (generator.standard_exponential(400), generator.choice([-1.0, 1.0], 400)):
        refused = gaussian_bound(worlds, 3.0 * worlds + noise, DELTA, 0.95)
        assert (refused.epsilon, refused.reason) == (0.0, NOT_NORMAL)
        assert refused.details["normality_p_value"] < NORMALITY_LEVEL
    accepted = gaussian_bound(worlds, 3.0 * worlds + generator.standard_normal(400), DELTA, 0.95)
    assert accepted.epsilon > 0
    assert accepted.reason is None
