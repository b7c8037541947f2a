"""The nodes of a run: one for every owner, and auditors, who may come and go.

A run waits for its owners and never for an auditor: an auditor's messages are sent beside those of
the owners, and whether it answered is looked up a round later. One that fails is noted, and not
written to again.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedsim import auditor, messages
from fedsim.errors import InputError
from fedsim.run_directory import RunDirectory
from fedsim.runtimes.flower_private import GONE

IDENTIFY = f"{MessageType.QUERY}.identify"

REGISTERED = "nodes.json"
"""The file of a run's directory that says which node each owner's key has, by partition."""


class Auditors:
    """The auditors of a run, by Flower node.

    owners: the nodes of the owners; log_event: where comings and goings are noted.
    """

    def __init__(
        self, owners: Iterable[int], auditors: Iterable[int], log_event: Callable[..., None]
    ) -> None:
        self.nodes = set(auditors)
        self._known = {*owners, *self.nodes}
        self._log_event = log_event
        self._awaited: dict[str, int] = {}
        for node in sorted(self.nodes):
            log_event(auditor=node, joined=True)

    def look_around(self, grid: Grid) -> None:
        """Read what auditors answered, and ask new nodes who they are; waits for nobody."""
        for reply in grid.pull_messages(list(self._awaited)):
            self._hear(reply)
        if new := sorted(set(grid.get_node_ids()) - self._known):
            self._known.update(new)
            self._send(grid, [Message(RecordDict(), node, IDENTIFY) for node in new])

    def inform(self, grid: Grid, kind: str, content: Callable[[], RecordDict]) -> None:
        """Send every auditor a message of this kind; waits for nobody."""
        self._send(grid, [Message(content(), node, kind) for node in sorted(self.nodes)])

    def dismiss(self, grid: Grid, timeout: float) -> None:
        """Give the auditors so many seconds to fetch their last messages, then end the run."""
        deadline = time.monotonic() + timeout
        while True:
            for reply in grid.pull_messages(list(self._awaited)):
                self._hear(reply)
            if not self._awaited or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        for node in sorted({*self._awaited.values()} & self.nodes):
            self._leave(node, f"no answer within {timeout:g} s after the last round")

    def _send(self, grid: Grid, sent: list[Message]) -> None:
        if sent:
            nodes = [message.metadata.dst_node_id for message in sent]
            # None for a message that Flower could not take: the node is gone.
            ids: list[str | None] = list(grid.push_messages(sent))
            for id, node in zip(ids, nodes, strict=True):
                if id is None:
                    self._leave(node, "its node is gone")
                else:
                    self._awaited[id] = node

    def _hear(self, reply: Message) -> None:
        node = self._awaited.pop(reply.metadata.reply_to_message_id, reply.metadata.src_node_id)
        if reply.has_error():
            self._leave(node, str(reply.error.reason))
            return
        try:
            partition = _claimed_partition(reply)
        except RuntimeError as error:
            self._leave(node, str(error))
            return
        if node not in self.nodes and partition == auditor.PARTITION:
            self.nodes.add(node)
            self._log_event(auditor=node, joined=True)

    def _leave(self, node: int, reason: str) -> None:
        if node in self.nodes:
            self.nodes.discard(node)
            self._log_event(auditor=node, joined=False, reason=reason)


def registered_nodes(directory: RunDirectory) -> dict[int, int] | None:
    """Return the node of each owner, by partition, where a run's directory says which they are.

    Raises InputError where it says it in a way that cannot be read.
    """
    if not directory.has(REGISTERED):
        return None
    try:
        found = directory.read_json(REGISTERED)
        return {int(partition): int(node) for partition, node in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"cannot read {REGISTERED} in '{directory.path}': {error}") from None


def connect(
    grid: Grid, owners: int, timeout: float, registered: Mapping[int, int] | None = None
) -> tuple[dict[int, int], list[int]]:
    """Wait for every owner's node; return the node of each partition, and those of auditors.

    registered: the one node that each partition is believed of; None where anybody is. Raises
    InputError when fewer than `owners` distinct partitions answer within `timeout` seconds, or a
    partition is claimed by a node that it is not; RuntimeError when a node answers with an error.
    """
    deadline = time.monotonic() + timeout
    nodes: dict[int, int] = {}
    auditors: list[int] = []
    reasons: dict[str, None] = {}
    while True:
        new = set(grid.get_node_ids()) - set(nodes.values()) - set(auditors)
        queries = [Message(RecordDict(), node, IDENTIFY) for node in sorted(new)]
        remaining = max(1.0, deadline - time.monotonic())
        for reply in grid.send_and_receive(queries, timeout=remaining) if queries else ():
            if reply.has_error() and reply.error.code in GONE:
                # Listed for a minute after it was killed, and perhaps on its way back.
                reasons[str(reply.error.reason)] = None
                continue
            if reply.has_error():
                raise RuntimeError(f"a node failed to identify itself: {reply.error.reason}")
            partition = _claimed_partition(reply)
            node = reply.metadata.src_node_id
            if partition == auditor.PARTITION:
                auditors.append(node)
                continue
            if not 0 <= partition < owners:
                raise InputError(
                    f"a node holds partition {partition}, but federation.owners is {owners}; start "
                    "as many nodes as owners"
                )
            if registered is not None and registered.get(partition) != node:
                raise InputError(
                    f"node {node} claims partition {partition}, but that owner's key is the one of "
                    f"node {registered.get(partition)}; give it the partition-id of its own key"
                )
            if nodes.setdefault(partition, node) != node:
                raise InputError(f"two nodes claim partition {partition}; give each its own")
        if set(range(owners)) <= set(nodes):
            return {partition: nodes[partition] for partition in range(owners)}, auditors
        if time.monotonic() > deadline:
            raise InputError(
                f"{len(nodes)} of {owners} owners connected within {timeout:g} s; start as many "
                "SuperNodes as federation.owners, for a simulation with "
                f"--federation-config 'num-supernodes={owners}'"
                + "".join(f"; a node failed: {reason}" for reason in reasons)
            )
        time.sleep(0.2)


def _claimed_partition(reply: Message) -> int:
    """Return the partition that a node says it holds. Raises RuntimeError for anything else."""
    try:
        return int(messages.metric(reply, "partition"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RuntimeError(
            f"node {reply.metadata.src_node_id} failed to identify itself: its reply is false: "
            f"{error!r}"
        ) from None
