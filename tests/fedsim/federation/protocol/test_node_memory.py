"""What a node remembers lasts from message to message, in Flower's state or in its own files."""

import stat

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedsim.federation.client import adversary_node


def _context(run_id, node_config):
    return Context(
        run_id=run_id, node_id=7, node_config=node_config, state=RecordDict(), run_config={}
    )


ARRAYS = {"ratios": np.arange(6.0).reshape(2, 3), "round": np.asarray(4)}


@pytest.fixture(params=["state", "files"])
def node_config(request, tmp_path):
    return {} if request.param == "state" else {"state-path": str(tmp_path / "state")}


def test_what_was_kept_comes_back(node_config):
    context = _context(1, node_config)
    assert adversary_node.recall(context, "memory") == {}
    adversary_node.remember(context, "memory", {"ratios": np.zeros(1)})
    adversary_node.remember(context, "memory", ARRAYS)
    found = adversary_node.recall(context, "memory")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_another_run_has_a_memory_of_its_own(node_config):
    adversary_node.remember(_context(1, node_config), "memory", ARRAYS)
    assert adversary_node.recall(_context(2, node_config), "memory") == {}


def test_files_survive_a_restart_that_flowers_state_does_not(tmp_path):
    config = {"state-path": str(tmp_path)}
    before = _context(1, config)
    adversary_node.remember(before, "memory", ARRAYS)
    assert len(before.state) == 0
    assert adversary_node.recall(_context(1, config), "memory").keys() == ARRAYS.keys()


def test_files_are_their_clients_alone_and_can_be_forgotten(tmp_path):
    context = _context(1, {"state-path": str(tmp_path / "state")})
    adversary_node.remember(context, "memory", ARRAYS)
    (file,) = (tmp_path / "state").iterdir()
    assert not stat.S_IMODE(file.stat().st_mode) & 0o077
    adversary_node.forget(context, ["memory", "never there"])
    assert not list((tmp_path / "state").iterdir())


def test_a_damaged_file_is_nothing_remembered(tmp_path):
    context = _context(1, {"state-path": str(tmp_path)})
    adversary_node.remember(context, "memory", ARRAYS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:40])
    assert adversary_node.recall(context, "memory") == {}
