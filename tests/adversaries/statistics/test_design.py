"""Trials in pairs with common random numbers have an interval of their own, which covers."""

import itertools

import numpy as np
import pytest
from scipy.stats import multinomial

from adversaries.attacks.membership import challenge_advantage
from adversaries.bounds.lower_bounds import COMMON as NEEDS_INDEPENDENCE
from adversaries.bounds.lower_bounds import LOWER_BOUNDS, MechanismKind, lower_bounds
from adversaries.errors import InputError
from adversaries.statistics.design import INDEPENDENT, Design, pair_scores, paired_interval
from adversaries.statistics.estimators import advantage
from adversaries.statistics.trials import Bools, Floats

COMMON = Design(common=True)


def _pairs(both: int, one: int, none: int) -> tuple[Bools, Floats]:
    """Return worlds and log-odds of so many pairs won twice, once (that on D) and never."""
    worlds = np.tile([True, False], both + one + none)
    won = np.repeat([[True, True], [True, False], [False, False]], [both, one, none], axis=0)
    return worlds, np.where(won.ravel() == worlds, 1.0, -1.0)


@pytest.mark.parametrize(
    "probabilities", [(0.25, 0.5, 0.25), (0.2, 0.8, 0.0), (0.1, 0.85, 0.05), (0.9, 0.1, 0.0)]
)
def test_the_interval_of_pairs_covers_whatever_their_dependence(
    probabilities: tuple[float, float, float],
) -> None:
    pairs, missed = 12, 0.0
    truth = probabilities[0] - probabilities[2]
    for both, none in itertools.product(range(pairs + 1), repeat=2):
        if both + none > pairs:
            continue
        counts = both, pairs - both - none, none
        found = advantage(*_pairs(*counts), 0.9, COMMON).interval
        if not found.low <= truth <= found.high:
            missed += multinomial.pmf(counts, pairs, probabilities)
    assert missed <= 0.1


def test_point_and_standard_error_are_those_of_the_mean_scores_of_pairs() -> None:
    found = advantage(*_pairs(20, 70, 10), 0.95, COMMON)
    scores = np.repeat([1, 0, -1], [20, 70, 10])
    assert found.point == pytest.approx(scores.mean())
    assert found.standard_error == pytest.approx(scores.std() / 10)
    assert found.interval.confidence == 0.95
    assert found.interval.low < found.point < found.interval.high


def test_pairs_that_are_never_lost_twice_have_a_shorter_interval_than_independent_trials() -> None:
    worlds, odds = _pairs(50, 200, 0)
    common = advantage(worlds, odds, 0.95, COMMON).interval
    alone = advantage(worlds, odds, 0.95).interval
    assert common.high - common.low < 0.75 * (alone.high - alone.low)


def test_a_tie_widens_the_interval_at_both_ends() -> None:
    worlds, odds = _pairs(10, 20, 2)
    tied = odds.copy()
    tied[2 * 15] = 0  # of a pair that won once
    lost, won = odds.copy(), odds.copy()
    lost[2 * 15] = -1  # worlds[30] is D
    found = advantage(worlds, tied, 0.9, COMMON).interval
    assert found.low == advantage(worlds, lost, 0.9, COMMON).interval.low
    assert found.high == advantage(worlds, won, 0.9, COMMON).interval.high


def test_trials_that_are_in_no_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="pairs of opposite worlds"):
        pair_scores(np.array([True, True]), np.array([1, 1]))
    with pytest.raises(InputError, match="pairs of opposite worlds"):
        paired_interval(np.array([True, False, True]), np.array([1, 1, 1]), 0.95)


def test_a_look_is_computed_at_its_share_of_the_significance() -> None:
    worlds, odds = _pairs(20, 30, 10)
    analysis = Design(share=0.25)
    found = advantage(worlds, odds, 0.8, analysis)
    strict = advantage(worlds, odds, 0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (strict.interval.low, strict.interval.high)
    )
    assert found.interval.confidence == 0.8
    assert INDEPENDENT.level(0.95) == pytest.approx(0.95)
    rng = np.random.default_rng(0)
    spread = odds + rng.standard_normal(odds.size) / 4
    looked = lower_bounds(worlds, spread, 1e-3, 0.8, MechanismKind.GAUSSIAN, design=analysis)
    for name, bound in lower_bounds(worlds, spread, 1e-3, 0.95, MechanismKind.GAUSSIAN).items():
        assert looked[name].epsilon == pytest.approx(bound.epsilon)
        assert looked[name].confidence == 0.8
    decided = challenge_advantage(worlds, odds > 0, 0.8, analysis).interval
    assert decided.low == pytest.approx(strict.interval.low)


def test_only_bounds_that_allow_for_dependent_worlds_speak_of_common_random_numbers() -> None:
    worlds, odds = _pairs(400, 80, 0)
    found = lower_bounds(worlds, odds, 1e-9, 0.95, MechanismKind.GAUSSIAN, design=COMMON)
    plain = lower_bounds(worlds, odds, 1e-9, 0.95, MechanismKind.GAUSSIAN)
    assert found["clopper_pearson"].epsilon == pytest.approx(plain["clopper_pearson"].epsilon)
    assert found["clopper_pearson"].epsilon > 0
    assert list(found) == list(LOWER_BOUNDS)
    for name, estimator in LOWER_BOUNDS.items():
        refused = found[name].reason == NEEDS_INDEPENDENCE
        assert refused == (not estimator.dependent_worlds)
        assert found[name].epsilon == (0 if refused else plain[name].epsilon)
