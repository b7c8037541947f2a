"""What sees Opacus in tests that run loops in their own process."""

from collections.abc import Iterator

import opacus
import pytest
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fedsim.audits.loop.watching import LoopWatch


@pytest.fixture(scope="module")
def watch() -> Iterator[LoopWatch]:
    """Yield what sees Opacus, which is as it was for the tests that come after."""
    places = vars(opacus.optimizers).values(), vars(opacus.accountants).values()
    owners = {each for place in places for each in place if isinstance(each, type)}
    before = [(owner, dict(vars(owner))) for owner in (*owners, _BaseDataLoaderIter)]
    seer = LoopWatch()
    yield seer
    seer.clear()
    for owner, attributes in before:
        for name, value in attributes.items():
            if vars(owner)[name] is not value:
                setattr(owner, name, value)
