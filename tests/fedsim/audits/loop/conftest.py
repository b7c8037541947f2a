"""What sees Opacus in tests that run loops in their own process."""

import numpy as np
import pytest

from fedsim.audits.loop.contract import Data, pairs
from fedsim.audits.steps.classes import LoopWatch, unwrap
from fedsim.audits.steps.observation import Observation
from fedsim.learning.data import load
from fedsim.privacy.mechanism import Neighbouring

SEEDS = range(1000, 1004)


@pytest.fixture(scope="module")
def watch():
    """Yield what sees Opacus, which is as it was for the tests that come after."""
    yield (seer := LoopWatch())
    seer.clear()
    unwrap()


@pytest.fixture(scope="session")
def observe():
    """Return a function that runs a loop honestly in both worlds, as an audit does."""

    def observation(loop, neighbouring=Neighbouring.ADD_REMOVE, records=63):
        digits = load("digits").train
        data = Data(np.float32(digits.features[:records]), np.asarray(digits.labels[:records]))
        pair = pairs(data, "crafted", neighbouring, 0)[-1]
        present, echo = loop.observed_runs(pair.present, SEEDS)
        return Observation(
            present=present,
            echo=echo,
            absent=(loop.observed(pair.absent, SEEDS[0]),),
            twin=(loop.observed(pair.twin(), SEEDS[0]),),
            records=records,
            neighbouring=neighbouring,
            changed=loop.changed(pair.present, [pair.twin(), pair.stranger()], SEEDS[0]),
            influence=loop.influence(data, "crafted", SEEDS[0]),
        )

    return observation
