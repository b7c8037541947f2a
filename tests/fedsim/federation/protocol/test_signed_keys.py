"""A client that knows the others' node keys refuses the exchange keys of a hostile server."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.deployment import certificates
from fedsim.federation.protocol import secure_aggregation, signed_keys
from fedsim.federation.protocol.flower_private import Key, Stage
from fedsim.federation.protocol.secure_aggregation import SecureAggregationError, SecureSum
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.game.mechanisms import fixed_point

Asked = dict[str, Any]

CLIENTS, NODE = 3, FIRST_NODE
OTHER, THIRD = str(NODE + 1), str(NODE + 2)
SECAGG = {
    "federation.trust": "distributed",
    "federation.secure-aggregation": "secagg+",
    "trials.count": 4,
    "training.rounds": 2,
}


class HostileGrid(InProcessGrid):
    """A server that may change what it tells the clients about each other's exchange keys."""

    swap: Callable[[Asked, Asked], None] = staticmethod(lambda keys, signed: None)

    def send_and_receive(self, messages, *, timeout=None):
        """Change the keys that stage 2 distributes, for client 0 alone."""
        asked = list(messages)
        for message in asked:
            record = message.content.config_records.get(secure_aggregation.CONFIGS, ConfigRecord())
            if record.get(Key.STAGE) == Stage.SHARE_KEYS and message.metadata.dst_node_id == NODE:
                keys, signed = dict(record), dict(message.content[signed_keys.SIGNED])
                self.swap(keys, signed)
                message.content[secure_aggregation.CONFIGS] = ConfigRecord(keys)
                message.content[signed_keys.SIGNED] = ConfigRecord(signed)
        return super().send_and_receive(asked, timeout=timeout)


def _own_keys():
    """Return exchange keys of the server's, for which it has the private keys."""
    return [public_key_to_bytes(generate_key_pairs()[1]) for _ in range(2)]


def _swapped(keys, signed):
    keys[OTHER] = _own_keys()


def _all_swapped(keys, signed):
    keys[OTHER], keys[THIRD] = _own_keys(), _own_keys()


def _signed_by_the_server(keys, signed):
    keys[OTHER] = _own_keys()
    place = signed["nodes"].index(int(OTHER))
    signed["signatures"][place] = b"no signature of client 1"


def _plays_one_client_twice(keys, signed):
    first, second = (signed["nodes"].index(int(node)) for node in (OTHER, THIRD))
    keys[THIRD] = keys[OTHER]
    for name in ("clients", "signatures"):
        signed[name][second] = signed[name][first]


def _signatures_exchanged(keys, signed):
    signed["clients"].reverse()


def _unsigned(keys, signed):
    signed["signatures"] = []


def _a_stranger(keys, signed):
    signed["clients"][signed["nodes"].index(int(OTHER))] = 17


HOSTILE = {
    "swapped": (_swapped, "client 1 are not signed by its node key"),
    "all swapped": (_all_swapped, "are not signed by its node key"),
    "signed by the server": (_signed_by_the_server, "client 1 are not signed by its node key"),
    "one client twice": (_plays_one_client_twice, "lists a client twice"),
    "signatures exchanged": (_signatures_exchanged, "are not signed by its node key"),
    "unsigned": (_unsigned, "no signature for each client"),
    "a stranger": (_a_stranger, "no node key of client 17"),
}


def _keyed(grid, folder):
    """Give every client of a grid a node key, and the public keys of all."""
    peers = folder / "peers"
    peers.mkdir()
    for client, context in enumerate(grid.contexts.values()):
        pair = certificates.node_key()
        (folder / f"{client}.key").write_bytes(pair.private)
        (peers / f"client-{client}.pub").write_bytes(pair.public)
        paths = {"key-path": str(folder / f"{client}.key"), "peers-path": str(peers)}
        context.node_config.update(paths)


def _exchange(grid, config):
    setup = secure_aggregation.agreed_setup(config.federation.clients)
    lattice = fixed_point.agreed(config, 2.0, 650)
    total = SecureSum(grid, dict(enumerate(grid.get_node_ids())), lattice, setup, 1.0)
    return total.exchange_keys()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_client_refuses_exchange_keys_that_their_owner_did_not_sign(name, small, tmp_path):
    config = small(SECAGG)
    grid = HostileGrid(client_app.app, CLIENTS, to_run_config(config))
    _keyed(grid, tmp_path)
    swap, reason = HOSTILE[name]
    grid.swap = swap
    with pytest.raises(SecureAggregationError, match=f"client 0 failed: .*{reason}"):
        _exchange(grid, config)


def test_without_the_others_keys_a_client_believes_the_server(small):
    """The control: the attack works, so the single message is charged."""
    config = small(SECAGG)
    grid = HostileGrid(client_app.app, CLIENTS, to_run_config(config))
    grid.swap = _all_swapped
    assert NODE in _exchange(grid, config)


def test_a_signature_is_of_one_run_and_one_client(tmp_path, small):
    config = small(SECAGG)
    grid = InProcessGrid(client_app.app, CLIENTS, to_run_config(config))
    _keyed(grid, tmp_path)
    context = grid.contexts[NODE]
    keys = _own_keys()
    signature = signed_keys.sign(context, keys)
    record = signed_keys.listed({0: NODE}, {NODE: signature}, [NODE])
    signed_keys.check(context, record, {NODE: keys})
    with pytest.raises(RuntimeError, match="not signed by its node key"):
        signed_keys.check(context, record, {NODE: keys[::-1]})
    context.run_id += 1
    with pytest.raises(RuntimeError, match="not signed by its node key"):
        signed_keys.check(context, record, {NODE: keys})


def test_signed_keys_change_no_sum(small, run, tmp_path):
    config = small(SECAGG)
    plain = run(config)
    grid = InProcessGrid(client_app.app, CLIENTS, to_run_config(config))
    _keyed(grid, tmp_path)
    directory = RunDirectory.create(tmp_path / "keyed", config)
    server_app.carry_out(grid, preflight(config), directory)
    keyed = directory.read_arrays("transcript.npz")
    for name in ("log_odds", "final_models", "noise_stds"):
        np.testing.assert_array_equal(plain[name], keyed[name])


def test_half_of_the_keys_is_refused():
    with pytest.raises(RuntimeError, match="only one of key-path and peers-path"):
        signed_keys.knows_peers({"peers-path": "peers"})
