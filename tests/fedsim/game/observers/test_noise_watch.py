"""The noise of sums and messages: who is accused, in how many rounds, and who never is."""

import itertools
import math

import numpy as np
import pytest

from fedsim.game.observers.noise_watch import NoiseWatch, alarms, claimed_std

SIZE, CLIENTS, ROUNDS = 200, 4, 10


def _watched(noises, rounds, seed, confidence=0.9999):
    """Return who is accused after each round of clients who add so much of the noise of 1."""
    rng, watch, found = np.random.default_rng(seed), NoiseWatch(CLIENTS), []
    for _ in range(rounds):
        sent = {
            client: noise * rng.standard_normal(SIZE) + np.where(np.arange(SIZE) < 80, 9.0, 0.0)
            for client, noise in enumerate(noises)
        }
        watch.observe(np.sum(list(sent.values()), axis=0), math.sqrt(CLIENTS), sent, 1.0)
        found.append(watch.accused(confidence))
    return found


def test_half_of_the_noise_is_accused_within_ten_rounds_and_nobody_else():
    for seed in range(2):
        course = _watched([1.0, 0.5, 1.0, 1.0], ROUNDS, seed)
        assert course[-1] == ["client-1"]
        # Who was accused once stays accused.
        assert all(set(a) <= set(b) for a, b in itertools.pairwise(course))
    assert _watched([0.5] * CLIENTS, 3, 0)[-1] == ["sum", *map("client-{}".format, range(4))]


@pytest.mark.slow
def test_honest_noise_is_accused_in_no_more_trainings_than_alpha():
    accused = [bool(_watched([1.0] * CLIENTS, ROUNDS, seed, 0.8)[-1]) for seed in range(60)]
    assert np.mean(accused) <= 0.2


def test_who_comes_late_was_counted_from_the_beginning():
    rng, watch = np.random.default_rng(0), NoiseWatch(CLIENTS)
    alone = NoiseWatch()
    for _ in range(3):
        released = 0.5 * rng.standard_normal(SIZE)
        watch.observe(released, 1.0, {}, 1.0)
        alone.observe(released, 1.0, {}, 1.0)
    assert set(watch.limits(0.95)) == {"sum"}
    # A fifth of the significance, whatever was seen.
    assert watch.limits(0.95)["sum"] == alone.limits(0.99)["sum"]
    assert watch.accused(0.9999) == alone.accused(0.9999) == ["sum"]


def test_an_alarm_says_whose_noise_and_how_much():
    (said,) = alarms(["client-3"], {"sum": 1.2, "client-3": 0.594})
    assert said.startswith("The messages of client-3 have less than 0.594 times the claimed noise")
    # Accused before its own limit is below 1.
    (said,) = alarms(["sum"], {"sum": 1.09})
    assert said.startswith("The released sums have less noise than claimed")


def test_where_some_clients_join_those_expected_add_the_noise_together(small):
    changes = {"federation.clients": 4, "training.clipping-norm": 3.0}
    changes |= {"federation.trust": "distributed", "federation.sampling-rate": 0.5}
    config = small(changes)
    assert claimed_std(config, 2.0, 2) == pytest.approx(2 * 3)
    assert claimed_std(config, 2.0, 1) == pytest.approx(2 * 3 / math.sqrt(2))
