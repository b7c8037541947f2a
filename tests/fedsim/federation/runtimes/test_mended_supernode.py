"""A node forgets a message whole if its run ends while the node fetches the message."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate import NodeState, NodeStateFactory

from fedsim.deployment.supernode import SUPERNODE
from fedsim.federation.protocol.flower_private import assign_message_id, become_task
from fedsim.federation.runtimes.mended_supernode import mend

RUN, NODE = 3, 7
ENDED = ("while it is pulled", "before it is confirmed")


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    original = start_client_internal._pull_and_store_message
    monkeypatch.setattr(start_client_internal, "_pull_and_store_message", original)
    mend()
    yield


def _after(ended: str) -> tuple[int | None, NodeState]:
    """Return what Flower says of a message whose run has ended, and what the node keeps of it."""
    factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    state = factory.state()
    state.set_node_id(NODE)
    run = Run.create_empty(run_id=RUN)
    run.primary_task_type = TaskType.SERVER_APP
    state.store_run(run)
    state.set_run_series_context(run.series_id, Context(RUN, NODE, {}, RecordDict(), {}))
    become_task(RUN, 1)
    message = Message(RecordDict(), NODE, "train")
    assign_message_id(message)
    content = {message.object_id: message.deflate()}

    def refuse(*_: object) -> bytes:
        raise RunNotRunningException

    def pull(_: int, object_id: str) -> bytes:
        return content.get(object_id, RecordDict().deflate())

    confirm: Callable[[int, str], None] = refuse  # type: ignore[assignment]
    answer = start_client_internal._pull_and_store_message(
        state=state,
        object_store=factory.objectstore_factory.store(),
        node_config={},
        receive=lambda: (message, get_object_tree(message)),
        get_run=refuse,  # type: ignore[arg-type]
        get_fab=refuse,  # type: ignore[arg-type]
        pull_object=refuse if ended == ENDED[0] else pull,
        confirm_message_received=confirm,
        trusted_entities=None,
    )
    return answer, state


@pytest.mark.parametrize("ended", ENDED)
def test_flower_alone_keeps_the_task_of_a_message_that_it_forgot(ended: str) -> None:
    """The fault that is mended: the mending goes once Flower mends it."""
    answer, state = _after(ended)
    assert answer is None
    assert [task.status.status for task in state.get_tasks()] == ["pending"]


@pytest.mark.parametrize("ended", ENDED)
@pytest.mark.usefixtures("mended")
def test_a_message_whose_run_has_ended_leaves_no_task(ended: str) -> None:
    answer, state = _after(ended)
    assert answer is None
    assert [task.status.status for task in state.get_tasks()] == ["finished"]
    assert list(state.get_messages_legacy(is_reply=False)) == []


def test_a_nodes_program_is_flowers() -> None:
    command = [sys.executable, "-m", SUPERNODE, "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--superlink" in said
