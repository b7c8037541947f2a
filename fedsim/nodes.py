"""The nodes of a run: one for every owner, and auditors, who may come and go.

A round waits for its owners and never for an auditor: an auditor's messages are sent beside those
of the owners, and whether it answered is looked up a round later. One that fails is noted, and not
written to until it joins again; so is one that is too far behind, until it answers.
"""

import math
import time
from collections import Counter
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

POLL_INTERVAL = 0.2
"""Seconds between two questions for answers that are missing."""

INTRODUCTION = 5.0
"""Seconds that nodes other than the owners' have, before the first round, to say who they are."""

MOST_UNANSWERED = 8
"""Messages that an auditor may be behind: each holds a model in the SuperLink's memory."""


class Auditors:
    """The auditors of a run, by Flower node.

    owners: the nodes of the owners; asked: of the nodes that were asked who they are and did not
    answer yet, by message; log_event: where comings and goings are noted.
    """

    def __init__(
        self,
        owners: Iterable[int],
        auditors: Iterable[int],
        log_event: Callable[..., None],
        asked: Mapping[str, int] | None = None,
    ) -> None:
        self.nodes = set(auditors)
        self._owners = set(owners)
        self._awaited = dict(asked or {})
        # Who is there and needs not be asked who it is.
        self._known = {*self._owners, *self.nodes, *self._awaited.values()}
        self._log_event = log_event
        for node in sorted(self.nodes):
            log_event(auditor=node, joined=True)

    def look_around(self, grid: Grid) -> None:
        """Read what auditors answered, and ask new nodes who they are; waits for nobody."""
        self._listen(grid)
        present = set(grid.get_node_ids())
        for node in sorted(self.nodes - present):
            self._leave(node, "its node is gone")
        # Whoever went away is asked again when it is back.
        self._known &= present | self._owners
        if new := sorted(present - self._known):
            self._known.update(new)
            self._send(grid, [Message(RecordDict(), node, IDENTIFY) for node in new])

    def inform(self, grid: Grid, kind: str, content: Callable[[], RecordDict]) -> None:
        """Send every auditor a message of this kind; waits for nobody."""
        behind = Counter(self._awaited.values())
        for node in sorted(self.nodes):
            if behind[node] >= MOST_UNANSWERED:
                self._leave(node, f"{behind[node]} messages are unanswered")
        self._send(grid, [Message(content(), node, kind) for node in sorted(self.nodes)])

    def dismiss(self, grid: Grid, timeout: float) -> None:
        """Give the auditors so many seconds to fetch their last messages, then end the run."""
        deadline = time.monotonic() + timeout
        while True:
            self._listen(grid)
            late = sorted({*self._awaited.values()} & self.nodes)
            if not late or time.monotonic() > deadline:
                break
            time.sleep(POLL_INTERVAL)
        for node in late:
            self._leave(node, f"no answer within {timeout:g} s after the last round")

    def _listen(self, grid: Grid) -> None:
        if self._awaited:
            for reply in grid.pull_messages(list(self._awaited)):
                self._hear(reply)

    def _send(self, grid: Grid, sent: list[Message]) -> None:
        if sent:
            nodes = [message.metadata.dst_node_id for message in sent]
            # None for a message that Flower could not take: the node is gone.
            # Nothing at all where they are too large for it.
            ids: list[str | None] = list(grid.push_messages(sent)) or [None] * len(sent)
            for id, node in zip(ids, nodes, strict=True):
                if id is None:
                    self._leave(node, "Flower took no message for its node")
                else:
                    self._awaited[id] = node

    def _hear(self, reply: Message) -> None:
        # Flower's own error replies do not come from the node that they are about.
        node = self._awaited.pop(reply.metadata.reply_to_message_id, None)
        if node is None:
            return
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
) -> tuple[dict[int, int], list[int], dict[str, int]]:
    """Wait for every owner's node; return the node of each partition, and those of auditors.

    Third, the nodes that were asked who they are and have not answered, by message: once the owners
    are complete they can only be strangers, or auditors, who have INTRODUCTION seconds more.
    registered: the one node that each partition is believed of; None where anybody is. Raises
    InputError when fewer than `owners` distinct partitions answer within `timeout` seconds, or a
    partition is claimed by a node that it is not; RuntimeError when a node answers with an error
    while owners are missing.
    """
    deadline = time.monotonic() + timeout
    nodes: dict[int, int] = {}
    auditors: list[int] = []
    reasons: dict[str, None] = {}
    asked: dict[str, int] = {}
    complete = math.inf
    while True:
        new = set(grid.get_node_ids()) - {*nodes.values(), *auditors, *asked.values()}
        queries = [Message(RecordDict(), node, IDENTIFY) for node in sorted(new)]
        sent = grid.push_messages(queries) if queries else ()
        # None for a node that went away meanwhile.
        asked |= {id: node for id, node in zip(sent, sorted(new), strict=True) if id is not None}
        claims, failed = _introduced(grid, asked, reasons)
        for node, partition in claims.items():
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
            complete = min(complete, time.monotonic())
            if not asked or time.monotonic() >= complete + INTRODUCTION:
                return {partition: nodes[partition] for partition in range(owners)}, auditors, asked
        elif failed:
            raise RuntimeError(failed[0])
        elif time.monotonic() > deadline:
            raise InputError(
                f"{len(nodes)} of {owners} owners connected within {timeout:g} s; start as many "
                "SuperNodes as federation.owners, for a simulation with "
                f"--federation-config 'num-supernodes={owners}'"
                + "".join(f"; a node failed: {reason}" for reason in reasons)
            )
        time.sleep(POLL_INTERVAL)


def _introduced(
    grid: Grid, asked: dict[str, int], reasons: dict[str, None]
) -> tuple[dict[int, int], list[str]]:
    """Return the partition that each node claims which answered by now, and what failed.

    asked: the nodes that did not answer before, by message, of which those that do are taken out;
    reasons: where it is noted that a node is away.
    """
    claims, failed = {}, []
    for reply in grid.pull_messages(list(asked)) if asked else ():
        node = asked.pop(reply.metadata.reply_to_message_id)
        if reply.has_error() and reply.error.code in GONE:
            # Listed for a minute after it was killed, and perhaps on its way back.
            reasons[str(reply.error.reason)] = None
        elif reply.has_error():
            failed.append(f"a node failed to identify itself: {reply.error.reason}")
        else:
            try:
                claims[node] = _claimed_partition(reply)
            except RuntimeError as error:
                failed.append(str(error))
    return claims, failed


def _claimed_partition(reply: Message) -> int:
    """Return the partition that a node says it holds. Raises RuntimeError for anything else."""
    try:
        return int(messages.metric(reply, "partition"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RuntimeError(
            f"node {reply.metadata.src_node_id} failed to identify itself: its reply is false: "
            f"{error!r}"
        ) from None
