"""What sees Opacus in tests that run loops in their own process."""

from collections.abc import Callable, Iterator

import numpy as np
import opacus
import pytest
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fedsim.audits.loop.contract import Data, pairs
from fedsim.audits.loop.guarantee import LoopObservation
from fedsim.audits.loop.running import Loop
from fedsim.audits.loop.watching import LoopWatch
from fedsim.learning.data import load
from fedsim.privacy.mechanism import Neighbouring

SEEDS = range(1000, 1004)


@pytest.fixture(scope="module")
def watch() -> Iterator[LoopWatch]:
    """Yield what sees Opacus, which is as it was for the tests that come after."""
    places = vars(opacus.optimizers).values(), vars(opacus.accountants).values()
    owners = {each for place in places for each in place if isinstance(each, type)}
    others = _BaseDataLoaderIter, DPTensorFastGradientClipping
    before = [(owner, dict(vars(owner))) for owner in (*owners, *others)]
    seer = LoopWatch()
    yield seer
    seer.clear()
    for owner, attributes in before:
        for name, value in attributes.items():
            if vars(owner)[name] is not value:
                setattr(owner, name, value)


Observe = Callable[..., LoopObservation]


@pytest.fixture(scope="session")
def observe() -> Observe:
    """Return a function that runs a loop honestly in both worlds, as an audit does."""

    def observation(
        loop: Loop, neighbouring: Neighbouring = Neighbouring.ADD_REMOVE, records: int = 63
    ) -> LoopObservation:
        digits = load("digits").train
        data = Data(np.float32(digits.features[:records]), np.asarray(digits.labels[:records]))
        pair = pairs(data, "crafted", neighbouring, 0)[-1]
        present, echo = loop.observed_runs(pair.present, SEEDS)
        return LoopObservation(
            present=present,
            echo=echo,
            absent=(loop.observed(pair.absent, SEEDS[0]),),
            twin=(loop.observed(pair.twin(), SEEDS[0]),),
            records=records,
            neighbouring=neighbouring,
            changed=loop.changed(pair.present, [pair.twin(), pair.stranger()], SEEDS[0]),
            influence=loop.influence(data, "crafted", SEEDS[0])[0],
        )

    return observation
