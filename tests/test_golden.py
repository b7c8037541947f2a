"""The numbers of every kind of result are the golden ones, of `tests/golden/values`.

`pytest tests/test_golden.py --golden` writes them anew: in a commit of its own that lists each
difference. An intended change of a key or a path changes `tests/golden/names.toml` alone.
"""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from .corpus import KINDS, values

HERE = Path(__file__).parent / "golden"

TOLERANCES = {
    "same": (0.0, 0.0),
    # Closed forms and roots in float64; bounds of roots are 1e-10 wide.
    "computed": (1e-8, 1e-12),
    # Gradients are float32, whose kernels sum in another order on another processor: a part in
    # 1e5 of a sum, which a few rounds make larger, and which may turn a decision of a few trials.
    "trained": (2e-3, 2e-3),
}
"""Relative and absolute tolerance of each group of names."""

FIRST = 3
"""Values of an array that are kept beside its norm."""


def _table():
    """Yield each group, stable name and pattern, whose stars are groups."""
    table = tomllib.loads((HERE / "names.toml").read_text(encoding="utf-8"))
    for group, names in table.items():
        for name, where in names.items():
            yield group, name, re.compile("(.*)".join(map(re.escape, where.split("*"))))


TABLE = list(_table())


def _golden(found):
    """Return the values that have a stable name, by group."""
    named = {group: {} for group in TOLERANCES}
    for key, value in found.items():
        for group, name, pattern in TABLE:
            if match := pattern.fullmatch(key):
                stars = ", ".join(each for each in match.groups() if each)
                named[group][f"{name} [{stars}]" if stars else name] = _plain(value)
    return named


def _plain(value):
    """Return a value as JSON has it: of an array the shape, the norm and the first values."""
    if not isinstance(value, np.ndarray):
        return value
    numbers = value.astype(float).ravel()
    first = [float(each) for each in numbers[:FIRST]]
    return {"shape": [*value.shape], "norm": float(np.linalg.norm(numbers)), "first": first}


def _leaves(value, name):
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{name} {key}")
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _leaves(each, f"{name} {place}")
    else:
        yield name, value


def _equal(here, golden, group):
    numbers = (int, float)
    if isinstance(here, bool) or not (isinstance(here, numbers) and isinstance(golden, numbers)):
        return here == golden
    relative, absolute = TOLERANCES[group]
    return bool(np.isclose(here, golden, rtol=relative, atol=absolute, equal_nan=True))


@pytest.mark.parametrize("name", KINDS)
def test_the_numbers_are_the_golden_ones(name, played, pytestconfig):
    here = _golden(values(played))
    if not KINDS[name].seeded:
        here["trained"] = {}
    path = HERE / "values" / f"{name}.json"
    if pytestconfig.getoption("golden"):
        path.write_text(json.dumps(here, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        return
    golden = json.loads(path.read_text(encoding="utf-8"))
    for group in TOLERANCES:
        ours, theirs = dict(_leaves(here[group], "")), dict(_leaves(golden[group], ""))
        assert sorted(ours) == sorted(theirs)
        apart = {
            key: (value, theirs[key])
            for key, value in ours.items()
            if not _equal(value, theirs[key], group)
        }
        assert not apart, f"{len(apart)} numbers moved, (here, golden)"


def test_every_name_has_a_value():
    files = [path.read_text(encoding="utf-8") for path in (HERE / "values").glob("*.json")]
    unused = [name for _, name, _ in TABLE if not any(f'"{name}' in text for text in files)]
    assert not unused


def test_every_kind_has_a_file_and_every_file_a_kind():
    assert sorted(path.stem for path in (HERE / "values").glob("*.json")) == sorted(KINDS)
