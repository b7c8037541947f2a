"""Thousands of damaged files for every reader: refused in one line, or read as they were.

`pytest -m slow -s tests/fuzz` prints how many of each; FUZZ=N in the environment sets their number.
"""

import dataclasses
import os
import random
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from readers import READERS, played

from adversaries.errors import InputError

MUTATIONS = int(os.environ.get("FUZZ", "400"))

MOST_MEMORY = 2**29
"""Bytes that reading one of these files, of less than a megabyte, may take."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "run"
    directory = played(path)
    directory.write_json("nodes.json", {str(client): 1000 + client for client in range(3)})
    return path


def _plain(value):
    """Return what was read as something that can be compared."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_refused_in_one_line_or_read_as_it_was(name, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    reader = READERS[name](tmp_path)
    whole = reader.path.read_bytes()
    expected = _plain(reader.read())
    counts = Counter()
    peak = 0
    tracemalloc.start()
    try:
        for number in range(MUTATIONS):
            draw = random.Random(f"{name} {number}")
            how = draw.choice(reader.ways)
            reader.path.write_bytes(how(whole, draw))
            tracemalloc.reset_peak()
            try:
                found = _plain(reader.read())
            except InputError as error:
                assert "\n" not in str(error), number
                counts["refused"] += 1
            except Exception as error:
                error.add_note(f"{name}: mutation {number}, {how.__name__}")
                raise
            else:
                same = found == expected
                if reader.grows and not same:
                    same = found == expected[: len(found)]
                counts["as it was" if same else "another value"] += 1
                assert same or not reader.sealed, f"mutation {number}, {how.__name__} is believed"
            peak = max(peak, tracemalloc.get_traced_memory()[1])
            assert peak < MOST_MEMORY, f"mutation {number}, {how.__name__} takes {peak} bytes"
    finally:
        tracemalloc.stop()
    print(f"\n{name}: {dict(counts)}, at most {peak / 2**20:.0f} MiB")
