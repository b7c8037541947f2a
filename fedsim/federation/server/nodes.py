"""The nodes of a run: one for every client, and auditors, for whom no round waits."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.common.waiting import pause
from fedsim.configuration.federation import TOLERATED, FederationConfig
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.flower_private import GONE, NODE_UNAVAILABLE
from fedsim.federation.protocol.messages import Request
from fedsim.federation.protocol.replies import failure, metric, sort_out
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server.acceptance import quiet

IDENTIFY = f"{MessageType.QUERY}.identify"
DIGEST = f"{MessageType.QUERY}.data"

REGISTERED = "nodes.json"
"""File of a run directory that names the node of each client's key, by partition."""

POLL_INTERVAL = 0.5
"""Seconds between two requests for missing answers of nodes."""

INTERVAL = 0.2
"""Seconds between the first requests for missing replies. Later requests are rarer."""

SLOW = 20.0
"""Seconds after which missing replies are reported; the time doubles with each report."""

INTRODUCTION = 5.0
"""Seconds before the first round in which other nodes than the clients' may identify themselves."""

CONNECT_TIMEOUT = 300.0
"""Seconds in which every client's node must connect."""

LEAVING = 75.0
"""Seconds after which a run begins without the clients that it tolerates to be missing. For a
minute the server refuses a killed node that comes back."""

PATIENCE = 10.0
"""Seconds after which the server logs the clients that have not connected."""

ASK_AGAIN = 60.0
"""Seconds after which a node that is there is asked again who it is: a SuperNode that ended after
it had fetched the question cannot answer it, nor can the next one."""

DISMISS_TIMEOUT = 30.0
"""Seconds in which an auditor may fetch its last messages."""

MOST_UNANSWERED = 8
"""Messages that an auditor may be behind. Each holds a model in the SuperLink's memory."""


def taken(grid: Grid, sent: Sequence[Message]) -> dict[str, Message]:
    """Send messages, and return those that Flower took, by their ids.

    Of a message to a node that is gone, Flower's deployment returns the id "", and its simulation
    none; of messages that are too large together, it returns no ids.
    """
    ids = {*grid.push_messages(sent)} if sent else set()
    return {each.metadata.message_id: each for each in sent if each.metadata.message_id in ids}


class PollingGrid:
    """A Flower Grid with a shorter wait for replies than the three seconds of Flower's own.

    report_busy: receives the nodes that have not replied, and the seconds so far. When the wait
        is over, it receives an empty set once more.
    """

    def __init__(
        self, grid: Grid, report_busy: Callable[[set[int], float], None] = lambda *_: None
    ) -> None:
        self._grid, self._report_busy = grid, report_busy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; return replies within seconds, or errors where the node is gone."""
        sent = list(messages)
        requests = taken(self._grid, sent)
        waiting, begun, report_at = {*requests}, time.monotonic(), SLOW
        gone = Error(NODE_UNAVAILABLE, "its node is not connected")
        lost = [each for each in sent if each.metadata.message_id not in requests]
        replies = [Message(gone, reply_to=request) for request in lost]
        while waiting:
            for reply in self._grid.pull_messages(sorted(waiting)):
                request = requests.get(reply.metadata.reply_to_message_id)
                waiting.discard(reply.metadata.reply_to_message_id)
                # Flower reports a dead node with the server as the sender.
                if reply.has_error() and request is not None:
                    reply = Message(reply.error, reply_to=request)  # noqa: PLW2901
                replies.append(reply)
            waited = time.monotonic() - begun
            if not waiting or (timeout is not None and waited > timeout):
                break
            if waited > report_at:
                report_at = 2 * waited
                self._report_busy({requests[id].metadata.dst_node_id for id in waiting}, waited)
            time.sleep(pause(waited, INTERVAL))
        if report_at > SLOW:
            self._report_busy(set(), time.monotonic() - begun)
        return replies


class Nodes:
    """Who the nodes of a grid are: clients, auditors, or neither.

    registered: the node of each partition, so that an unknown node cannot stop the run; None: every
        claim is accepted.

    Attributes:
        clients: the node of each client, by partition.
        auditors: the nodes that record every round.
    """

    def __init__(
        self,
        grid: Grid,
        size: int,
        registered: Mapping[int, int] | None = None,
        log_event: Callable[..., None] = quiet,
    ) -> None:
        self.clients: dict[int, int] = {}
        self.auditors: set[int] = set()
        self._grid, self._size, self._registered = grid, size, registered
        self._log_event = log_event
        self._begun = False
        self._others: set[int] = set()
        self._awaited: dict[str, int] = {}  # the node of each message that has no answer yet
        self._asked_at: dict[int, float] = {}
        self._reasons: dict[str, None] = {}

    def connect(self, timeout: float, tolerated: int = 0) -> None:
        """Wait until every client's node has connected.

        After LEAVING seconds it suffices that no more than `tolerated` clients are missing. Other
        nodes have INTRODUCTION seconds more to identify themselves.

        Raises InputError if too few partitions answer in time, or a client's node claims another's.
        Raises RuntimeError if a node answers with an error while clients are missing.
        """
        begun, named, complete = time.monotonic(), False, math.inf
        while not self._begun:
            self._ask()
            failed = self._listen()
            now = time.monotonic()
            absent = [client for client in range(self._size) if client not in self.clients]
            if not absent:
                complete = min(complete, now)
                self._begun = not self._awaited or now >= complete + INTRODUCTION
            elif len(absent) <= tolerated and now > begun + LEAVING:
                self._begun = True
            elif failed:
                raise RuntimeError(failed)
            elif now > begun + timeout:
                raise InputError(self._too_few(absent, timeout))
            elif not named and now > begun + PATIENCE:
                named = True
                self._log_event(waiting=_clients(absent), reasons=list(self._reasons))
            if not self._begun:
                time.sleep(POLL_INTERVAL)
        self.clients = dict(sorted(self.clients.items()))

    def look_around(self) -> None:
        """Read the auditors' answers, and ask new nodes for their identity, without waiting."""
        self._listen()
        present = set(self._grid.get_node_ids())
        for node in sorted(self.auditors - present):
            self._leave(node, "its node is gone")
        self._others &= present  # a node that left is asked again when it returns
        self._ask()

    def inform(self, kind: str, content: Callable[[], RecordDict]) -> None:
        """Send every auditor a message, without waiting."""
        behind = Counter(self._awaited.values())
        for node in sorted(self.auditors):
            if behind[node] >= MOST_UNANSWERED:
                self._leave(node, f"{behind[node]} messages are unanswered")
        sent = [Message(content(), node, kind) for node in sorted(self.auditors)]
        accepted = taken(self._grid, sent)
        self._awaited |= {id: each.metadata.dst_node_id for id, each in accepted.items()}
        for message in sent:
            if message not in accepted.values():
                self._leave(message.metadata.dst_node_id, "Flower took no message for its node")

    def dismiss(self, timeout: float = DISMISS_TIMEOUT) -> None:
        """Let the auditors fetch their last messages, within some seconds, then end the run."""
        deadline = time.monotonic() + timeout
        while True:
            self._listen()
            late = sorted({*self._awaited.values()} & self.auditors)
            if not late or time.monotonic() > deadline:
                break
            time.sleep(POLL_INTERVAL)
        for node in late:
            self._leave(node, f"no answer within {timeout:g} s after the last round")

    def _ask(self) -> None:
        """Ask every new node for its identity, and at times those that have not answered."""
        now = time.monotonic()
        # An earlier question still counts: the node may be slow.
        waiting = {
            node
            for node in self._awaited.values()
            if self._begun or now < self._asked_at.get(node, now) + ASK_AGAIN
        }
        known = {*self.clients.values(), *self.auditors, *waiting, *self._others}
        known |= set(self._registered.values()) if self._begun and self._registered else set()
        new = sorted(set(self._grid.get_node_ids()) - known)
        self._asked_at |= dict.fromkeys(new, now)
        accepted = taken(self._grid, [Message(RecordDict(), node, IDENTIFY) for node in new])
        self._awaited |= {id: query.metadata.dst_node_id for id, query in accepted.items()}

    def _listen(self) -> str:
        """Read the answers of nodes; return why a client's failed, or ""."""
        failed = ""
        for reply in self._grid.pull_messages(list(self._awaited)) if self._awaited else ():
            # The sender of Flower's own error replies is not the node in question.
            node = self._awaited.pop(reply.metadata.reply_to_message_id, None)
            if node is None:  # a second answer to the same question
                continue
            if node in self.auditors:
                if reply.has_error():
                    self._leave(node, failure(reply))
                    self._others.add(node)  # until its node is gone and comes back
                continue
            try:
                if not reply.has_error():
                    self._enter(node, _claimed_partition(reply))
                    continue
                why = f"a node failed to identify itself: {failure(reply)}"
                # Flower lists a killed node for a minute. It may be on its way back.
                returning = reply.error.code in GONE and not self._begun
            except RuntimeError as error:
                why, returning = str(error), False
            if returning or self._is_unknown(node):
                self._others |= set() if returning else {node}
                self._reasons[why] = None
            else:
                failed = failed or why
        return failed

    def _is_unknown(self, node: int) -> bool:
        """Return whether a node is certainly no client's."""
        return self._begun or (
            self._registered is not None and node not in self._registered.values()
        )

    def _enter(self, node: int, partition: int) -> None:
        """Accept the claim of a node, or record that it is unknown.

        Raises InputError for a partition that does not exist, is another node's, or claimed twice.
        """
        self._awaited = {id: each for id, each in self._awaited.items() if each != node}
        if partition == messages.AUDITOR:
            self.auditors.add(node)
            self._log_event(auditor=node, joined=True)
        elif self._is_unknown(node):
            raise RuntimeError(
                f"node {node} claims partition {partition}, but its key belongs to no client"
            )
        else:
            wrong = ""
            if not 0 <= partition < self._size:
                wrong = f"federation.clients is {self._size}; start as many nodes as clients"
            elif self._registered is not None and self._registered.get(partition) != node:
                owner = self._registered.get(partition)
                named = "no node" if owner is None else f"node {owner}"
                wrong = f"that client's key belongs to {named}; give it its own partition-id"
            elif self.clients.setdefault(partition, node) != node:
                wrong = "so does another node; give each its own partition-id"
            if wrong:
                raise InputError(f"node {node} claims partition {partition}, but {wrong}")

    def _leave(self, node: int, reason: str) -> None:
        self.auditors.discard(node)
        self._log_event(auditor=node, joined=False, reason=reason)

    def _too_few(self, absent: list[int], timeout: float) -> str:
        return (
            f"{len(self.clients)} of {self._size} clients connected within {timeout:g} s. Missing: "
            f"{_clients(absent)}. Start as many SuperNodes as federation.clients (in a simulation, "
            f"use --federation-config 'num-supernodes={self._size}'); a training goes on without "
            f"them with {TOLERATED}={len(absent)}"
            + "".join(f"; {reason}" for reason in self._reasons)
        )


def _clients(absent: list[int]) -> str:
    return f"client{'s' * (len(absent) > 1)} {', '.join(map(str, absent))}"


def registered_nodes(directory: RunDirectory) -> dict[int, int] | None:
    """Return the node of each client by partition; None where a run names none."""
    if not directory.has(REGISTERED):
        return None
    try:
        nodes = directory.read_json(REGISTERED)
        return {int(partition): int(node) for partition, node in nodes.items()}
    except reading.DAMAGE as error:
        raise InputError(f"cannot read {REGISTERED} in '{directory.path}': {error}") from None


def note_busy(directory: RunDirectory, nodes: set[int], seconds: float) -> None:
    """Log the clients that have not answered in some seconds, where the run names them."""
    if clients := registered_nodes(directory):
        busy = [client for client, node in sorted(clients.items()) if node in nodes]
        directory.log_event(busy=busy, seconds=round(seconds, 1))


def connected(
    grid: Grid,
    clients: FederationConfig,
    digest: Callable[[int, bool], str],
    directory: RunDirectory,
    first: Request | None = None,
) -> tuple[dict[int, int], Nodes]:
    """Return the node of every client, after comparing its data with the server's; all nodes.

    digest, first: as for `check_data`.
    directory: the run directory. If it names the clients' nodes, no other node may be a client.
    Raises InputError if too few clients answer in time, or a client has other data.
    """
    registered = registered_nodes(directory)
    nodes = Nodes(grid, clients.clients, registered, directory.log_event)
    nodes.connect(CONNECT_TIMEOUT, clients.tolerated_dropouts)
    check_data(grid, nodes.clients, digest, clients.timeout, directory.log_event, first)
    # A client that is away is asked in each round.
    return {**(registered or {}), **nodes.clients}, nodes


def check_data(
    grid: Grid,
    nodes: Mapping[int, int],
    digest: Callable[[int, bool], str],
    timeout: float,
    log_event: Callable[..., None] = lambda **_: None,
    first: Request | None = None,
) -> None:
    """Compare the digest of every client's data, and have each compare the plan with its budget.

    digest: the expected digest of a client; whether it covers the records is its second argument.
    first: the first request of the run to a client; None: nothing is planned.
    Raises InputError if data differ.
    Raises RuntimeError if a client refuses, or does not answer.
    """
    content = RecordDict({} if first is None else {messages.REQUEST: first.to_record()})
    queries = [Message(content, node, DIGEST) for node in nodes.values()]
    replies = grid.send_and_receive(queries, timeout=timeout)
    digests = sort_out(replies, nodes, nodes, _inspect_digest)
    lost = [*dict.fromkeys(digests.failures.values())]
    lost += [f"client {client} did not answer" for client in digests.missing]
    if lost := [*lost, *digests.unsolicited]:
        raise RuntimeError(f"the run did not begin: {'; '.join(lost)}")
    differing, protected = [], []
    for client, reply in digests.accepted.items():
        answer = reply.content.config_records[messages.DATA]
        found, expected = str(answer["sha256"]), digest(client, bool(answer["records"]))
        if found != expected:
            differing.append(f"client {client} has {found[:16]}… (not {expected[:16]}…)")
        protected += [] if answer["records"] else [client]
    if differing:
        raise InputError(
            "these clients' data differ from the server's copy (SHA-256 of the records, in order): "
            f"{', '.join(differing)}; put the same files at every data-path"
        )
    if protected:
        log_event(uncompared=protected)


def _inspect_digest(reply: Message) -> None:
    answer = reply.content.config_records[messages.DATA]
    if (
        not re.fullmatch("[0-9a-f]{64}", str(answer["sha256"]))
        or type(answer["records"]) is not bool
    ):
        raise ValueError("it has no SHA-256 of its data, or does not say whether of its records")


def _claimed_partition(reply: Message) -> int:
    """Return the partition that a node claims. Raises RuntimeError if its reply is invalid."""
    try:
        if (claimed := metric(reply, "partition")) == int(claimed):
            return int(claimed)
        raise ValueError(claimed)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RuntimeError(
            f"node {reply.metadata.src_node_id} failed to identify itself: invalid reply: {error!r}"
        ) from None
