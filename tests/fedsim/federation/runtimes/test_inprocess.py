"""The in-process Grid does what a SuperLink would, and Flower's private parts still exist."""

import numpy as np
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim.federation.protocol import flower_private, messages
from fedsim.federation.runtimes.inprocess import InProcessGrid

app = ClientApp()


@app.query("count")
def count(message: Message, context: Context) -> Message:
    """Count this node's messages in its state, and change the message's record."""
    seen = context.state.metric_records.get("count", MetricRecord({"seen": 0}))
    context.state["count"] = MetricRecord({"seen": int(seen["seen"]) + 1})
    message.content["shared"]["touched"] = 1
    partition = int(context.node_config["partition-id"])
    content = RecordDict(
        {"reply": MetricRecord({"seen": context.state["count"]["seen"], "partition": partition})}
    )
    return Message(content, reply_to=message)


@app.query("fail")
def fail(message: Message, context: Context) -> Message:
    """Fail as a client's code may."""
    raise OSError("no such file: adult.data")


@pytest.fixture
def grid():
    return InProcessGrid(app, 3, {})


def _to_all(grid, action):
    content = RecordDict({"shared": MetricRecord({"untouched": 1})})
    return [Message(content, node, f"query.{action}") for node in grid.get_node_ids()]


def test_every_node_keeps_its_own_state_between_messages(grid):
    list(grid.send_and_receive(_to_all(grid, "count")))
    replies = list(grid.send_and_receive(_to_all(grid, "count")))
    assert [reply.content["reply"]["seen"] for reply in replies] == [2, 2, 2]
    assert [reply.content["reply"]["partition"] for reply in replies] == [0, 1, 2]


def test_a_record_shared_by_messages_is_not_shared_by_clients(grid):
    messages = _to_all(grid, "count")
    shared = messages[0].content["shared"]
    list(grid.send_and_receive(messages))
    assert dict(shared) == {"untouched": 1}


def test_arrays_reach_a_client_in_process_without_being_encoded():
    app, received = ClientApp(), []

    @app.query("model")
    def model(message: Message, context: Context) -> Message:
        received.append(message.content["model"]["parameters"])
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(app, 1, {})
    sent = messages.array_record(parameters=np.ones(3))
    content = RecordDict({"model": sent})
    grid.execute(Message(content, next(iter(grid.get_node_ids())), "query.model"))
    (array,) = received
    assert array is sent["parameters"]
    assert isinstance(array, messages.HeldArray)
    assert "_sent" not in vars(array)  # its bytes, which are made when they are asked for


def test_an_exception_becomes_an_error_reply_with_its_reason(grid):
    for reply in grid.send_and_receive(_to_all(grid, "fail")):
        assert reply.has_error()
        assert reply.error.reason == "OSError: no such file: adult.data"


def test_replies_can_be_pulled_once(grid):
    ids = list(grid.push_messages(_to_all(grid, "count")))
    replies = list(grid.pull_messages(ids))
    assert [reply.metadata.reply_to_message_id for reply in replies] == ids
    assert list(grid.pull_messages(ids)) == []


def test_the_grid_describes_its_run(grid):
    assert grid.run.run_id == 1
    grid.set_run(flower_private.empty_run(5))
    assert grid.run.run_id == 5
    message = grid.create_message(RecordDict(), "query.count", 1000, "group")
    assert message.metadata.dst_node_id == 1000
