"""The nodes of a run: one for every client, and auditors, for whom no round waits."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration.federation import TOLERATED, FederationConfig
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.flower_private import GONE
from fedsim.federation.protocol.messages import Request
from fedsim.federation.protocol.replies import failure, sort_out
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server.polling import taken

IDENTIFY = f"{MessageType.QUERY}.identify"
DIGEST = f"{MessageType.QUERY}.data"

REGISTERED = "nodes.json"
"""File of a run directory that names the node of each client's key, by partition."""

POLL_INTERVAL = 0.5
"""Seconds between two requests for missing answers."""

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


class Auditors:
    """The auditors of a run, and the nodes that were asked who they are, by message."""

    def __init__(
        self,
        clients: Iterable[int],
        auditors: Iterable[int],
        log_event: Callable[..., None],
        asked: Mapping[str, int] | None = None,
    ) -> None:
        self.nodes = set(auditors)
        self._clients = set(clients)
        self._awaited = dict(asked or {})
        # Nodes that need not be asked for their identity.
        self._known = {*self._clients, *self.nodes, *self._awaited.values()}
        self._log_event = log_event
        for node in sorted(self.nodes):
            log_event(auditor=node, joined=True)

    def look_around(self, grid: Grid) -> None:
        """Read the auditors' answers, and ask new nodes for their identity, without waiting."""
        self._listen(grid)
        present = set(grid.get_node_ids())
        for node in sorted(self.nodes - present):
            self._leave(node, "its node is gone")
        # A node that left is asked again when it returns.
        self._known &= present | self._clients
        if new := sorted(present - self._known):
            self._known.update(new)
            self._send(grid, [Message(RecordDict(), node, IDENTIFY) for node in new])

    def inform(self, grid: Grid, kind: str, content: Callable[[], RecordDict]) -> None:
        """Send every auditor a message, without waiting."""
        behind = Counter(self._awaited.values())
        for node in sorted(self.nodes):
            if behind[node] >= MOST_UNANSWERED:
                self._leave(node, f"{behind[node]} messages are unanswered")
        self._send(grid, [Message(content(), node, kind) for node in sorted(self.nodes)])

    def dismiss(self, grid: Grid, timeout: float = DISMISS_TIMEOUT) -> None:
        """Let the auditors fetch their last messages, within some seconds, then end the run."""
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
        accepted = taken(grid, sent)
        for message in sent:
            id, node = message.metadata.message_id, message.metadata.dst_node_id
            if id in accepted:
                self._awaited[id] = node
            else:
                self._leave(node, "Flower accepted no message for its node")

    def _hear(self, reply: Message) -> None:
        # The sender of Flower's own error replies is not the node in question.
        node = self._awaited.pop(reply.metadata.reply_to_message_id, None)
        if node is None:
            return
        if reply.has_error():
            self._leave(node, failure(reply))
            return
        try:
            partition = _claimed_partition(reply)
        except RuntimeError as error:
            self._leave(node, str(error))
            return
        if node not in self.nodes and partition == messages.AUDITOR:
            self.nodes.add(node)
            self._log_event(auditor=node, joined=True)

    def _leave(self, node: int, reason: str) -> None:
        if node in self.nodes:
            self.nodes.discard(node)
            self._log_event(auditor=node, joined=False, reason=reason)


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
) -> tuple[dict[int, int], Auditors]:
    """Return the node of every client, after comparing its data with the server's, and auditors.

    digest, first: as for `check_data`.
    directory: the run directory. If it names the clients' nodes, no other node may be a client.
    Raises InputError if too few clients answer in time, or a client has other data.
    """
    registered = registered_nodes(directory)
    nodes, present, asked = connect(
        grid,
        clients.clients,
        CONNECT_TIMEOUT,
        registered,
        directory.log_event,
        clients.tolerated_dropouts,
    )
    check_data(grid, nodes, digest, clients.timeout, directory.log_event, first)
    nodes = {**(registered or {}), **nodes}  # a client that is away is asked in each round
    auditors = Auditors(nodes.values(), present, directory.log_event, asked)
    return nodes, auditors


def connect(
    grid: Grid,
    clients: int,
    timeout: float,
    registered: Mapping[int, int] | None = None,
    log_event: Callable[..., None] = lambda **_: None,
    tolerated: int = 0,
) -> tuple[dict[int, int], list[int], dict[str, int]]:
    """Return the nodes of a run, once every client's node has connected.

    After LEAVING seconds it suffices that no more than `tolerated` clients are missing.

    registered: the node of each partition, so that an unknown node cannot stop the run; None: every
    claim is accepted.
    Returns: the node of each partition, the auditors' nodes, and by message those that have
    INTRODUCTION seconds more to identify themselves.
    Raises InputError if too few partitions answer in time, or a client's node claims another's.
    Raises RuntimeError if a node answers with an error while clients are missing.
    """
    begun, named, complete = time.monotonic(), False, math.inf
    roll = _Roll(clients, registered)
    while True:
        roll.ask(grid)
        failed = roll.listen(grid)
        now, absent = time.monotonic(), roll.absent
        if not absent:
            complete = min(complete, now)
        # Once the clients are complete, other nodes have a little longer. Else wait for clients.
        introduced = not absent and (not roll.asked or now >= complete + INTRODUCTION)
        if introduced or (absent and now > begun + LEAVING and len(absent) <= tolerated):
            return dict(sorted(roll.nodes.items())), roll.auditors, roll.asked
        if absent and failed:
            raise RuntimeError(failed)
        missing = f"client{'s' * (len(absent) > 1)} {', '.join(map(str, absent))}"
        if absent and now > begun + timeout:
            raise InputError(
                f"{len(roll.nodes)} of {clients} clients connected within {timeout:g} s. Missing: "
                f"{missing}. Start as many SuperNodes as federation.clients (in a simulation, use "
                f"--federation-config 'num-supernodes={clients}'); a training goes on without "
                f"them with {TOLERATED}={len(absent)}"
                + "".join(f"; a node failed: {reason}" for reason in roll.reasons)
            )
        if absent and not named and now > begun + PATIENCE:
            named = True
            log_event(waiting=missing, reasons=list(roll.reasons))
        time.sleep(POLL_INTERVAL)


@dataclass
class _Roll:
    """The identified nodes of a run, the asked ones by message, and why claims were rejected."""

    clients: int
    registered: Mapping[int, int] | None
    nodes: dict[int, int] = field(default_factory=dict)
    auditors: list[int] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    asked: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)
    asked_at: dict[int, float] = field(default_factory=dict)

    @property
    def absent(self) -> list[int]:
        """The clients that have not identified themselves."""
        return [client for client in range(self.clients) if client not in self.nodes]

    def ask(self, grid: Grid) -> None:
        """Ask every new node for its identity, and at times those that have not answered."""
        now = time.monotonic()
        # An earlier question still counts: the node may be slow.
        waiting = {each for each in self.asked.values() if now < self.asked_at[each] + ASK_AGAIN}
        known = {*self.nodes.values(), *self.auditors, *waiting, *self.unknown}
        new = sorted(set(grid.get_node_ids()) - known)
        self.asked_at |= dict.fromkeys(new, now)
        accepted = taken(grid, [Message(RecordDict(), node, IDENTIFY) for node in new])
        self.asked |= {id: query.metadata.dst_node_id for id, query in accepted.items()}

    def listen(self, grid: Grid) -> str:
        """Enter the claims of the nodes that answered; return why a client's failed, or ""."""
        failed = ""
        for reply in grid.pull_messages(list(self.asked)) if self.asked else ():
            node = self.asked.pop(reply.metadata.reply_to_message_id, None)
            if node is None:  # a second answer to the same question
                continue
            try:
                if not reply.has_error():
                    self._enter(node, _claimed_partition(reply))
                elif reply.error.code in GONE:
                    # Flower lists a killed node for a minute. It may be on its way back.
                    self.reasons[failure(reply)] = None
                else:
                    raise RuntimeError(f"a node failed to identify itself: {failure(reply)}")
            except RuntimeError as error:
                if self._is_unknown(node):
                    self.reasons[str(error)] = None
                else:
                    failed = failed or str(error)
        return failed

    def _is_unknown(self, node: int) -> bool:
        """Return whether a node is certainly no client's."""
        return self.registered is not None and node not in self.registered.values()

    def _enter(self, node: int, partition: int) -> None:
        """Accept the claim of a node, or record it as unknown.

        Raises InputError for a partition that does not exist, is another node's, or claimed twice.
        """
        self.asked = {id: each for id, each in self.asked.items() if each != node}
        if partition == messages.AUDITOR:
            self.auditors.append(node)
        elif self._is_unknown(node):
            self.unknown.add(node)
            why = f"node {node} claims partition {partition}, but its key belongs to no client"
            self.reasons[why] = None
        elif not 0 <= partition < self.clients:
            raise InputError(
                f"a node claims partition {partition}, but federation.clients is {self.clients}; "
                "start as many nodes as clients"
            )
        elif self.registered is not None and self.registered.get(partition) != node:
            raise InputError(
                f"node {node} claims partition {partition}, but that client's key belongs to node "
                f"{self.registered.get(partition)}; give it the partition-id of its own key"
            )
        elif self.nodes.setdefault(partition, node) != node:
            raise InputError(
                f"two nodes claim partition {partition}; give each its own partition-id"
            )


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
    answers = {
        client: reply.content.config_records[messages.DATA]
        for client, reply in digests.accepted.items()
    }
    differing = []
    for client, answer in answers.items():
        expected = digest(client, bool(answer["records"]))
        if answer["sha256"] != expected:
            differing.append(
                f"client {client} has {str(answer['sha256'])[:16]}… (not {expected[:16]}…)"
            )
    if differing:
        raise InputError(
            "these clients' data differ from the server's copy (SHA-256 of the records, in order): "
            f"{', '.join(differing)}; put the same files at every data-path"
        )
    if protected := [client for client, answer in answers.items() if not answer["records"]]:
        log_event(uncompared=protected)


def _inspect_digest(reply: Message) -> None:
    answer = reply.content.config_records[messages.DATA]
    digest = answer["sha256"]
    if not (isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)):
        raise ValueError("it has no SHA-256 of its data")
    if not isinstance(answer["records"], bool):
        raise ValueError("it does not say whether the SHA-256 is of its records")


def _claimed_partition(reply: Message) -> int:
    """Return the partition that a node claims. Raises RuntimeError if its reply is invalid."""
    try:
        claimed = messages.metric(reply, "partition")
        if claimed != int(claimed):
            raise ValueError(claimed)
        return int(claimed)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RuntimeError(
            f"node {reply.metadata.src_node_id} failed to identify itself: invalid reply: {error!r}"
        ) from None
