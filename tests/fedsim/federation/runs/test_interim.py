"""What is said of a campaign while it goes on: valid at every look, and no more than is known."""

import numpy as np
import pytest
from scipy.special import expit

from adversaries.statistics import estimators
from fedsim.federation.server import experiment


def test_a_look_has_what_the_estimators_say_at_its_share_of_the_significance():
    generator = np.random.default_rng(0)
    worlds, odds = np.arange(40) % 2 == 0, generator.normal(size=40)
    accuracies = [np.array([[0.0, 0.0], [0.5, 1.0]]), np.array([[0.0], [0.9]])]
    found = experiment.look(0.95, worlds, odds, accuracies, 4)
    expected = estimators.advantage(worlds, odds, 1 - 0.05 / 4)
    assert found["advantage"] == expected.point
    assert found["advantage_interval"] == pytest.approx([*expected.interval.ends], rel=1e-12)
    assert found["belief"] == expit(odds[worlds].max())
    assert found["accuracy"] == pytest.approx(0.8)
    assert experiment.look(0.95, worlds[:1], odds[:1], [], 1).keys() == {"belief"}


def test_whoever_stops_at_the_worst_look_is_misled_as_rarely_as_stated():
    """A coin's advantage is 0: of 200 campaigns with 12 looks, all must cover it in 95%.

    Of one interval at all of the significance a fifth misses it at some look.
    """
    generator = np.random.default_rng(1)
    worlds = np.arange(240) % 2 == 0
    missed = {True: 0, False: 0}
    for _ in range(200):
        odds = generator.normal(size=240)
        looks = [(n, worlds[: 20 * n], odds[: 20 * n]) for n in range(1, 13)]
        ends = [experiment.look(0.95, w, o, [], 12)["advantage_interval"] for _, w, o in looks]
        once = [estimators.advantage(w, o, 0.95).interval for _, w, o in looks]
        missed[True] += any(low > 0 or high < 0 for low, high in ends)
        missed[False] += any(each.low > 0 or each.high < 0 for each in once)
    assert missed[True] <= 10
    assert missed[False] > 10  # what the shares are for
