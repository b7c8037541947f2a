"""Flower's SecAgg+ gives the sum that the server would have computed in the clear, and no more."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import flower_private as flower
from fedsim.federation.protocol import messages, secure_aggregation
from fedsim.federation.protocol.flower_private import Key, Stage
from fedsim.federation.protocol.secure_aggregation import SecureAggregationError, SecureSum
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.federation.server.batch import Batch
from fedsim.federation.server.checkpoint import State
from fedsim.federation.server.plan import Plan, preflight
from fedsim.federation.server.training import Training
from fedsim.game import challenge
from fedsim.game.mechanisms import fixed_point

DISTRIBUTED = {"federation.trust": "distributed", "trials.count": 4, "training.rounds": 2}
SECAGG = DISTRIBUTED | {"federation.secure-aggregation": "secagg+"}


class ListeningGrid(InProcessGrid):
    """Keeps every reply, as a curious server would."""

    def __init__(self, config):
        super().__init__(client_app.app, config.federation.clients, to_run_config(config))
        self.heard: list[Message] = []

    def execute(self, message):
        self.heard.append(super().execute(message))
        return self.heard[-1]


@pytest.mark.parametrize("mode", ["participant", "oracle"])
def test_both_ways_of_summing_give_the_same_bits(mode, small, run):
    clear = run(small(DISTRIBUTED | {"audit.mode": mode}))
    masked = run(small(SECAGG | {"audit.mode": mode}))
    for name in ("log_odds", "final_models", "sensitivities", "noise_stds"):
        np.testing.assert_array_equal(clear[name], masked[name])


def test_no_sum_leaves_a_client_unmasked(small, tmp_path):
    config = small(SECAGG)
    grid = ListeningGrid(config)
    server_app.carry_out(grid, preflight(config), RunDirectory.create(tmp_path / "run", config))
    assert not any(messages.REPLY in reply.content for reply in grid.heard)
    sums = [
        secure_aggregation.masked(reply, (4, 650))
        for reply in grid.heard
        if Key.MASKED_PARAMETERS in reply.content.config_records.get(secure_aggregation.CONFIGS, {})
    ]
    assert len(sums) == 3 * 2
    # A message in the clear stays within a thousandth of the modulus around c; a mask fills it all.
    for each in sums:
        counts, _ = np.histogram(each, bins=8, range=(0, 2**32))
        assert counts.min() > each.size / 8 / 1.5


def test_a_client_refuses_to_be_asked_in_the_clear(small):
    config = small(SECAGG)
    grid = ListeningGrid(config)
    (reply,) = grid.send_and_receive([Message(RecordDict(), FIRST_NODE, "train")])
    assert "asks for a sum outside of secure aggregation" in reply.error.reason


@pytest.mark.parametrize(
    "weakened",
    [
        {Key.THRESHOLD: 3},
        {Key.SHARE_NUMBER: 4},
        # Masks drawn below a modulus of 2 are all 0, and a narrow range clips.
        {Key.MOD_RANGE: 2},
        {Key.TARGET_RANGE: 1},
        {Key.CLIPPING_RANGE: 1e-6},
        {Key.MAX_WEIGHT: 0.5},
    ],
)
def test_a_client_refuses_a_setup_that_hides_less_than_agreed(weakened, small):
    config = small(SECAGG | {"federation.clients": 5})
    grid = InProcessGrid(client_app.app, 5, to_run_config(config))
    nodes = list(grid.get_node_ids())
    lattice = fixed_point.agreed(config, 2.0, 650)
    setup = secure_aggregation.agreed_setup(config.federation.clients)
    weak = SecureSum(grid, dict(enumerate(nodes)), lattice, {**setup, **weakened}, 1.0)
    with pytest.raises(SecureAggregationError, match="but the clients agreed on"):
        weak.exchange_keys()


class TamperingGrid(InProcessGrid):
    """A server that asks the clients for shares that do not belong together."""

    tamper: Callable[[list[int], list[int]], tuple[list[int], list[int]]]

    def send_and_receive(self, messages, *, timeout=None):
        """Change who is said to be there and who is said to be missing."""
        asked = list(messages)
        for message in asked:
            record = message.content.config_records.get(secure_aggregation.CONFIGS, {})
            if record.get(Key.STAGE) == Stage.UNMASK:
                keys = Key.ACTIVE_NODE_ID_LIST, Key.DEAD_NODE_ID_LIST
                changed = self.tamper(*(record[key] for key in keys))
                record.update(dict(zip(keys, changed, strict=True)))
        return super().send_and_receive(asked, timeout=timeout)


TAMPERED = {
    "there and missing": (lambda there, _: (there, there[:1]), "would unmask one of them"),
    "missing": (lambda there, _: (there[:4], there[4:]), "would unmask one of them"),
    "there twice": (lambda there, _: ([*there[:4], there[0]], []), "would unmask one of them"),
    "too few there": (lambda there, _: (there[1:], []), "would unmask one of them"),
    "a stranger": (lambda there, _: ([*there[1:], 7], []), "KeyError: 7"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_client_gives_nobody_both_shares_of_another(name, small, tmp_path):
    tamper, reason = TAMPERED[name]
    config = small(SECAGG | {"federation.clients": 5})
    grid = TamperingGrid(client_app.app, 5, to_run_config(config))
    grid.tamper = tamper
    with pytest.raises(RuntimeError, match=rf"the last stage.*client 4 failed: .*{reason}"):
        server_app.carry_out(grid, preflight(config), RunDirectory.create(tmp_path / "run", config))


def test_too_few_shares_unmask_nothing(small):
    config = small(SECAGG)
    grid = InProcessGrid(client_app.app, 3, to_run_config(config))
    lattice = fixed_point.agreed(config, 2.0, 650)
    setup = secure_aggregation.agreed_setup(config.federation.clients)
    nodes = dict(enumerate(grid.get_node_ids()))
    total = SecureSum(grid, nodes, lattice, setup, 1.0)
    told = total.exchange_keys()
    assert len(told) == 3
    assert all(record[Key.STAGE] == Stage.COLLECT_MASKED_VECTORS for record in told.values())
    with pytest.raises(SecureAggregationError, match="it sent no sum"):
        total.unmask({}, (4, 650))


def test_flowers_masks_hang_on_32_bits_of_their_seed():
    """Whoever tries 2^32 seeds finds a mask: what the docs warn of."""
    long = bytes(range(32))
    folded = np.bitwise_xor.reduce(np.frombuffer(long, dtype="<u4")).tobytes()
    np.testing.assert_array_equal(
        flower.secagg_mask(long, 2**32, (5,)), flower.secagg_mask(folded, 2**32, (5,))
    )


def test_a_client_sends_the_sum_of_a_round_once(small):
    """Two sums of one round among other clients would differ by a single client's message."""
    config = small(SECAGG)
    grid = InProcessGrid(client_app.app, 3, to_run_config(config))
    chosen = challenge.choose(config)
    nodes = {partition: FIRST_NODE + partition for partition in range(3)}
    worlds = np.array([True, True, False, False])
    plan = Plan(config, 2.0, config.training.rounds, ())
    training = Training(grid, Batch(plan, chosen, nodes, range(4), worlds))
    start = State(0, np.zeros((4, 650), np.float32))
    training.play(start)
    with pytest.raises(RuntimeError, match="sent its sum of round 1 already"):
        training.play(start)
