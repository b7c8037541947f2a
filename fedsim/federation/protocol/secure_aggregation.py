"""Secure aggregation of the clients' integers by Flower's SecAgg+ (Bell et al., 2020).

Flower's protocol has four stages, each a message to every client and its reply: public keys; shares
of every client's two secrets for every other; the masked sum; and shares of what unmasks the total.
On a client's side Flower's own mod does all of it, inside of `client_mod`; on the server's side
this module drives the stages, because Flower's workflow is for its older strategies.

Flower's quantiser maps [-c, c] to integers by stochastic rounding. Clients send integers already:
with c = 2^(bits-1) and 2^bits levels its scale is 1, nothing is rounded, and the total is the one
that `fixed_point.summed` would give, to the last bit.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.serverapp import Grid

from fedsim.config import from_run_config
from fedsim.federation.protocol import flower_private as flower
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.arrays import check_form
from fedsim.federation.protocol.consent import RefusedError
from fedsim.federation.protocol.flower_private import Key, Stage
from fedsim.federation.protocol.messages import Request
from fedsim.federation.protocol.replies import failure
from fedsim.game.mechanisms.fixed_point import MODULUS_BITS, FixedPoint, Words, message_bits
from fedsim.privacy.participation.histories import most_together
from fedsim.privacy.participation.rule import Participation

CONFIGS = flower.SECAGG_CONFIGS

ANSWERED = "secure-sum-answered"
"""What a client remembers in its Flower state: first trial and round of the last sum it sent."""

SET_UP = "secure-sum-set-up"
"""What a client remembers of the first stage: the round that it was for."""

ROUND = "round"
"""What the setup calls its round, where not all have the same clients."""

LONGEST_SHARE = 4096
"""In bytes. Flower's, of a key of 306 bytes and a seed of 32, encrypted, are below 1000."""

Handler = Callable[[Message, Context], Message]
Answer = TypeVar("Answer")


class SecureAggregationError(RefusedError):
    """The protocol was not followed; a client sends nothing then, and a server learns nothing."""


def enabled(secure_aggregation: str) -> bool:
    """Return whether the clients of this federation send masked messages alone."""
    return secure_aggregation == "secagg+"


def client_mod(message: Message, context: Context, call_next: Handler) -> Message:
    """Return a client's answer, in which its sum is masked (a mod of the train handler).

    What else the reply holds (a measurement, for the auditor) goes along unmasked.

    message: a stage of the protocol; only the masked sum's goes on to the handler.
    Raises SecureAggregationError if the request would bypass the protocol or weaken it.
    """
    config = from_run_config(context.run_config)
    if not enabled(config.federation.secure_aggregation):
        return call_next(message, context)
    if CONFIGS not in message.content.config_records:
        if _looks_on(config.participation, message, context):
            return call_next(message, context)
        raise SecureAggregationError("a sum was asked for outside of secure aggregation")
    configs = message.content.config_records[CONFIGS]
    if configs.get(Key.STAGE) == Stage.SETUP:
        _check_setup(config.participation, config.training.rounds, configs)
        context.state[SET_UP] = ConfigRecord({ROUND: configs.get(ROUND, 1)})
    elif configs.get(Key.STAGE) == Stage.UNMASK:
        _check_unmask(
            config.participation, configs, message.metadata.dst_node_id, _last_asked(context)[1]
        )
    elif configs.get(Key.STAGE) == Stage.COLLECT_MASKED_VECTORS:
        _check_once(config.participation, Request.from_content(message.content), context)
    beside = RecordDict()

    def masked_part(request: Message, same: Context) -> Message:
        reply = call_next(request, same)
        sent = messages.only(reply.content.array_records[messages.REPLY])
        for name, record in reply.content.items():
            if name != messages.REPLY:
                beside[name] = record
        return Message(
            flower.secagg_input([sent.view(np.int32).astype(np.float64)]), reply_to=request
        )

    answer = flower.secaggplus_mod(message, context, masked_part)
    beside[CONFIGS] = answer.content.config_records[CONFIGS]
    return Message(beside, reply_to=message)


@dataclass
class SecureSum:
    """The server's side of one round. Nodes that fail a stage are out of the round from then on.

    Attributes:
        flower_grid: sends the messages.
        nodes: the Flower node of each partition.
        grid: of the clients' integers.
        setup: what the first stage agrees on, as of `agreed_setup`.
        timeout: of a stage, in seconds.
        failed: the error replies of the stages, by node.
        sharing: the nodes that went through the exchange of keys.
        silent: why clients whose sums arrived gave no shares in the last stage, by partition.
    """

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
        """How many clients must answer the last stage."""
        return int(self.setup[Key.THRESHOLD])  # type: ignore[arg-type]

    def exchange_keys(self) -> dict[int, ConfigRecord]:
        """Run the first two stages.

        Returns: what each node that is left must be told with its request, by node.
        """
        # Public keys: of every node two, of its own alone.
        setup: dict[str, ConfigRecordValues] = {Key.STAGE: Stage.SETUP, **self.setup}
        self._keys = self._stage(
            {node: ConfigRecord(dict(setup)) for node in self.nodes.values()}, _public_keys
        )
        seen = Counter(key for keys in self._keys.values() for key in keys)
        for node, keys in list(self._keys.items()):
            if any(seen[key] > 1 for key in keys):  # every client would refuse to go on with it
                del self._keys[node]
                self._fail(node, "its public keys are not its own alone")
        # Shares of every node's secrets: each node encrypts one for every other.
        named = {str(node): keys for node, keys in self._keys.items()}
        requests = {node: ConfigRecord({**named}) for node in self._keys}
        for request in requests.values():
            request[Key.STAGE] = Stage.SHARE_KEYS
        shared = self._stage(
            requests,
            lambda node, answer: _by_node(
                answer[Key.DESTINATION_LIST], answer[Key.CIPHERTEXT_LIST], set(self._keys) - {node}
            ),
        )
        # Passed on between those who are left, with the request for the masked sum.
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

    def unmask(self, replies: Mapping[int, Message], shape: tuple[int, ...]) -> Words:
        """Return the sum, modulo 2^32, of the masked replies.

        Raises SecureAggregationError if too few clients answer the last stage, or messages and
        shares do not fit together.
        """
        # Who went through the exchange and sent no sum is missing: its masks are in others' sums.
        active, dead = set(replies), self.sharing - set(replies)
        total = sum(
            (masked(reply, shape) for reply in replies.values()), np.zeros(shape, dtype=np.int64)
        )
        request: dict[str, ConfigRecordValues] = {
            Key.STAGE: Stage.UNMASK,
            Key.ACTIVE_NODE_ID_LIST: sorted(active),
            Key.DEAD_NODE_ID_LIST: sorted(dead),
        }
        concerned = active | dead
        answers = self._stage(
            {node: ConfigRecord(dict(request)) for node in sorted(active)},
            lambda _, answer: _by_node(answer[Key.NODE_ID_LIST], answer[Key.SHARE_LIST], concerned),
        )
        self.silent = {
            client: self._why(node)
            for client, node in sorted(self.nodes.items())
            if node in active - set(answers)
        }
        if len(answers) < self.threshold:
            reasons = "".join(f"; client {client}: {why}" for client, why in self.silent.items())
            raise SecureAggregationError(
                f"{len(answers)} clients answered the last stage of secure aggregation, but "
                f"{self.threshold} are needed to unmask the sum; nothing of it is released{reasons}"
            )
        shares = {node: [each[node] for each in answers.values()] for node in sorted(concerned)}
        try:
            words = self._unmasked(total, shares, active)
            self.grid.check_range(words, len(active))
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise SecureAggregationError(
                "the clients' messages and shares do not fit together, so that at least one of "
                f"them is false; nothing of the sum is released: {error}"
            ) from None
        return words

    def _unmasked(
        self, total: npt.NDArray[np.int64], shares: Mapping[int, list[bytes]], active: set[int]
    ) -> Words:
        """Return the sum without its masks, which the shares of every node's secret give."""
        shape = total.shape
        for node, parts in shares.items():
            # Of who is there, the seed of its own mask; of who is not, its private key.
            secret = flower.combine_shares(parts)
            if node in active:
                total = total - flower.secagg_mask(secret, 1 << MODULUS_BITS, shape)
                continue
            # Masks that it shares with those who are there, and that its own would have cancelled.
            for other in sorted(active):
                key = flower.secagg_shared_key(secret, self._keys[other][0])
                mask = flower.secagg_mask(key, 1 << MODULUS_BITS, shape)
                total = total + mask if node > other else total - mask
        # Flower's quantiser shifts every message by c, that is 2^(bits-1) steps.
        total = total - len(active) * (1 << (self.grid.bits - 1))
        return (total % (1 << MODULUS_BITS)).astype(np.uint32)

    def _stage(
        self, requests: Mapping[int, ConfigRecord], read: Callable[[int, Any], Answer]
    ) -> dict[int, Answer]:
        """Send a stage's requests; return the good answers by node, sorted.

        read: of a node and its answer; raises ValueError, KeyError or TypeError for one that was
        not asked for.
        """
        sent = {
            node: Message(RecordDict({CONFIGS: record}), node, MessageType.TRAIN)
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
                    raise ValueError("it answered a stage of which it had no part")
                if node in answers or node in self.failed:
                    answers.pop(node, None)
                    raise ValueError("it answered a stage of secure aggregation twice")
                answers[node] = read(node, reply.content.config_records[CONFIGS])
            except (ValueError, KeyError, TypeError) as error:
                self._fail(node, f"invalid reply: {error}")
        return dict(sorted(answers.items()))

    def _fail(self, node: int, reason: str) -> None:
        asked = Message(RecordDict(), node, MessageType.TRAIN)
        self.failed.setdefault(node, Message(Error(code=0, reason=reason), reply_to=asked))

    def _why(self, node: int) -> str:
        if node in self.failed:
            return failure(self.failed[node])
        return f"no answer within {self.timeout:g} s (federation.timeout)"


def _public_keys(_: int, answer: Any) -> list[bytes]:
    keys = [answer[Key.PUBLIC_KEY_1], answer[Key.PUBLIC_KEY_2]]
    for key in keys:
        # Every other client would fail at a false one, and not by its client's name.
        flower.check_secagg_key(key)
    return keys


def _by_node(nodes: Any, shares: Any, asked: Collection[int]) -> dict[int, bytes]:
    """Return shares by node. Raises ValueError unless there is one for each that was asked for."""
    if sorted(nodes) != sorted(asked) or len(shares) != len(nodes):
        raise ValueError("its shares are not those that were asked for")
    if not all(isinstance(share, bytes) and len(share) <= LONGEST_SHARE for share in shares):
        raise ValueError("its shares are no shares")
    return dict(zip(nodes, shares, strict=True))


def masked(reply: Message, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return a client's masked integers, int64. Raises ValueError if it has something else."""
    record = reply.content.config_records.get(CONFIGS)
    parts: Any = None if record is None else record.get(Key.MASKED_PARAMETERS)
    if not isinstance(parts, list) or len(parts) != 2:  # the weight, and the integers
        raise ValueError("it has no masked sum")
    check_form(parts[1], "masked sum", [shape], np.int64)
    values = flower.array_from_bytes(parts[1])
    if values.min() < 0 or values.max() >= 1 << MODULUS_BITS:
        raise ValueError("its masked sum is not modulo 2^32")
    return values


def _looks_on(participation: Participation, message: Message, context: Context) -> bool:
    """Return whether a client is shown a round that it does not join, and sends no sum of."""
    if not participation.varying or messages.REQUEST not in message.content:
        return False
    joins = participation.participants(Request.from_content(message.content).round)
    return messages.partition(context) not in joins


def _last_asked(context: Context) -> tuple[int, int]:
    """Return first trial and round of the last sum that a client was asked for; 0, 0 for none."""
    before = context.state.config_records.get(ANSWERED)
    return (0, 0) if before is None else tuple(before["last"])  # type: ignore[arg-type,return-value]


def _check_once(participation: Participation, request: Request, context: Context) -> None:
    """Raise SecureAggregationError for a second request for the sum of a round.

    Under other masks, but of the same message: the difference of two such sums among other clients
    would be a single client's. Kept in Flower's state, so that a node that was restarted forgets; a
    deployed client has its own ledger besides.
    """
    asked = (request.first_trial, request.round)  # both only ever grow within a run
    if asked <= _last_asked(context):
        raise SecureAggregationError(
            f"the sum of round {request.round} was sent already; it is sent once in a run"
        )
    # For another round fewer clients could be needed to unmask.
    set_up: Any = context.state.config_records[SET_UP][ROUND]
    if participation.varying and set_up != request.round:
        raise SecureAggregationError(
            f"the sum of round {request.round} is asked for, but secure aggregation was set up for "
            f"round {set_up}"
        )
    context.state[ANSWERED] = ConfigRecord({"last": list(asked)})


def agreed_setup(
    participation: Participation, rounds: int, round: int
) -> dict[str, ConfigRecordValues]:
    """Return what clients and server agree on in the first stage; it follows from the run.

    round: counts from 1; said where rounds have different clients.
    """
    clients = len(participation.participants(round))
    bits = message_bits(most_together(participation, rounds))
    said: dict[str, ConfigRecordValues] = {ROUND: round} if participation.varying else {}
    return said | {
        Key.SAMPLE_NUMBER: clients,
        Key.SHARE_NUMBER: clients,
        Key.THRESHOLD: participation.shares(round),
        Key.CLIPPING_RANGE: float(1 << (bits - 1)),
        Key.TARGET_RANGE: 1 << bits,
        Key.MOD_RANGE: 1 << MODULUS_BITS,
        Key.MAX_WEIGHT: 1.0,
    }


def _check_setup(participation: Participation, rounds: int, configs: ConfigRecord) -> None:
    """Raise SecureAggregationError for a setup that hides less than what was agreed.

    Fewer clients who can unmask, a modulus whose masks are 0, a range that clips.
    """
    round: Any = configs.get(ROUND, 1)
    if type(round) is not int or not 1 <= round <= rounds:
        raise SecureAggregationError(f"the server set up secure aggregation for round {round!r}")
    for name, agreed in agreed_setup(participation, rounds, round).items():
        if configs.get(name) != agreed:
            raise SecureAggregationError(
                f"the server set up secure aggregation with {name} {configs.get(name)!r}, but the "
                f"clients agreed on {agreed!r}"
            )


def _check_unmask(
    participation: Participation, configs: ConfigRecord, own: int, round: int
) -> None:
    """Raise SecureAggregationError for a request that would unmask a single client.

    Who has both shares of a client, that of its own mask and that of its key, has its message: no
    client may be said to be there and to be missing, to one client or to several. Flower's mod
    itself fails for a node that shared no keys.
    """
    active, dead = (
        list(configs.get(name, []))  # type: ignore[arg-type]
        for name in (Key.ACTIVE_NODE_ID_LIST, Key.DEAD_NODE_ID_LIST)
    )
    everybody = [*active, *dead]
    clients, needed = len(participation.participants(round)), participation.shares(round)
    if (
        len(set(everybody)) != len(everybody)
        or len(everybody) > clients
        or len(active) < needed
        or own not in active
    ):
        raise SecureAggregationError(
            f"the server says that {len(active)} clients are there and {len(dead)} missing, which "
            f"cannot be of {clients} clients of whom {needed} must be "
            "there; their shares would unmask one of them"
        )
