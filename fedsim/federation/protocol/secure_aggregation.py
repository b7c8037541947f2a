"""Secure aggregation of the clients' integers by Flower's SecAgg+ (Bell et al., 2020).

Its four stages are public keys, shares of every client's two secrets, the masked sum, and the
shares that unmask the total. Flower's own mod runs them on a client, and this module on the server.
Every client takes part in every round: where some may be missing, a server could name different
ones to each client, and unmask a single message.

Flower's quantiser rounds nothing, as the clients send integers already: with c = 2^(bits-1) and
2^bits levels, its scale is 1. The total equals that of `fixed_point.summed` exactly.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.serverapp import Grid

from adversaries.arrays import Ints
from fedsim.configuration import from_run_config
from fedsim.federation.protocol import flower_private as flower
from fedsim.federation.protocol import messages, signed_keys
from fedsim.federation.protocol.consent import RefusedError
from fedsim.federation.protocol.flower_private import Key, Stage
from fedsim.federation.protocol.forms import Form
from fedsim.federation.protocol.messages import Request
from fedsim.federation.protocol.replies import failure
from fedsim.game.mechanisms.fixed_point import MODULUS_BITS, FixedPoint, Words, message_bits

CONFIGS = flower.SECAGG_CONFIGS

ANSWERED = "secure-sum-answered"
"""Record of a client's Flower state: first trial and round of the last sum that it sent."""

LONGEST_SHARE = 4096
"""In bytes. Flower's encrypted shares, of a key of 306 bytes and a seed of 32, are below 1000."""

Handler = Callable[[Message, Context], Message]
Answer = TypeVar("Answer")


class SecureAggregationError(RefusedError):
    """The protocol was violated. The client then sends nothing, and the server learns nothing."""


def client_mod(message: Message, context: Context, call_next: Handler) -> Message:
    """Return a client's answer with a masked sum (a mod of the train handler).

    Other records of the reply, such as a measurement for the auditor, are not masked.

    message: a stage of the protocol. Only the request for the masked sum reaches the handler.
    Raises SecureAggregationError if the request would bypass the protocol or weaken it.
    """
    if CONFIGS not in message.content.config_records:
        raise SecureAggregationError("the server asks for a sum outside of secure aggregation")
    configs = message.content.config_records[CONFIGS]
    clients = from_run_config(context.run_config).federation.clients
    stage, signing = configs.get(Key.STAGE), signed_keys.knows_peers(context.node_config)
    if stage == Stage.SETUP:
        _check_setup(clients, configs)
    elif stage == Stage.SHARE_KEYS and signing:
        keys: Any = {int(node): each for node, each in configs.items() if node != Key.STAGE}
        signatures = message.content.config_records.get(signed_keys.SIGNED, ConfigRecord())
        signed_keys.check(context, signatures, keys)
    elif stage == Stage.UNMASK:
        _check_unmask(clients, configs, message.metadata.dst_node_id)
    elif stage == Stage.COLLECT_MASKED_VECTORS:
        _check_once(Request.from_content(message.content), context)
    beside = RecordDict()

    def masked_part(request: Message, same: Context) -> Message:
        reply = call_next(request, same)
        sent = messages.only(reply.content.array_records[messages.REPLY])
        for name, record in reply.content.items():
            if name != messages.REPLY:
                beside[name] = record
        # Flower's quantiser takes floats; float64 holds every 32-bit integer exactly.
        return Message(
            flower.secagg_input([sent.view(np.int32).astype(np.float64)]), reply_to=request
        )

    answer = flower.secaggplus_mod(message, context, masked_part)
    said = answer.content.config_records[CONFIGS]
    if stage == Stage.SETUP and signing:
        own: Any = [said[Key.PUBLIC_KEY_1], said[Key.PUBLIC_KEY_2]]
        said[signed_keys.SIGNATURE] = signed_keys.sign(context, own)
    beside[CONFIGS] = said
    return Message(beside, reply_to=message)


@dataclass
class SecureSum:
    """The server's side of one round. A node that fails a stage ends the round.

    Attributes:
        nodes: the node of each client.
        failed: why each node failed.
        keys: the record, of a request for a sum, that each node needs, from `exchange_keys`.
    """

    flower_grid: Grid
    nodes: Mapping[int, int]
    grid: FixedPoint
    setup: Mapping[str, ConfigRecordValues]
    timeout: float
    failed: dict[int, str] = field(default_factory=dict)
    keys: dict[int, ConfigRecord] = field(default_factory=dict)

    def exchange_keys(self) -> dict[int, ConfigRecord]:
        """Run the first two stages, which say nothing of records; return `keys`.

        Raises SecureAggregationError if a node fails.
        """
        # Stage 1: every node sends two public keys, which no other node may have.
        setup: dict[str, ConfigRecordValues] = {Key.STAGE: Stage.SETUP, **self.setup}
        introduced = self._stage(
            {node: ConfigRecord(dict(setup)) for node in self.nodes.values()}, _public_keys
        )
        owners = Counter(key for keys, _ in introduced.values() for key in keys)
        for node, (keys, _) in introduced.items():
            if any(owners[key] > 1 for key in keys):  # every client would refuse such a node
                self._fail(node, "another node sent one of its public keys")
        self._require_all("the exchange of keys")
        # Stage 2: every node encrypts a share of its secrets for every other node.
        named = {str(node): keys for node, (keys, _) in introduced.items()}
        requests = {node: ConfigRecord({**named}) for node in introduced}
        for request in requests.values():
            request[Key.STAGE] = Stage.SHARE_KEYS
        signatures = {node: signature for node, (_, signature) in introduced.items()}
        signed = signed_keys.listed(self.nodes, signatures, list(introduced))
        shared = self._stage(
            requests,
            lambda node, answer: _by_node(
                answer[Key.DESTINATION_LIST], answer[Key.CIPHERTEXT_LIST], {*introduced} - {node}
            ),
            {signed_keys.SIGNED: signed},
        )
        self._require_all("the exchange of shares")
        # The server forwards the shares, with the request of stage 3.
        for node in shared:
            others = [other for other in shared if other != node]
            self.keys[node] = ConfigRecord(
                {
                    Key.STAGE: Stage.COLLECT_MASKED_VECTORS,
                    Key.SOURCE_LIST: others,
                    Key.CIPHERTEXT_LIST: [shared[other][node] for other in others],
                }
            )
        return self.keys

    def unmask(self, replies: Mapping[int, Message], shape: tuple[int, ...]) -> Words:
        """Return the sum of the masked replies, modulo 2^32.

        Raises SecureAggregationError if a client fails the last stage, or the messages and shares
        contradict each other.
        """
        for node in sorted({*self.nodes.values()} - replies.keys()):
            self._fail(node, "it sent no sum")
        self._require_all("the sum")
        active = sorted(replies)
        request: dict[str, ConfigRecordValues] = {
            Key.STAGE: Stage.UNMASK,
            Key.ACTIVE_NODE_ID_LIST: active,
            Key.DEAD_NODE_ID_LIST: [],
        }
        answers = self._stage(
            {node: ConfigRecord(dict(request)) for node in active},
            lambda _, answer: _by_node(answer[Key.NODE_ID_LIST], answer[Key.SHARE_LIST], active),
        )
        self._require_all("the last stage")
        try:
            total = sum(
                (masked(reply, shape) for reply in replies.values()),
                np.zeros(shape, dtype=np.int64),
            )
            for node in active:  # the shares reveal the seed of its own mask
                secret = flower.combine_shares([each[node] for each in answers.values()])
                total = total - flower.secagg_mask(secret, 1 << MODULUS_BITS, shape)
            # Flower's quantiser shifts every message by c, which is 2^(bits-1) steps.
            total = total - len(active) * (1 << (self.grid.bits - 1))
            words = (total % (1 << MODULUS_BITS)).astype(np.uint32)
            self.grid.check_range(words, len(active))
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise SecureAggregationError(
                "the clients' messages and shares contradict each other, so at least one of them "
                f"is false; nothing of the sum is released: {error}"
            ) from None
        return words

    def _stage(
        self,
        requests: Mapping[int, ConfigRecord],
        read: Callable[[int, Any], Answer],
        beside: Mapping[str, ConfigRecord] | None = None,
    ) -> dict[int, Answer]:
        """Send a stage's requests, and return the valid answers by node, sorted."""
        sent = {
            node: Message(RecordDict({CONFIGS: record, **(beside or {})}), node, MessageType.TRAIN)
            for node, record in requests.items()
        }
        answers: dict[int, Answer] = {}
        for reply in self.flower_grid.send_and_receive(sent.values(), timeout=self.timeout):
            node = reply.metadata.src_node_id
            if reply.has_error() or node not in self.nodes.values():
                answers.pop(node, None)
                self._fail(node, failure(reply) if reply.has_error() else "it was not asked")
                continue
            try:
                # Of two answers it is unclear which one is true, so neither counts.
                if node in answers or node in self.failed:
                    answers.pop(node, None)
                    raise ValueError("it answered a stage of secure aggregation twice")
                answers[node] = read(node, reply.content.config_records[CONFIGS])
            except (ValueError, KeyError, TypeError) as error:
                self._fail(node, f"invalid reply: {error}")
        for node in requests.keys() - answers.keys():
            self._fail(node, f"no answer within {self.timeout:g} s (federation.timeout)")
        return dict(sorted(answers.items()))

    def _fail(self, node: int, reason: str) -> None:
        self.failed.setdefault(node, reason)

    def _require_all(self, stage: str) -> None:
        if self.failed:
            client_of = {node: client for client, node in self.nodes.items()}
            reasons = (
                f"client {client_of.get(node, '?')} failed: {why}"
                for node, why in sorted(self.failed.items())
            )
            raise SecureAggregationError(
                f"{stage} of secure aggregation needs all {len(self.nodes)} clients; nothing of "
                f"the sum is released: {'; '.join(reasons)}"
            )


def _public_keys(_: int, answer: Any) -> tuple[list[bytes], bytes]:
    """Return a node's exchange keys, and its signature of them; b"" without one."""
    keys = [answer[Key.PUBLIC_KEY_1], answer[Key.PUBLIC_KEY_2]]
    for key in keys:
        # A false key would make every other client fail, with an error that names another client.
        flower.check_secagg_key(key)
    signature = answer.get(signed_keys.SIGNATURE, b"")
    if not isinstance(signature, bytes) or len(signature) > signed_keys.LONGEST:
        raise ValueError("its signature has a wrong type or length")
    return keys, signature


def _by_node(nodes: Any, shares: Any, expected: Collection[int]) -> dict[int, bytes]:
    """Return shares by node. Raises ValueError unless each expected node has exactly one."""
    if sorted(nodes) != sorted(expected) or len(shares) != len(nodes):
        raise ValueError("its shares are not the requested ones")
    if not all(isinstance(share, bytes) and len(share) <= LONGEST_SHARE for share in shares):
        raise ValueError("its shares have a wrong type or length")
    return dict(zip(nodes, shares, strict=True))


def masked(reply: Message, shape: tuple[int, ...]) -> Ints:
    """Return a client's masked integers, int64. Raises ValueError if the reply has none."""
    record = reply.content.config_records.get(CONFIGS)
    parts: Any = None if record is None else record.get(Key.MASKED_PARAMETERS)
    if not isinstance(parts, list) or len(parts) != 2:  # Flower's weight, and the integers
        raise ValueError("it has no masked sum")
    Form.of(np.int64, *shape).check(parts[1], "masked sum")
    values = flower.array_from_bytes(parts[1])
    if values.min() < 0 or values.max() >= 1 << MODULUS_BITS:
        raise ValueError("its masked sum is not between 0 and 2^32 - 1")
    return values


def _check_once(request: Request, context: Context) -> None:
    """Raise SecureAggregationError for a second sum of a round: the difference is a message."""
    record = context.state.config_records.get(ANSWERED)
    before: Any = [0, 0] if record is None else record["last"]
    asked = [request.first_trial, request.round]  # both only ever grow within a run
    if asked <= before:
        raise SecureAggregationError(
            f"this client sent its sum of round {request.round} already; it sends each sum once"
        )
    context.state[ANSWERED] = ConfigRecord({"last": asked})


def agreed_setup(clients: int) -> dict[str, ConfigRecordValues]:
    """Return the values of the first stage, which clients and server derive from the run."""
    bits = message_bits(clients)
    return {
        Key.SAMPLE_NUMBER: clients,
        Key.SHARE_NUMBER: clients,
        Key.THRESHOLD: clients,
        Key.CLIPPING_RANGE: float(1 << (bits - 1)),
        Key.TARGET_RANGE: 1 << bits,
        Key.MOD_RANGE: 1 << MODULUS_BITS,
        Key.MAX_WEIGHT: 1.0,
    }


def _check_setup(clients: int, configs: ConfigRecord) -> None:
    """Raise SecureAggregationError for a setup that hides less than agreed."""
    for name, agreed in agreed_setup(clients).items():
        if configs.get(name) != agreed:
            raise SecureAggregationError(
                f"the server set up secure aggregation with {name} {configs.get(name)!r}, but the "
                f"clients agreed on {agreed!r}"
            )


def _check_unmask(clients: int, configs: ConfigRecord, own: int) -> None:
    """Raise SecureAggregationError for a request that would unmask a single client."""
    active, dead = (
        list(configs.get(name, []))  # type: ignore[arg-type]
        for name in (Key.ACTIVE_NODE_ID_LIST, Key.DEAD_NODE_ID_LIST)
    )
    # Both secrets of one client reveal its message, and too few messages have too little noise.
    if dead or len(active) != clients or len(set(active)) != clients or own not in active:
        raise SecureAggregationError(
            f"the server lists {len(active)} present and {len(dead)} missing clients. It must list "
            f"each of the {clients} clients once as present; these shares would unmask one of them"
        )
