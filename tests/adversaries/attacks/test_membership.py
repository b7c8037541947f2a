"""Yeom's attack does what a loop over records does, and wins a known game as often as it should."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from adversaries.attacks.membership import (
    membership_advantage,
    yeom,
    yeom_challenge,
)
from adversaries.errors import InputError
from adversaries.statistics.estimators import advantage


def by_hand(members, non_members):
    """The attack on one model, as Yeom et al. describe it: threshold, TPR, FPR."""
    threshold = sum(members) / len(members)
    true = sum(1 for loss in members if loss <= threshold) / len(members)
    false = sum(1 for loss in non_members if loss <= threshold) / len(non_members)
    return threshold, true, false


@pytest.fixture
def losses():
    rng = np.random.default_rng(0)
    members, non_members = rng.exponential(1, (50, 17)), rng.exponential(1.5, (50, 9))
    inclusion = rng.random((50, 17)) < 0.7
    inclusion[:, 0] = True
    return members, non_members, inclusion


def test_yeom_is_a_loop_over_trials_and_records(losses):
    members, non_members, inclusion = losses
    true, false = yeom(members, non_members, inclusion)
    decisions = yeom_challenge(non_members[:, 0], members, inclusion)
    for trial in range(50):
        own = members[trial][inclusion[trial]].tolist()
        threshold, expected_true, expected_false = by_hand(own, non_members[trial].tolist())
        assert true[trial] == pytest.approx(expected_true, rel=1e-12)
        assert false[trial] == pytest.approx(expected_false, rel=1e-12)
        assert decisions[trial] == (non_members[trial, 0] <= threshold)


def test_a_record_that_a_trial_did_not_train_on_counts_nowhere(losses):
    members, non_members, _ = losses
    inclusion = np.ones_like(members)
    inclusion[:, 3] = 0
    absent = members.copy()
    absent[:, 3] = np.nan
    without = np.delete(members, 3, axis=1)
    np.testing.assert_array_equal(yeom(absent, non_members, inclusion), yeom(without, non_members))
    np.testing.assert_array_equal(
        yeom_challenge(non_members[:, 0], absent, inclusion),
        yeom_challenge(non_members[:, 0], without),
    )


def test_weights_count_a_record_as_often_as_they_say(losses):
    members, non_members, _ = losses
    weights = np.ones_like(members)
    weights[:, :4] = 3
    repeated = np.concatenate([members, members[:, :4], members[:, :4]], axis=1)
    np.testing.assert_allclose(yeom(members, non_members, weights), yeom(repeated, non_members))


def test_tensors_give_the_same_arrays(losses):
    members, non_members, inclusion = losses
    tensors = [torch.tensor(array) for array in losses]
    tensors[0].requires_grad_()
    for ours, expected in zip(yeom(*tensors), yeom(members, non_members, inclusion), strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_array_equal(ours, expected)
    decisions = yeom_challenge(tensors[1][:, 0], tensors[0], tensors[2])
    assert decisions.dtype == bool
    np.testing.assert_array_equal(decisions, yeom_challenge(non_members[:, 0], members, inclusion))


def test_a_model_that_gives_every_record_the_same_loss_betrays_nobody():
    """The rounding of a mean depends on how many records there are, and so on the world."""
    worlds = np.arange(400) % 2 == 0
    loss = np.repeat(np.random.default_rng(3).random(200), 2)
    members = np.tile(loss[:, None], 100)
    inclusion = np.ones_like(members)
    inclusion[~worlds, 0] = 0
    decisions = yeom_challenge(loss, members, inclusion)
    assert advantage(worlds, np.where(decisions, 1.0, -1.0), 0.9).point == 0
    true, false = yeom(members, members[:, :7], inclusion)
    assert membership_advantage(true, false, 0.9).point == 0


rates = arrays(np.float64, st.integers(2, 30), elements=st.floats(0, 1))


@given(rates, st.floats(0.01, 0.999))
def test_membership_advantage_is_the_mean_difference_with_students_interval(true, confidence):
    false = true[::-1] ** 2
    found = membership_advantage(true, false, confidence)
    assert found.interval is not None
    assert found.point == pytest.approx(np.mean(true - false), abs=1e-12)
    assert -1 <= found.interval.low <= found.point <= found.interval.high <= 1
    spread = stats.sem(true - false)
    if spread > 1e-9:
        low, high = stats.t.interval(confidence, true.size - 1, np.mean(true - false), spread)
        assert found.interval.low == pytest.approx(max(-1, low), abs=1e-9)
        assert found.interval.high == pytest.approx(min(1, high), abs=1e-9)


def test_one_trial_has_a_point_but_no_interval():
    found = membership_advantage(np.array([0.75]), np.array([0.5]), 0.95)
    assert (found.point, found.standard_error, found.interval, found.trials) == (
        0.25,
        None,
        None,
        1,
    )


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: yeom(ONES[0], ONES), "give \\[T, n\\]"),
        (lambda: yeom(ONES, ONES[:1]), "at least one non-member"),
        (lambda: yeom(ONES, ONES[:, :0]), "at least one non-member"),
        (lambda: yeom(ONES, ONES, ONES[:, :2]), "give \\[T, n\\]"),
        (lambda: yeom(ONES, ONES, ONES * [[1], [0]]), "a trial has no member"),
        (lambda: yeom(ONES, ONES, -ONES), "a trial has no member"),
        (lambda: yeom(ONES[:, :0], ONES), "a trial has no member"),
        (lambda: yeom(ONES * np.nan, ONES), "a model diverged"),
        (lambda: yeom(ONES, ONES * np.inf), "a model diverged"),
        (lambda: yeom_challenge(ONES[0], ONES), "losses of the challenge are \\(3,\\)"),
        (lambda: yeom_challenge(np.array([1, np.nan]), ONES), "a model diverged"),
        (lambda: membership_advantage(ONES[0], ONES[0], 0.0), "confidence is 0.0"),
        (lambda: membership_advantage(ONES[0], ONES[0, :2], 0.9), "give both as \\[trials\\]"),
        (lambda: membership_advantage(ONES[0, :0], ONES[0, :0], 0.9), "there are no trials"),
    ],
)
def test_impossible_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
