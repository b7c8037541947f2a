"""The data of an audit, and its two worlds: a record's absence, or another in its place."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.audits.loop.contract import Data, drawn, pairs
from fedsim.privacy.mechanism import Neighbouring
from tests.console import run

OWN = Path(__file__).parents[3] / "apps" / "loops" / "own_loops.py"


def records(count=12, floating=False):
    random = np.random.default_rng(1)
    labels = random.random(count).astype(np.float32) if floating else np.arange(count) % 3
    return Data(random.standard_normal((count, 2, 2)).astype(np.float32), labels)


def differing(one, other):
    same = (one.features == other.features).all(axis=(1, 2)) & (one.labels == other.labels)
    return np.flatnonzero(~same).tolist()


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("target", ["crafted", "real"])
def test_worlds_are_neighbours_by_either_relation(target, floating):
    data = records(floating=floating)
    for pair in pairs(data, target, Neighbouring.REPLACE, 0):
        assert differing(pair.present, pair.absent) == [pair.place]
        assert differing(pair.present, pair.twin()) == [pair.place]
    for pair in pairs(data, target, Neighbouring.ADD_REMOVE, 0):
        assert len(pair.absent) == len(data) - 1
        assert differing(pair.present.without(pair.place), pair.absent) == []
        assert differing(pair.present, pair.twin()) == [pair.place]
    assert differing(data, records(floating=floating)) == []


def test_a_real_target_is_the_record_that_is_least_like_others():
    for floating in (False, True):
        data = records(floating=floating)
        data.features[5] += 100
        (pair,) = pairs(data, "real", Neighbouring.ADD_REMOVE, 0)
        assert (pair.place, differing(data, pair.present)) == (5, [])


def test_two_records_are_too_few():
    with pytest.raises(InputError, match="too few"):
        pairs(records(2), "real", Neighbouring.ADD_REMOVE, 0)


CODE = """
import numpy as np, torch
features = np.arange(24).reshape(12, 2)
pair = features, np.arange(12) % 2
def tensors():
    return torch.tensor(features), torch.linspace(0, 1, 12)
def of_one(root): ...
def fails():
    raise OSError("no disk")
one, short, text = features, (features, np.arange(3)), (features, np.array(["a"] * 12))
far = 100.0 * features, np.arange(12) % 2
infinite = features * np.nan, np.arange(12)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_of_worlds", raising=False)
    path = tmp_path / "mine_of_worlds.py"
    path.write_text(CODE)
    return path


def test_data_may_be_a_pair_or_a_function_in_the_user_s_own_code(mine):
    found = drawn(f"{mine}:pair", 12, 0)
    assert (found.features.dtype, found.labels.dtype) == (np.float32, np.int64)
    assert sorted(found.features[:, 0]) == list(range(0, 24, 2))
    assert (found.features[:, 0] / 2 % 2 == found.labels).all()
    found = drawn("mine_of_worlds:tensors", 5, 0)
    assert (found.labels.dtype, len(found)) == (np.float32, 5)


def test_data_of_a_file_keep_labels_that_are_numbers(tmp_path):
    path, labels = tmp_path / "mine.npz", np.linspace(0, 1, 12)
    np.savez(path, features=np.zeros((12, 3)), labels=labels)
    assert sorted(drawn(str(path), 12, 0).labels) == pytest.approx(labels)
    np.savez(path, features=np.zeros((12, 3)), labels=np.array(["no", "yes"] * 6))
    assert sorted(drawn(str(path), 12, 0).labels) == [0] * 6 + [1] * 6


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "cannot be imported"),
        ("of_one", "a pair"),
        ("fails", "OSError: no disk"),
        ("one", "a pair"),
        ("short", r"labels int64 \(3,\)"),
        ("text", "give numbers"),
        ("infinite", "not finite"),
    ],
)
def test_other_data_are_refused_in_one_line(name, why, mine):
    with pytest.raises(InputError, match=why) as refused:
        drawn(f"{mine}:{name}", 5, 0)
    assert "\n" not in str(refused.value)


def test_what_is_no_data_set_at_all_is_refused_with_what_there_is(tmp_path):
    with pytest.raises(InputError, match="digits"):
        drawn("cifar10", 5, 0)
    with pytest.raises(InputError, match="at most"):
        drawn("digits", 10**6, 0)
    with pytest.raises(InputError, match="at most"):
        drawn("digits", -1, 0)


@pytest.mark.slow
def test_a_loop_is_audited_on_data_of_its_own_with_a_real_target_that_another_replaces(mine):
    result = run(
        f"audit {OWN}:no_clipping --data {mine}:far --records 12 --pair real "
        "--neighbouring replace --claimed-epsilon .5 --claimed-delta 1e-5 --trials 60 --json"
    )
    report = json.loads(result.stdout)
    assert (report["verdict"], result.exit_code) == ("convicted", 4)
    played = report["details"]
    assert (played["neighbouring"], played["records"]) == ("replace", 12)
    assert played["worlds"] == "a real record"
