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
from fedsim.federation.server.acceptance import quiet
from fedsim.federation.server.nodes import MOST_UNANSWERED, Nodes

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


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(nodes, "POLL_INTERVAL", 0.0)


def _content():
    request = Request(1, 0, 1, 1.0, Role.AUDITOR)
    model = messages.array_record(parameters=np.zeros((1, 4), np.float32))
    return RecordDict({messages.REQUEST: request.to_record(), messages.MODEL: model})


def _joined(events):
    return [(event["auditor"], event["joined"]) for event in events]


def _connected(grid, events=None, timeout=1.0, **more):
    log = (lambda **event: events.append(event)) if events is not None else quiet
    found = Nodes(grid, CLIENTS, log_event=log)
    found.connect(timeout, **more)
    return found


def _settle(found):
    """Ask, and hear the answers."""
    found.look_around()
    found.look_around()


@pytest.fixture
def alone(grid, events):
    """The nodes of a run that has begun without the auditor."""
    grid.gone = {AUDITOR}
    found = _connected(grid, events)
    grid.gone, grid.sent = set(), []
    return found


def test_clients_and_auditors_are_told_apart(grid, events):
    found = _connected(grid, events)
    assert (found.clients, found.auditors) == (dict(enumerate(CLIENT_NODES)), {AUDITOR})
    assert _joined(events) == [(AUDITOR, True)]


def test_an_auditor_that_is_slower_than_the_clients_is_there_from_the_first_round(
    grid, monkeypatch
):
    grid.silent = {AUDITOR}

    def answers(seconds):
        grid.silent = set()

    monkeypatch.setattr("fedsim.federation.server.nodes.time.sleep", answers)
    assert _connected(grid).auditors == {AUDITOR}


def test_a_run_begins_while_an_auditor_is_silent_who_joins_when_it_answers(
    grid, events, monkeypatch
):
    monkeypatch.setattr(nodes, "INTRODUCTION", 0.1)
    grid.silent = {AUDITOR}
    found = _connected(grid, events)
    found.look_around()
    assert not events
    grid.silent = set()
    found.look_around()
    assert _joined(events) == [(AUDITOR, True)]
    assert [node for node, _ in grid.sent].count(AUDITOR) == 1


def test_a_run_begins_while_an_auditor_fails(grid):
    grid.failing = {AUDITOR}
    found = _connected(grid)
    assert (len(found.clients), found.auditors) == (CLIENTS, set())


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
    assert _connected(grid, timeout=30.0).clients == dict(enumerate(CLIENT_NODES))
    assert [node for node, _ in grid.sent].count(client) == 2


def test_a_client_that_fails_to_say_who_it_is_ends_the_run(grid):
    grid.failing = {CLIENT_NODES[1]}
    with pytest.raises(RuntimeError, match="failed to identify itself: it failed"):
        _connected(grid, timeout=60.0)


def test_a_client_that_is_silent_is_waited_for_as_long_as_was_said(grid):
    grid.silent = {CLIENT_NODES[1]}
    with pytest.raises(InputError, match="2 of 3 clients connected"):
        _connected(grid, timeout=0.01)


def test_a_new_node_that_is_an_auditor_joins_and_is_informed(alone, grid, events):
    _settle(alone)
    alone.inform(MessageType.TRAIN, _content)
    assert _joined(events) == [(AUDITOR, True)]
    assert (AUDITOR, MessageType.TRAIN) in grid.sent
    assert not {node for node, _ in grid.sent} & set(CLIENT_NODES)


@pytest.mark.parametrize("answer", [{"partition-id": 3}, {"partition-id": 0}, {}])
def test_a_new_node_that_is_no_auditor_is_asked_once_and_ignored(answer, small, events):
    grid = Unreliable(small({"federation.clients": CLIENTS}), {5: answer})
    grid.gone = {5}
    found = _connected(grid, events)
    grid.gone, grid.sent = set(), []
    for _ in range(3):
        found.look_around()
        found.inform(MessageType.TRAIN, _content)
    found.dismiss(0.0)
    assert not events
    assert grid.sent == [(5, nodes.IDENTIFY)]
    assert found.clients == dict(enumerate(CLIENT_NODES))


def test_an_auditor_that_is_far_behind_is_sent_nothing_until_it_answers(alone, grid, events):
    _settle(alone)
    grid.silent = {AUDITOR}
    for _ in range(MOST_UNANSWERED + 3):
        alone.look_around()
        alone.inform(MessageType.TRAIN, _content)
    assert grid.sent.count((AUDITOR, MessageType.TRAIN)) == MOST_UNANSWERED
    assert events[-1]["reason"] == f"{MOST_UNANSWERED} messages are unanswered"
    grid.silent = set()
    _settle(alone)
    _settle(alone)
    assert _joined(events)[:2] == [(AUDITOR, True), (AUDITOR, False)]
    alone.dismiss(0.0)


def test_an_auditor_that_never_answers_is_dismissed_and_noted(alone, grid, events):
    _settle(alone)
    grid.silent = {AUDITOR}
    alone.inform(MessageType.EVALUATE, _content)
    alone.dismiss(0.0)
    assert events[-1]["reason"] == "no answer within 0 s after the last round"


def test_an_auditor_that_went_away_is_not_written_to_until_it_is_back(alone, grid, events):
    _settle(alone)
    grid.gone = {AUDITOR}
    alone.look_around()
    alone.inform(MessageType.TRAIN, _content)
    assert (AUDITOR, MessageType.TRAIN) not in grid.sent
    assert events[-1] == {"auditor": AUDITOR, "joined": False, "reason": "its node is gone"}
    grid.gone = set()
    _settle(alone)
    assert _joined(events) == [(AUDITOR, True), (AUDITOR, False), (AUDITOR, True)]


def test_an_auditor_whose_recording_fails_is_noted_with_the_reason(alone, grid, events):
    _settle(alone)
    grid.failing = {AUDITOR}
    alone.inform(MessageType.TRAIN, _content)
    alone.look_around()
    assert events[-1] == {"auditor": AUDITOR, "joined": False, "reason": "it failed"}
    assert grid.sent.count((AUDITOR, MessageType.TRAIN)) == 1


def test_a_run_begins_without_as_many_clients_as_are_tolerated(grid, monkeypatch):
    monkeypatch.setattr(nodes, "LEAVING", 0.0)
    grid.gone = {CLIENT_NODES[1]}
    present = {0: CLIENT_NODES[0], 2: CLIENT_NODES[2]}
    assert _connected(grid, timeout=0.0, tolerated=1).clients == present
    with pytest.raises(InputError, match="goes on without them with federation"):
        _connected(grid, timeout=0.0)
