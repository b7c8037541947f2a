"""Secure aggregation of the clients' integers by Flower's SecAgg+ (Bell et al., 2020).

Its four stages are public keys, shares of every client's two secrets, the masked sum, and the
shares that unmask the total. Flower's own mod runs them on a client, and this module on the server.
Flower's quantiser rounds nothing, as the clients send integers already: with c = 2^(bits-1) and
2^bits levels, its scale is 1. The total equals that of `fixed_point.summed` exactly.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
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
from fedsim.privacy.participation.histories import most_together
from fedsim.privacy.participation.rule import Participation, unites

CONFIGS = flower.SECAGG_CONFIGS

ANSWERED = "secure-sum-answered"
"""Record of a client's Flower state: first trial and round of the last sum that it sent."""

SET_UP = "secure-sum-set-up"
"""Record of a client's Flower state: the round of the last setup."""

ROUND = "round"
"""Name of the round in a setup, where clients differ between rounds."""

LONGEST_SHARE = 4096
"""In bytes. Flower's encrypted shares, of a key of 306 bytes and a seed of 32, are below 1000."""

Handler = Callable[[Message, Context], Message]
Answer = TypeVar("Answer")


class SecureAggregationError(RefusedError):
    """The protocol was violated. The client then sends nothing, and the server learns nothing."""


def enabled(secure_aggregation: str) -> bool:
    """Return whether the clients send masked messages only."""
    return secure_aggregation == "secagg+"


def client_mod(message: Message, context: Context, call_next: Handler) -> Message:
    """Return a client's answer with a masked sum (a mod of the train handler).

    Other records of the reply, such as a measurement for the auditor, are not masked.

    message: a stage of the protocol. Only the request for the masked sum reaches the handler.
    Raises SecureAggregationError if the request would bypass the protocol or weaken it.
    """
    config = from_run_config(context.run_config)
    if not enabled(config.federation.secure_aggregation):
        return call_next(message, context)
    if CONFIGS not in message.content.config_records:
        if _only_sees(config.participation, message, context):
            return call_next(message, context)
        raise SecureAggregationError("the server asks for a sum outside of secure aggregation")
    configs = message.content.config_records[CONFIGS]
    stage, signing = configs.get(Key.STAGE), signed_keys.knows_peers(context.node_config)
    if stage == Stage.SETUP:
        federation, rounds = config.federation, config.training.rounds
        _check_setup(config.participation, rounds, federation.colluding, configs)
        context.state[SET_UP] = ConfigRecord({ROUND: configs.get(ROUND, 1)})
    elif stage == Stage.SHARE_KEYS and signing:
        keys: Any = {int(node): each for node, each in configs.items() if node != Key.STAGE}
        signatures = message.content.config_records.get(signed_keys.SIGNED, ConfigRecord())
        signed_keys.check(context, signatures, keys)
    elif stage == Stage.UNMASK:
        _check_unmask(
            config.participation, configs, message.metadata.dst_node_id, _last_asked(context)[1]
        )
    elif stage == Stage.COLLECT_MASKED_VECTORS:
        _check_once(config.participation, Request.from_content(message.content), context)
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
    """The server's side of one round. A node that fails a stage leaves the round."""

    flower_grid: Grid
    nodes: Mapping[int, int]
    grid: FixedPoint
    setup: Mapping[str, ConfigRecordValues]
    timeout: float
    failed: dict[int, Message] = field(default_factory=dict)
    sharing: frozenset[int] = frozenset()
    silent: dict[int, str] = field(default_factory=dict)

    @property
    def threshold(self) -> int:
        return int(self.setup[Key.THRESHOLD])  # type: ignore[arg-type]

    def exchange_keys(self) -> dict[int, ConfigRecord]:
        """Run the first two stages; return the record that each remaining node needs."""
        # Stage 1: every node sends two public keys, which no other node may have.
        setup: dict[str, ConfigRecordValues] = {Key.STAGE: Stage.SETUP, **self.setup}
        introduced = self._stage(
            {node: ConfigRecord(dict(setup)) for node in self.nodes.values()}, _public_keys
        )
        self._keys = {node: keys for node, (keys, _) in introduced.items()}
        owners = Counter(key for keys in self._keys.values() for key in keys)
        for node, keys in list(self._keys.items()):
            if any(owners[key] > 1 for key in keys):  # every client would refuse such a node
                del self._keys[node]
                self._fail(node, "another node sent one of its public keys")
        # Stage 2: every node encrypts a share of its secrets for every other node.
        named = {str(node): keys for node, keys in self._keys.items()}
        requests = {node: ConfigRecord({**named}) for node in self._keys}
        for request in requests.values():
            request[Key.STAGE] = Stage.SHARE_KEYS
        signatures = {node: signature for node, (_, signature) in introduced.items()}
        signed = signed_keys.listed(self.nodes, signatures, list(self._keys))
        shared = self._stage(
            requests,
            lambda node, answer: _by_node(
                answer[Key.DESTINATION_LIST], answer[Key.CIPHERTEXT_LIST], set(self._keys) - {node}
            ),
            {signed_keys.SIGNED: signed},
        )
        # The server forwards the shares among the remaining nodes, with the request of stage 3.
        forwarded: dict[int, tuple[list[int], list[bytes]]] = {node: ([], []) for node in shared}
        for source, ciphertexts in shared.items():
            for destination, ciphertext in ciphertexts.items():
                if destination in forwarded:
                    forwarded[destination][0].append(source)
                    forwarded[destination][1].append(ciphertext)
        self.sharing = frozenset(shared)
        return {
            node: ConfigRecord(
                {
                    Key.STAGE: Stage.COLLECT_MASKED_VECTORS,
                    Key.SOURCE_LIST: sources,
                    Key.CIPHERTEXT_LIST: ciphertexts,
                }
            )
            for node, (sources, ciphertexts) in forwarded.items()
        }

    def with_keys(self, requests: Iterable[Message]) -> list[Message]:
        """Return the requests for sums, each with the keys of the others; see `exchange_keys`.

        A client that does not join the round sends no sum, and needs no keys.
        """
        keys, left = self.exchange_keys(), []
        for request in requests:
            node = request.metadata.dst_node_id
            if node in keys:
                request.content[CONFIGS] = keys[node]
            if node in keys or node not in self.nodes.values():
                left.append(request)
        return left

    def unmask(self, replies: Mapping[int, Message], shape: tuple[int, ...]) -> Words:
        """Return the sum of the masked replies, modulo 2^32.

        Raises SecureAggregationError if too few clients answer the last stage, or the messages and
        shares contradict each other.
        """
        # A node that exchanged keys but sent no sum is missing. The other sums contain its masks.
        active, dead = set(replies), self.sharing - set(replies)
        total = sum(
            (masked(reply, shape) for reply in replies.values()), np.zeros(shape, dtype=np.int64)
        )
        request: dict[str, ConfigRecordValues] = {
            Key.STAGE: Stage.UNMASK,
            Key.ACTIVE_NODE_ID_LIST: sorted(active),
            Key.DEAD_NODE_ID_LIST: sorted(dead),
        }
        expected = active | dead
        answers = self._stage(
            {node: ConfigRecord(dict(request)) for node in sorted(active)},
            lambda _, answer: _by_node(answer[Key.NODE_ID_LIST], answer[Key.SHARE_LIST], expected),
        )
        self.silent = {
            client: failure(self.failed[node])
            if node in self.failed
            else f"no answer within {self.timeout:g} s (federation.timeout)"
            for client, node in sorted(self.nodes.items())
            if node in active - set(answers)
        }
        if len(answers) < self.threshold:
            reasons = "".join(f"; client {client}: {why}" for client, why in self.silent.items())
            raise SecureAggregationError(
                f"{len(answers)} clients answered the last stage of secure aggregation, but "
                f"{self.threshold} are needed to unmask the sum; nothing of it is released{reasons}"
            )
        shares = {node: [each[node] for each in answers.values()] for node in sorted(expected)}
        try:
            words = self._unmasked(total, shares, active)
            self.grid.check_range(words, len(active))
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise SecureAggregationError(
                "the clients' messages and shares contradict each other, so at least one of them "
                f"is false; nothing of the sum is released: {error}"
            ) from None
        return words

    def _unmasked(self, total: Ints, shares: Mapping[int, list[bytes]], active: set[int]) -> Words:
        """Return the sum without its masks, which the shares of the nodes' secrets reveal."""
        shape = total.shape
        for node, parts in shares.items():
            # An active node's secret is the seed of its own mask; a missing node's is its key.
            secret = flower.combine_shares(parts)
            if node in active:
                total = total - flower.secagg_mask(secret, 1 << MODULUS_BITS, shape)
                continue
            # A missing node's message would have cancelled the masks that it shares with others.
            for other in sorted(active):
                key = flower.secagg_shared_key(secret, self._keys[other][0])
                mask = flower.secagg_mask(key, 1 << MODULUS_BITS, shape)
                total = total + mask if node > other else total - mask
        # Flower's quantiser shifts every message by c, which is 2^(bits-1) steps.
        total = total - len(active) * (1 << (self.grid.bits - 1))
        return (total % (1 << MODULUS_BITS)).astype(np.uint32)

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
                self.failed[node] = reply
                continue
            try:
                if node not in requests:
                    raise ValueError("it answered a stage that it has no part in")
                # Of two answers it is unclear which one is true, so neither counts.
                if node in answers or node in self.failed:
                    answers.pop(node, None)
                    raise ValueError("it answered a stage of secure aggregation twice")
                answers[node] = read(node, reply.content.config_records[CONFIGS])
            except (ValueError, KeyError, TypeError) as error:
                self._fail(node, f"invalid reply: {error}")
        return dict(sorted(answers.items()))

    def _fail(self, node: int, reason: str) -> None:
        request = Message(RecordDict(), node, MessageType.TRAIN)
        self.failed.setdefault(node, Message(Error(code=0, reason=reason), reply_to=request))


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


def _only_sees(participation: Participation, message: Message, context: Context) -> bool:
    """Return whether a client sees a round that it does not join, and so sends no sum."""
    if not participation.varying or messages.REQUEST not in message.content:
        return False
    joins = participation.participants(Request.from_content(message.content).round)
    return messages.partition(context) not in joins


def _last_asked(context: Context) -> tuple[int, int]:
    """Return first trial and round of the last sum that a client sent; (0, 0): none yet."""
    before = context.state.config_records.get(ANSWERED)
    return (0, 0) if before is None else tuple(before["last"])  # type: ignore[arg-type,return-value]


def _check_once(participation: Participation, request: Request, context: Context) -> None:
    """Raise SecureAggregationError for a second sum of a round: the difference is a message."""
    asked = (request.first_trial, request.round)  # both only ever grow within a run
    if asked <= _last_asked(context):
        raise SecureAggregationError(
            f"this client sent its sum of round {request.round} already; it sends each sum once"
        )
    # A setup for another round could need fewer clients to unmask.
    set_up: Any = context.state.config_records[SET_UP][ROUND]
    if participation.varying and set_up != request.round:
        raise SecureAggregationError(
            f"the server asks for the sum of round {request.round}, but it set up secure "
            f"aggregation for round {set_up}"
        )
    context.state[ANSWERED] = ConfigRecord({"last": list(asked)})


def agreed_setup(
    participation: Participation, rounds: int, round: int
) -> dict[str, ConfigRecordValues]:
    """Return the values of the first stage, which clients and server derive from the run."""
    clients = len(participation.participants(round))
    bits = message_bits(most_together(participation, rounds))
    varying: dict[str, ConfigRecordValues] = {ROUND: round} if participation.varying else {}
    return varying | {
        Key.SAMPLE_NUMBER: clients,
        Key.SHARE_NUMBER: clients,
        Key.THRESHOLD: participation.shares(round),
        Key.CLIPPING_RANGE: float(1 << (bits - 1)),
        Key.TARGET_RANGE: 1 << bits,
        Key.MOD_RANGE: 1 << MODULUS_BITS,
        Key.MAX_WEIGHT: 1.0,
    }


def _check_setup(
    participation: Participation, rounds: int, colluding: int, configs: ConfigRecord
) -> None:
    """Raise SecureAggregationError for a setup that hides less than agreed, or too little."""
    round: Any = configs.get(ROUND, 1)
    if type(round) is not int or not 1 <= round <= rounds:
        raise SecureAggregationError(
            f"the server set up secure aggregation for round {round!r}, but the run has rounds 1 "
            f"to {rounds}"
        )
    setup = agreed_setup(participation, rounds, round)
    clients, threshold = len(participation.participants(round)), participation.shares(round)
    if not unites(clients, threshold, colluding):
        raise SecureAggregationError(
            f"{threshold} of {clients} clients can unmask a sum, so a server that tells two halves "
            "of the honest clients different things could unmask a single message; raise "
            "federation.clients or lower federation.tolerated-dropouts"
        )
    for name, agreed in setup.items():
        if configs.get(name) != agreed:
            raise SecureAggregationError(
                f"the server set up secure aggregation with {name} {configs.get(name)!r}, but the "
                f"clients agreed on {agreed!r}"
            )


def _check_unmask(
    participation: Participation, configs: ConfigRecord, own: int, round: int
) -> None:
    """Raise SecureAggregationError for a request that would unmask a single client."""
    active, dead = (
        list(configs.get(name, []))  # type: ignore[arg-type]
        for name in (Key.ACTIVE_NODE_ID_LIST, Key.DEAD_NODE_ID_LIST)
    )
    listed = [*active, *dead]
    # Both secrets of one client reveal its message, and too few messages have too little noise.
    clients, needed = len(participation.participants(round)), participation.shares(round)
    if (
        len(set(listed)) != len(listed)
        or len(listed) > clients
        or len(active) < needed
        or own not in active
    ):
        raise SecureAggregationError(
            f"the server lists {len(active)} present and {len(dead)} missing clients. Of {clients} "
            f"clients, it must list each at most once, and at least {needed} as present; these "
            "shares would unmask one of them"
        )
