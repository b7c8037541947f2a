"""Trials that stop by what they showed: planned analyses, and intervals that still cover."""

import numpy as np
import pytest

from adversaries.errors import InputError
from adversaries.statistics.design import Design
from adversaries.statistics.estimators import advantage
from adversaries.statistics.stopping import LAST_SHARE, enough, interim_analyses


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize(("halfwidth", "most", "batch"), [(0.05, 10**6, 100), (0.3, 90, 8)])
def test_looks_are_whole_batches_and_spend_the_significance_once(
    halfwidth: float, most: int, batch: int, common: bool
) -> None:
    planned = interim_analyses(halfwidth, 0.95, most, batch, common)
    assert sum(planned.values()) == pytest.approx(1)
    assert list(planned) == sorted(planned)
    *early, last = planned
    assert all(analysis % batch == 0 for analysis in early)
    assert last == min(most, -(-enough(halfwidth, 0.95, common) // batch) * batch)
    assert planned[last] == LAST_SHARE[common]


def test_a_campaign_of_one_look_keeps_all_of_the_significance() -> None:
    assert interim_analyses(0.2, 0.95, 40, 40, False) == {40: 1.0}


@pytest.mark.parametrize("common", [False, True])
def test_the_last_look_is_precise_enough_whatever_was_found(common: bool) -> None:
    trials = enough(0.5, 0.9, common)
    design = Design(common, LAST_SHARE[common])

    def widest(trials: int) -> float:
        pairs = trials // 2
        worlds = np.tile([True, False], pairs)
        found = []
        for both in range(pairs + 1):
            for none in range(pairs + 1 - both):
                won = np.repeat([[1, 1], [1, 0], [0, 0]], [both, pairs - both - none, none], axis=0)
                odds = np.where(won.ravel() == worlds, 1.0, -1.0)
                ends = advantage(worlds, odds, 0.9, design).interval
                found.append((ends.high - ends.low) / 2)
        return max(found)

    assert widest(trials) <= 0.5
    # Counts at the middle of an odd number of pairs are not the widest of all: two pairs' slack.
    assert widest(trials - 6) > 0.5


@pytest.mark.parametrize(
    ("common", "probabilities"),
    [
        (False, (0.25, 0.5, 0.25)),
        (False, (0.36, 0.48, 0.16)),
        (False, (0.27, 0.66, 0.07)),  # .9 and .3
        (True, (0.2, 0.8, 0.0)),
        (True, (0.05, 0.9, 0.05)),
    ],
)
def test_the_interval_covers_at_the_stop(
    common: bool, probabilities: tuple[float, float, float]
) -> None:
    halfwidth, batch, repeats, confidence = 0.35, 10, 2000, 0.9
    truth = probabilities[0] - probabilities[2]
    planned = interim_analyses(halfwidth, confidence, 10**6, batch, common)
    random = np.random.default_rng(3)
    drawn = random.multinomial(batch // 2, probabilities, (repeats, max(planned) // batch)).cumsum(
        1
    )
    covered, running = 0, np.ones(repeats, bool)
    for analysis, share in planned.items():
        counts, index = np.unique(drawn[:, analysis // batch - 1], axis=0, return_inverse=True)
        ends = []
        for both, one, none in counts:
            worlds = np.tile([True, False], analysis // 2)
            won = np.repeat([[1, 1], [1, 0], [0, 0]], [both, one, none], axis=0)
            odds = np.where(won.ravel() == worlds, 1.0, -1.0)
            found = advantage(worlds, odds, confidence, Design(common, share)).interval
            ends.append((found.low, found.high))
        low, high = np.array(ends)[index.ravel()].T
        now = running & (((high - low) / 2 <= halfwidth) | (analysis == max(planned)))
        covered += int((now & (low <= truth) & (truth <= high)).sum())
        running &= ~now
    assert not running.any()
    assert covered / repeats >= confidence - 3 * np.sqrt(0.09 / repeats)


@pytest.mark.parametrize("halfwidth", [0.0, 1.0, -0.1])
def test_an_impossible_halfwidth_is_refused(halfwidth: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        enough(halfwidth, 0.95, False)
