"""The parts of Flower that fedsim touches although they are not public. Nothing else imports them.

Creating a `Message` reads the identity of the running task, and the public `Grid` class names the
private `Run` in its signatures. Both have moved between releases; a test watches them.
"""

import uuid

from flwr.app import Message
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["DEPLOYMENT", "RUNTIMES", "Run", "assign_message_id", "become_task", "empty_run"]

DEPLOYMENT = "Flower deployment"
RUNTIMES = {
    "InProcessGrid": "in process",
    "InMemoryGrid": "Flower simulation",
    "HttpGrid": DEPLOYMENT,
    "PollingGrid": DEPLOYMENT,
}
"""What a report calls the runtime behind each grid, by the name of its class."""


def empty_run(run_id: int) -> Run:
    """Return the description of a run that no SuperLink knows."""
    return Run.create_empty(run_id=run_id)


def become_task(run_id: int, node_id: int) -> None:
    """Give this process the identity that new messages carry as their source."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, node_id, 1


def assign_message_id(message: Message) -> None:
    """Give a message the identity that a SuperLink would give it; replies refer to it."""
    message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
