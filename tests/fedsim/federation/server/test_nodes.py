"""A run waits for its clients, never for an auditor, and notes who came and went."""

import numpy as np
import pytest
from flwr.app import Context, Error, Message, MessageType, RecordDict

from adversaries.errors import InputError
from fedsim import client_app
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.runtimes.inprocess import FIRST_NODE, RUN_ID, InProcessGrid
from fedsim.federation.server import nodes
from fedsim.federation.server.nodes import MOST_UNANSWERED, Auditors, connect

AUDITOR = 7777
CLIENTS = 3
CLIENT_NODES = [FIRST_NODE + client for client in range(CLIENTS)]


class Unreliable(InProcessGrid):
    """A grid some of whose nodes say nothing, are gone, or fail."""

    def __init__(self, config, extra):
        run_config = to_run_config(config)
        super().__init__(client_app.app, CLIENTS, run_config)
        for node, node_config in extra.items():
            self.contexts[node] = Context(
                run_id=RUN_ID,
                node_id=node,
                node_config=node_config,
                state=RecordDict(),
                run_config=run_config,
            )
        self.silent: set[int] = set()
        self.gone: set[int] = set()
        self.failing: set[int] = set()
        self.sent: list[tuple[int, str]] = []

    def get_node_ids(self):
        return [node for node in self.contexts if node not in self.gone]

    def push_messages(self, messages):
        sent = list(messages)
        self.sent += [(each.metadata.dst_node_id, each.metadata.message_type) for each in sent]
        ids = list(super().push_messages(sent))
        return [
            "" if each.metadata.dst_node_id in self.gone else id
            for id, each in zip(ids, sent, strict=True)
        ]

    def pull_messages(self, message_ids):
        here = [
            id
            for id in message_ids
            if id in self._replies and self._replies[id].metadata.src_node_id not in self.silent
        ]
        return super().pull_messages(here)

    def execute(self, message):
        reply = super().execute(message)
        if message.metadata.dst_node_id in self.failing:
            return Message(Error(code=0, reason="it failed"), reply_to=message)
        return reply


@pytest.fixture
def grid(small, tmp_path):
    """Three clients, and an auditor's node."""
    told = {"role": "auditor", "transcript-path": str(tmp_path)}
    return Unreliable(small({"federation.clients": CLIENTS}), {AUDITOR: told})


@pytest.fixture
def events():
    return []


@pytest.fixture
def auditors(events):
    return Auditors(CLIENT_NODES, [], lambda **event: events.append(event))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(nodes, "POLL_INTERVAL", 0.0)


def _content():
    request = Request(1, 0, 1, 1.0, Role.AUDITOR)
    model = messages.array_record(parameters=np.zeros((1, 4), np.float32))
    return RecordDict({messages.REQUEST: request.to_record(), messages.MODEL: model})


def _joined(events):
    return [(event["auditor"], event["joined"]) for event in events]


def _settle(auditors, grid):
    """Ask, and hear the answers."""
    auditors.look_around(grid)
    auditors.look_around(grid)


def test_clients_and_auditors_are_told_apart(grid):
    assert connect(grid, CLIENTS, 1.0) == (dict(enumerate(CLIENT_NODES)), [AUDITOR], {})


def test_an_auditor_that_is_slower_than_the_clients_is_there_from_the_first_round(
    grid, monkeypatch
):
    grid.silent = {AUDITOR}

    def answers(seconds):
        grid.silent = set()

    monkeypatch.setattr("fedsim.federation.server.nodes.time.sleep", answers)
    assert connect(grid, CLIENTS, 1.0) == (dict(enumerate(CLIENT_NODES)), [AUDITOR], {})


def test_a_run_begins_while_an_auditor_is_silent_who_joins_when_it_answers(
    grid, events, monkeypatch
):
    monkeypatch.setattr(nodes, "INTRODUCTION", 0.1)
    grid.silent = {AUDITOR}
    clients, present, asked = connect(grid, CLIENTS, 1.0)
    assert (len(clients), present, list(asked.values())) == (CLIENTS, [], [AUDITOR])
    auditors = Auditors(clients.values(), present, lambda **event: events.append(event), asked)
    auditors.look_around(grid)
    assert not events
    grid.silent = set()
    auditors.look_around(grid)
    assert _joined(events) == [(AUDITOR, True)]
    assert [node for node, _ in grid.sent].count(AUDITOR) == 1


def test_a_run_begins_while_an_auditor_fails(grid):
    grid.failing = {AUDITOR}
    assert connect(grid, CLIENTS, 1.0) == (dict(enumerate(CLIENT_NODES)), [], {})


@pytest.mark.parametrize("late", [False, True])
def test_a_client_is_asked_again_and_a_late_answer_to_the_first_question_counts(
    grid, monkeypatch, late
):
    monkeypatch.setattr(nodes, "ASK_AGAIN", 0.1)
    client, push = CLIENT_NODES[1], grid.push_messages
    grid.silent = {client} if late else set()

    def lose_one(messages):
        first, ids = not grid.sent, list(push(messages))
        if first != late:  # the first question is lost, or else the second
            del grid._replies[ids[CLIENT_NODES.index(client) if first else 0]]
        grid.silent &= {client} if first else set()
        return ids

    monkeypatch.setattr(grid, "push_messages", lose_one)
    assert connect(grid, CLIENTS, 30.0)[0] == dict(enumerate(CLIENT_NODES))
    assert [node for node, _ in grid.sent].count(client) == 2


def test_a_client_that_fails_to_say_who_it_is_ends_the_run(grid):
    grid.failing = {CLIENT_NODES[1]}
    with pytest.raises(RuntimeError, match="failed to identify itself: it failed"):
        connect(grid, CLIENTS, 60.0)


def test_a_client_that_is_silent_is_waited_for_as_long_as_was_said(grid):
    grid.silent = {CLIENT_NODES[1]}
    with pytest.raises(InputError, match="2 of 3 clients connected"):
        connect(grid, CLIENTS, 0.01)


def test_a_new_node_that_is_an_auditor_joins_and_is_informed(auditors, grid, events):
    _settle(auditors, grid)
    auditors.inform(grid, MessageType.TRAIN, _content)
    assert _joined(events) == [(AUDITOR, True)]
    assert (AUDITOR, MessageType.TRAIN) in grid.sent
    assert not {node for node, _ in grid.sent} & set(CLIENT_NODES)


@pytest.mark.parametrize("answer", [{"partition-id": 3}, {}, {"partition-id": 10**400}])
def test_a_new_node_that_is_no_auditor_is_asked_once_and_ignored(answer, small, auditors, events):
    grid = Unreliable(small({"federation.clients": CLIENTS}), {5: answer})
    for _ in range(3):
        auditors.look_around(grid)
        auditors.inform(grid, MessageType.TRAIN, _content)
    auditors.dismiss(grid, 0.0)
    assert not events
    assert grid.sent == [(5, nodes.IDENTIFY)]


def test_an_auditor_that_never_answers_is_dismissed_and_noted(auditors, grid, events):
    _settle(auditors, grid)
    grid.silent = {AUDITOR}
    auditors.inform(grid, MessageType.EVALUATE, _content)
    auditors.dismiss(grid, 0.0)
    assert _joined(events) == [(AUDITOR, True), (AUDITOR, False)]
    assert events[-1]["reason"] == "no answer within 0 s after the last round"


def test_an_auditor_that_is_far_behind_is_sent_nothing_until_it_answers(auditors, grid, events):
    _settle(auditors, grid)
    grid.silent = {AUDITOR}
    for _ in range(MOST_UNANSWERED + 3):
        auditors.look_around(grid)
        auditors.inform(grid, MessageType.TRAIN, _content)
    assert grid.sent.count((AUDITOR, MessageType.TRAIN)) == MOST_UNANSWERED
    assert events[-1]["reason"] == f"{MOST_UNANSWERED} messages are unanswered"
    grid.silent = set()
    auditors.look_around(grid)
    assert _joined(events) == [(AUDITOR, True), (AUDITOR, False), (AUDITOR, True)]


def test_an_auditor_that_went_away_is_not_written_to_until_it_is_back(auditors, grid, events):
    _settle(auditors, grid)
    grid.gone = {AUDITOR}
    auditors.look_around(grid)
    auditors.inform(grid, MessageType.TRAIN, _content)
    assert (AUDITOR, MessageType.TRAIN) not in grid.sent
    assert events[-1] == {"auditor": AUDITOR, "joined": False, "reason": "its node is gone"}
    grid.gone = set()
    _settle(auditors, grid)
    assert _joined(events) == [(AUDITOR, True), (AUDITOR, False), (AUDITOR, True)]


def test_an_auditor_that_goes_between_two_looks_is_noted(auditors, grid, events):
    _settle(auditors, grid)
    grid.gone = {AUDITOR}
    auditors.inform(grid, MessageType.TRAIN, _content)
    assert events[-1]["reason"] == "Flower accepted no message for its node"


def test_an_auditor_whose_recording_fails_is_noted_with_the_reason(auditors, grid, events):
    _settle(auditors, grid)
    grid.failing = {AUDITOR}
    auditors.inform(grid, MessageType.TRAIN, _content)
    auditors.look_around(grid)
    auditors.inform(grid, MessageType.TRAIN, _content)
    assert events[-1] == {"auditor": AUDITOR, "joined": False, "reason": "it failed"}
    assert grid.sent.count((AUDITOR, MessageType.TRAIN)) == 1


def test_a_run_begins_without_as_many_clients_as_are_tolerated(grid, monkeypatch):
    monkeypatch.setattr(nodes, "LEAVING", 0.0)
    grid.gone = {CLIENT_NODES[1]}
    present = {0: CLIENT_NODES[0], 2: CLIENT_NODES[2]}
    assert connect(grid, CLIENTS, 0.0, tolerated=1)[0] == present
    with pytest.raises(InputError, match="goes on without them with federation"):
        connect(grid, CLIENTS, 0.0)
