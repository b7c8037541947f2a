"""The polling grid returns every reply once, as soon as it is there, and no later than allowed."""

import time

import pytest
from flwr.app import Message, RecordDict

from fedsim import client_app
from fedsim.configuration import to_run_config
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server import nodes
from fedsim.federation.server.nodes import PollingGrid


class Slow(InProcessGrid):
    """A grid whose replies can be had one at a time, or, past `patience`, never."""

    patience = 10

    def pull_messages(self, message_ids):
        self.patience -= 1
        return super().pull_messages(list(message_ids)[:1]) if self.patience >= 0 else []


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(nodes, "INTERVAL", 0.001)


@pytest.fixture
def slow(small):
    return Slow(client_app.app, 3, to_run_config(small()))


def _queries(grid):
    return [Message(RecordDict(), node, "query.identify") for node in grid.get_node_ids()]


def test_replies_that_come_one_by_one_are_all_returned(slow):
    replies = list(PollingGrid(slow).send_and_receive(_queries(slow)))
    assert {reply.metadata.src_node_id for reply in replies} == set(slow.get_node_ids())
    assert len(replies) == 3


def test_a_reply_to_no_request_is_passed_on(slow):
    queries, pull = _queries(slow), slow.pull_messages
    stray = Message(RecordDict(), reply_to=_numbered(Message(RecordDict(), 1, "query.identify")))
    slow.pull_messages = lambda ids: [*pull(ids), stray]
    replies = list(PollingGrid(slow).send_and_receive(queries))
    assert {id(stray)} < {id(reply) for reply in replies}
    assert {each.metadata.src_node_id for each in replies} >= set(slow.get_node_ids())


def _numbered(message):
    message.metadata._message_id = "no request's"
    return message


def test_after_the_timeout_there_is_what_there_is(slow):
    slow.patience = 2
    replies = list(PollingGrid(slow).send_and_receive(_queries(slow), timeout=0.05))
    assert len(replies) == 2


@pytest.mark.parametrize("untaken", ["", None])
def test_each_node_that_is_gone_is_told_at_once(slow, untaken):
    """Flower's deployment gives the id "" for what it cannot take, its simulation none."""
    queries, push = _queries(slow), slow.push_messages

    def two_are_gone(messages):
        ids = list(push(messages))
        return [ids[0], *[untaken] * 2] if untaken is not None else ids[:1]

    slow.push_messages = two_are_gone
    replies = list(PollingGrid(slow).send_and_receive(queries, timeout=60))
    gone = [reply for reply in replies if reply.has_error()]
    assert len(replies) == 3
    assert {reply.metadata.src_node_id for reply in gone} == {
        query.metadata.dst_node_id for query in queries[1:]
    }
    assert all("not connected" in reply.error.reason for reply in gone)


def test_messages_that_are_too_large_are_told_at_once(slow):
    slow.push_messages = lambda messages: []
    replies = list(PollingGrid(slow).send_and_receive(_queries(slow), timeout=60))
    assert [reply.has_error() for reply in replies] == [True] * 3


def test_who_keeps_the_server_waiting_is_reported_ever_less_often(slow, monkeypatch):
    now, reports = 0.0, []

    def sleep(_):
        nonlocal now
        now += 1

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    slow.patience = 2
    grid = PollingGrid(slow, report_busy=lambda nodes, waited: reports.append((nodes, waited)))
    queries = _queries(slow)
    answered = {reply.metadata.src_node_id for reply in grid.send_and_receive(queries, timeout=300)}
    (late,) = set(slow.get_node_ids()) - answered
    assert reports == [({late}, 21), ({late}, 43), ({late}, 87), ({late}, 175), (set(), 301)]


def test_nothing_sent_is_nothing_waited_for(slow):
    assert list(PollingGrid(slow).send_and_receive([])) == []
