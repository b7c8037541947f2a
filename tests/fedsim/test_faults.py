"""What goes wrong in a federation ends a run by name, or is accounted; nothing is just wrong."""

import copy
import json
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.flower_private import NODE_UNAVAILABLE, Key, Stage
from fedsim.federation.protocol.secure_aggregation import CONFIGS, SecureAggregationError
from fedsim.federation.runs import ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.federation.server import nodes as node_module
from fedsim.federation.server.acceptance import ClientFailedError, quiet
from fedsim.federation.server.nodes import REGISTERED, Nodes
from fedsim.federation.server.plan import preflight
from fedsim.game import federation

TINY = {"trials.count": 4, "trials.batch": 2, "training.rounds": 2}
TOLERANT = TINY | {"federation.clients": 4, "federation.tolerated-dropouts": 1}
SECAGG = {"federation.trust": "distributed", "federation.secure-aggregation": "secagg+"}


class FaultyGrid(InProcessGrid):
    """A grid between whose nodes and server something happens to every message and its reply.

    fault: returns the reply that arrives, None for none.
    """

    def __init__(self, config, fault):
        super().__init__(client_app.app, config.federation.clients, to_run_config(config))
        self._fault = fault
        self._arrived: dict[str, Message] = {}

    def send_and_receive(self, messages, *, timeout=None):
        return list(self.pull_messages(list(self.push_messages(messages))))

    def push_messages(self, messages):
        ids = []
        for message in messages:
            content = copy.deepcopy(message.content)  # Flower's mod takes out what it reads
            reply = self.execute(message)
            message.content = content
            ids.append(message.metadata.message_id)
            if (arriving := self._fault(message, reply)) is not None:
                self._arrived[ids[-1]] = arriving
        return ids

    def pull_messages(self, message_ids):
        return [self._arrived.pop(id) for id in message_ids if id in self._arrived]


def _of(message, partition):
    return message.metadata.dst_node_id == FIRST_NODE + partition


def _stage(message):
    """Return the stage of secure aggregation that a message asks for, "" for none."""
    record = message.content.config_records.get(CONFIGS) if message.has_content() else None
    return "" if record is None else str(record[Key.STAGE])


def _run(config, directory, fault=lambda _, reply: reply):
    server_app.carry_out(FaultyGrid(config, fault), preflight(config), directory)
    return directory.read_arrays("transcript.npz")


@pytest.fixture
def chosen(small):
    """Return a function that tells the challenge's client, the adversary and one more client."""

    def roles(config):
        from fedsim.game import challenge  # noqa: PLC0415

        found = challenge.choose(config)
        others = set(range(config.federation.clients)) - {found.client, found.adversary}
        return found.client, found.adversary, min(others)

    return roles


# A killed server


class Killed(BaseException):
    """What kill -9 does, in a test."""


def _report(directory):
    """Return the report without what may differ: when the run was and how long it took."""
    report = json.loads((directory.path / "report.json").read_text(encoding="utf-8"))
    for name in ("created", "timing"):
        del report["details"][name]
    return report


MISSING = {
    "federation.clients": 5,
    "federation.tolerated-dropouts": 2,
    "federation.dropout-rate": 0.3,
}
KILLED = {
    "central": TINY,
    "distributed, clients missing": TOLERANT | {"federation.trust": "distributed"} | MISSING,
    "secagg+": TINY | SECAGG,
}


@pytest.mark.parametrize("name", KILLED)
def test_a_run_killed_in_a_round_ends_as_if_it_had_not_been(name, small, tmp_path):
    config = small(KILLED[name])
    whole = RunDirectory.create(tmp_path / "whole", config)
    expected = _run(config, whole)
    seen = []

    def kill(message, reply):
        # In the second round of the second batch of trials, when somebody has computed already.
        record = message.content.config_records.get(messages.REQUEST)
        if record is not None and (record["first_trial"], record["round"]) == (2, 2):
            seen.append(message)
            if len(seen) == 2:
                raise Killed
        return reply

    directory = RunDirectory.create(tmp_path / "killed", config)
    with pytest.raises(Killed):
        _run(config, directory, kill)
    found = _run(config, directory)
    for each in ("worlds", "log_odds", "noise_stds", "final_models", "epsilon_spent"):
        np.testing.assert_array_equal(found[each], expected[each], err_msg=each)
    assert _report(directory) == _report(whole)


def test_one_directory_has_one_run_at_a_time(small, tmp_path):
    config = small(TINY)
    directory = RunDirectory.create(tmp_path / "run", config)
    with (
        directory.lock(),
        pytest.raises(InputError, match=r"another process .*run.out"),
    ):
        _run(config, RunDirectory.open(directory.path))
    assert not list(directory.events())
    _run(config, directory)


def test_a_run_waits_for_the_end_of_its_last_process(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small(TINY))
    with ExitStack() as last:
        last.enter_context(directory.lock())
        threading.Timer(0.5, last.close).start()
        with directory.lock(patience=60):
            pass


# Clients that die, restart, or are others than they say


def test_a_client_that_is_gone_for_a_round_is_accounted(small, chosen, tmp_path):
    config = small(TOLERANT | {"federation.trust": "local"})
    *_, other = chosen(config)

    def gone(message, reply):
        request = message.content.config_records.get(messages.REQUEST, {})
        return None if _of(message, other) and request.get("round") == 2 else reply

    directory = RunDirectory.create(tmp_path / "run", config)
    found = _run(config, directory, gone)
    assert [(row.round, row.kind.participants) for row in ledger.read(directory)] == [
        (1, 4),
        (2, 3),
    ] * 2
    # The noise of two clients hides the challenge from the adversary at first, then that of one.
    ratio = found["noise_stds"][:, 1] / found["noise_stds"][:, 0]
    np.testing.assert_allclose(ratio, np.sqrt(2 / 3), rtol=1e-12)
    dropped = [event for event, _ in directory.events() if event.get("dropped") == other]
    assert [event["of"] for event in dropped] == ["round 2"] * 2
    assert all("no answer from client" in event["reason"] for event in dropped)


def test_an_adversary_that_was_restarted_says_what_it_lost(small, chosen, tmp_path):
    config = small(TINY)
    _, adversary, _ = chosen(config)
    directory = RunDirectory.create(tmp_path / "run", config)

    def restart(message, reply):
        if message.metadata.message_type == "train" and _of(message, adversary):
            grid.contexts[FIRST_NODE + adversary].state.clear()
        return reply

    grid = FaultyGrid(config, restart)
    with pytest.raises(ClientFailedError, match=r"state is missing.*was lost between rounds"):
        server_app.carry_out(grid, preflight(config), directory)

    def restart_at_last(message, reply):
        if message.metadata.message_type == "evaluate" and _of(message, adversary):
            grid.contexts[FIRST_NODE + adversary].state.clear()
        return reply

    grid = FaultyGrid(config, restart_at_last)
    with pytest.raises(ClientFailedError, match=r"no 'ratios': the node lost its Flower state"):
        server_app.carry_out(grid, preflight(config), directory)


def _experimenting(state):
    """Return the terms of a node whose records are public."""
    said = "adversary,central,challenge,experiment"
    return {"consent": said, "max-trials": 8, "state-path": str(state)}


def test_an_adversary_with_a_state_path_outlives_its_restart(small, run, tmp_path):
    config = small(TINY)

    def restart(_, reply):
        for context in grid.contexts.values():
            context.state.clear()
        return reply

    grid = FaultyGrid(config, restart)
    for node, context in grid.contexts.items():
        context.node_config |= _experimenting(tmp_path / f"state-{node}")
    directory = RunDirectory.create(tmp_path / "run", config)
    server_app.carry_out(grid, preflight(config), directory)
    found = directory.read_arrays("transcript.npz")
    np.testing.assert_array_equal(found["log_odds"], run(config)["log_odds"])


def test_a_partition_belongs_to_the_node_whose_key_is_its_clients(small, tmp_path, monkeypatch):
    config = small(TINY)
    directory = RunDirectory.create(tmp_path / "run", config)
    keys = {str(client): FIRST_NODE + client for client in range(3)}
    directory.write_json(REGISTERED, keys | {"1": FIRST_NODE, "0": FIRST_NODE + 1})
    with pytest.raises(InputError, match=r"node 1000 claims partition 0.*belongs to node 1001;"):
        _run(config, directory)
    # A node that is nobody's is not believed, and stops nobody: the client may still come.
    monkeypatch.setattr(node_module, "CONNECT_TIMEOUT", 0.1)
    directory.write_json(REGISTERED, keys | {"1": 77})
    with pytest.raises(
        InputError,
        match=r"2 of 3 .* Missing: client 1\. .*node 1001 claims partition 1, but ",
    ):
        _run(config, directory)
    directory.write_json(REGISTERED, keys)
    _run(config, directory)
    directory.write_text(REGISTERED, '{"0": "mine"}')
    with pytest.raises(InputError, match=r"cannot read nodes\.json"):
        _run(config, directory)


def _connected(grid, timeout, registered=None, log_event=quiet):
    found = Nodes(grid, 3, registered, log_event)
    found.connect(timeout)
    return found


def test_a_node_that_died_a_moment_ago_is_waited_for(small):
    asked = []

    def dead_at_first(message, reply):
        asked.append(message.metadata.dst_node_id)
        if asked.count(FIRST_NODE + 1) == 1 and _of(message, 1):
            return Message(Error(NODE_UNAVAILABLE, "Node Unavailable"), reply_to=message)
        return reply

    found = _connected(FaultyGrid(small(TINY), dead_at_first), 60.0)
    assert found.clients == {client: FIRST_NODE + client for client in range(3)}
    assert not found.auditors
    assert asked.count(FIRST_NODE) == 1

    def dead(message, reply):
        dying = Error(NODE_UNAVAILABLE, "Node Unavailable")
        return Message(dying, reply_to=message) if _of(message, 1) else reply

    with pytest.raises(
        InputError, match=r"2 of 3 clients connected.*failed to identify itself: Node Unav"
    ):
        _connected(FaultyGrid(small(TINY), dead), 0.1)


class CrowdedGrid(FaultyGrid):
    """A grid with one more node, which answers whatever `fault` makes of node 0's reply."""

    STRANGER = 99

    def get_node_ids(self):
        return [*super().get_node_ids(), self.STRANGER]

    def push_messages(self, messages):
        return [
            id
            for message in messages
            for id in (
                self._strange(message)
                if message.metadata.dst_node_id == self.STRANGER
                else super(CrowdedGrid, self).push_messages([message])
            )
        ]

    def _strange(self, message):
        reply = messages.reply(message, 0)
        id = message.metadata.message_id
        if (arriving := self._fault(message, reply)) is not None:
            self._arrived[id] = arriving
        return [id]


@pytest.mark.parametrize("claimed", [99.0, 1.0, float("inf"), 0.5])
def test_a_node_that_is_no_clients_stops_no_run(claimed, small):
    def lying(message, reply):
        if message.metadata.dst_node_id == CrowdedGrid.STRANGER:
            reply.content.metric_records[messages.METRICS]["partition"] = claimed
        return reply

    clients = {client: FIRST_NODE + client for client in range(3)}
    found = _connected(CrowdedGrid(small(TINY), lying), 1.0, clients)
    assert (found.clients, found.auditors) == (clients, set())


def test_a_second_answer_to_one_question_is_not_heard(small):
    class Echoing(FaultyGrid):
        def pull_messages(self, message_ids):
            return [each for reply in super().pull_messages(message_ids) for each in (reply, reply)]

    found = _connected(Echoing(small(TINY), lambda _, reply: reply), 1.0)
    assert found.clients == {client: FIRST_NODE + client for client in range(3)}


def test_an_absent_client_is_named_long_before_the_run_gives_up(small, monkeypatch):
    monkeypatch.setattr(node_module, "PATIENCE", 0.0)
    events = []

    def absent(message, reply):
        return None if _of(message, 1) else reply

    with pytest.raises(
        InputError, match=r"2 of 3 clients connected within 0.5 s. Missing: client 1\."
    ):
        _connected(FaultyGrid(small(TINY), absent), 0.5, None, lambda **event: events.append(event))
    assert events == [{"waiting": "client 1", "reasons": []}]


# Data that machines disagree about


def test_a_node_with_other_data_is_named_before_the_first_round(small, tmp_path):
    rng = np.random.default_rng(0)
    table = ["a,b,label", *(f"{a:.3f},{b:.3f},{int(a > b)}" for a, b in rng.random((80, 2)))]
    for name, lines in (("ours", table), ("other", [table[0], *table[:0:-1]])):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
    ours = {"data.name": "csv", "data.root": str(tmp_path / "ours.csv")}
    config = small(TINY | ours)
    grid = FaultyGrid(config, lambda _, reply: reply)
    elsewhere = {"data-path": str(tmp_path / "other.csv")} | _experimenting(tmp_path / "state")
    grid.contexts[FIRST_NODE + 2].node_config |= elsewhere
    directory = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(InputError, match=r"differ from the server's .*: client 2 has [0-9a-f]{16}"):
        server_app.carry_out(grid, preflight(config), directory)
    assert not (directory.path / ledger.FILE).exists()


# Clients that answer something else


@pytest.mark.parametrize(("trust", "factor"), [("central", 1.3), ("local", 1e30)])
def test_a_sum_is_no_longer_than_its_clients_records_and_noise_allow(
    trust, factor, small, chosen, tmp_path
):
    # One record of 24 each for two clients: the federation's records would allow 25 C.
    config = small(TINY | {"federation.trust": trust, "federation.partition": "quantity"})
    *_, other = chosen(config)
    held = len(federation.load(config).owned_by(other))

    def scaled(by):
        def fault(message, reply):
            if _of(message, other) and messages.REPLY in reply.content:
                total = messages.only(reply.content.array_records[messages.REPLY])
                longest = np.linalg.norm(total, axis=1, keepdims=True)
                if trust == "central":  # as long as clipping allows, and no longer
                    total = total / longest * (held + 1)
                reply.content[messages.REPLY] = messages.array_record(
                    sum=(total * by).astype(np.float32)
                )
            return reply

        return fault

    with pytest.raises(
        ClientFailedError, match=rf"client {other} failed.*its sum has norm .* allow"
    ):
        _run(config, RunDirectory.create(tmp_path / "false", config), scaled(factor))
    _run(config, RunDirectory.create(tmp_path / "true", config), scaled(1.0))


def test_noise_that_is_not_told_is_no_belief(small, chosen, tmp_path):
    config = small(TINY | {"federation.trust": "local", "audit.mode": "oracle"})
    *_, other = chosen(config)

    def secretive(message, reply):
        if _of(message, other):
            reply.content.pop(messages.MEASUREMENT, None)
        return reply

    directory = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(
        ClientFailedError, match=rf"client {other} failed.*'measurement' must have .*: noise"
    ):
        _run(config, directory, secretive)


def test_a_message_beyond_its_range_does_not_wrap_into_the_sum(small, chosen, tmp_path):
    config = small(TINY | {"federation.trust": "distributed"})
    *_, other = chosen(config)

    def wild(message, reply):
        if _of(message, other) and messages.REPLY in reply.content:
            words = messages.only(reply.content.array_records[messages.REPLY]).copy()
            words[0, 0] = 2**31
            reply.content[messages.REPLY] = messages.array_record(sum=words)
        return reply

    directory = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(ClientFailedError, match=rf"client {other} failed.*beyond the range"):
        _run(config, directory, wild)


def test_all_colluders_disclose_their_noise_and_nobody_else(small, chosen, tmp_path):
    config = small(
        TINY | {"federation.clients": 4, "federation.trust": "local", "federation.colluding": 1}
    )
    client, _, colluder = chosen(config)  # the lowest-numbered of the others

    def intruding(message, reply):
        if _of(message, client) and messages.REPLY in reply.content:
            noise = messages.array_record(noise=np.ones((2, 650)))
            reply.content[messages.DISCLOSED] = noise
        return reply

    def silent(message, reply):
        if _of(message, colluder):
            reply.content.pop(messages.DISCLOSED, None)
        return reply

    for fault, who, reason in (
        (intruding, client, "it has a record 'disclosed', which was not"),
        (silent, colluder, "its record 'disclosed' must have exactly these arrays: noise"),
    ):
        directory = RunDirectory.create(tmp_path / fault.__name__, config)
        with pytest.raises(ClientFailedError, match=f"client {who} failed.*{reason}"):
            _run(config, directory, fault)


@pytest.mark.parametrize(
    ("norms", "round", "reason"),
    [
        ([0.5, 1.5], 1, "not between 0 and 1"),
        ([-0.1, 0.5], 1, "not between 0 and 1"),
        ([0.5, np.nan], 1, "not finite"),
        ([0.5], 1, r"float64 \[1\]"),
        ([0.5, 0.5], 2, "belongs to round 2"),
    ],
)
def test_no_noise_is_scaled_to_a_sensitivity_that_cannot_be(
    norms, round, reason, small, chosen, tmp_path
):
    config = small(TINY | {"privacy.sensitivity": "local"})
    client, *_ = chosen(config)

    def false(message, reply):
        if messages.SENSITIVITY in reply.content:
            reply.content[messages.SENSITIVITY] = messages.array_record(norms=np.asarray(norms))
            reply.content.metric_records[messages.METRICS]["round"] = round
        return reply

    directory = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(
        ClientFailedError, match=f"sensitivity of round 1: client {client}.*{reason}"
    ):
        _run(config, directory, false)


# Secure aggregation


@pytest.mark.parametrize("stage", [Stage.SETUP, Stage.SHARE_KEYS, Stage.UNMASK])
@pytest.mark.parametrize("how", ["silent", "failing"])
def test_a_client_that_is_lost_in_a_stage_ends_the_run_by_name(stage, how, small, chosen, tmp_path):
    config = small(TINY | SECAGG | {"trials.count": 2})
    *_, other = chosen(config)

    def lost(message, reply):
        if not _of(message, other) or _stage(message) != stage:
            return reply
        return None if how == "silent" else Message(Error(0, "gone"), reply_to=message)

    reason = "no answer within" if how == "silent" else "gone"
    with pytest.raises(SecureAggregationError, match=rf": client {other} failed: {reason}[^;]*$"):
        _run(config, RunDirectory.create(tmp_path / "run", config), lost)


def test_a_false_share_unmasks_nothing(small, chosen, tmp_path):
    config = small(TINY | SECAGG | {"trials.count": 2})
    *_, other = chosen(config)

    def forged(message, reply):
        if _of(message, other) and _stage(message) == Stage.UNMASK:
            record = reply.content.config_records[CONFIGS]
            shares = record[Key.SHARE_LIST]
            record[Key.SHARE_LIST] = [bytes([*part[:-1], part[-1] ^ 1]) for part in shares]
        return reply

    directory = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(SecureAggregationError, match=r"contradict each other.*nothing of the sum"):
        _run(config, directory, forged)


@pytest.mark.parametrize("key", [Key.PUBLIC_KEY_1, Key.CIPHERTEXT_LIST, Key.SHARE_LIST])
def test_what_is_missing_from_a_stage_is_named(key, small, chosen, tmp_path):
    config = small(TINY | SECAGG | {"trials.count": 2})
    *_, other = chosen(config)

    def lacking(message, reply):
        if _of(message, other) and reply.has_content():
            reply.content.config_records.get(CONFIGS, {}).pop(key, None)
        return reply

    directory = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(RuntimeError, match=f"invalid reply: '{key}'"):
        _run(config, directory, lacking)


def _a_key_that_is_none(record):
    if Key.PUBLIC_KEY_2 in record:
        record[Key.PUBLIC_KEY_2] = b"x"


def _one_key_twice(record):
    if Key.PUBLIC_KEY_2 in record:
        record[Key.PUBLIC_KEY_2] = record[Key.PUBLIC_KEY_1]


def _shares_for_one_alone(record):
    if Key.DESTINATION_LIST in record:
        destinations = record[Key.DESTINATION_LIST]
        record[Key.DESTINATION_LIST] = destinations[:1] * len(destinations)


def _endless_shares(record):
    if Key.CIPHERTEXT_LIST in record:
        ciphertexts = record[Key.CIPHERTEXT_LIST]
        record[Key.CIPHERTEXT_LIST] = [part * 100 for part in ciphertexts]


DEFECTS = {
    "a key that is none": (_a_key_that_is_none, "invalid reply"),
    "one key twice": (_one_key_twice, "another node sent one of its public keys"),
    "shares for one alone": (_shares_for_one_alone, "its shares are not the requested ones"),
    "endless shares": (_endless_shares, "its shares have a wrong type or length"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_what_others_would_fail_at_is_its_clients_fault_alone(name, small, chosen, tmp_path):
    spoil, reason = DEFECTS[name]
    config = small(TINY | SECAGG | {"trials.count": 2, "training.rounds": 1})
    *_, other = chosen(config)

    def defective(message, reply):
        if _of(message, other) and reply.has_content():
            spoil(reply.content.config_records.get(CONFIGS, ConfigRecord()))
        return reply

    alone = rf": client {other} failed: [^;]*{reason}[^;]*$"
    with pytest.raises(SecureAggregationError, match=alone):
        _run(config, RunDirectory.create(tmp_path / "run", config), defective)
