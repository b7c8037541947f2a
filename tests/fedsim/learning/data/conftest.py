"""Where the real originals are, for the tests that read them."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("FEDSIM_DATA", Path(__file__).parents[4].parent / "shared" / "data"))


@pytest.fixture
def real():
    """Return a function that finds a folder of originals, and skips the test without it."""

    def find(name):
        if not (DATA / name).is_dir():
            pytest.skip(f"{DATA / name} is not there; say where with FEDSIM_DATA")
        return DATA / name

    return find
