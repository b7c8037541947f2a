"""Recorders of a user's Flower app: one line on the server, or a canary at a client.

    strategy = record(strategy, "server.fedt")                          # server_app.py

    @app.train(mods=[fixedclipping_mod, canary_mod("canary.fedt", norm=2.0)])   # client_app.py

The app runs as before. If recording fails, Flower's log and the transcript say so once, and the app
continues: an audit must not end a training. Errors of the line itself, such as a file that cannot
be written, are raised before the training.
"""

import math
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from adversaries.bounds import canaries
from adversaries.errors import InputError
from fedsim.audits.app.strategies import (
    averages,
    central_noise,
    central_wrapper,
    chain,
    names,
    own_code,
    weighting_key,
)
from fedsim.audits.recording.loop import RoundSink, Sink, append
from fedsim.audits.steps.watch import safely
from fedsim.common.randomness import StreamRole, generator
from fedsim.federation.transcripts.records import (
    UNITS,
    Arrays,
    Canary,
    NodeReply,
    ObservedRound,
    Scalar,
    Value,
)

Mechanism = Mapping[str, Scalar]


def _declared(
    strategy: Strategy,
    clipping_norm: float | None,
    noise_multiplier: float | None,
    unit: str | None,
) -> Mechanism:
    """Return the user's statements about a strategy, by the names of a transcript's mechanism."""
    if clipping_norm is not None and not 0 < clipping_norm < math.inf:
        raise InputError(f"clipping_norm is {clipping_norm}; it must be above 0")
    if noise_multiplier is not None and not 0 <= noise_multiplier < math.inf:
        raise InputError(f"noise_multiplier is {noise_multiplier}; it must be at least 0")
    if noise_multiplier is not None and clipping_norm is None:
        raise InputError("noise_multiplier is in units of clipping_norm; give clipping_norm too")
    if unit is not None and unit not in UNITS:
        raise InputError(f"unit is '{unit}'; it must be one of {', '.join(UNITS)}")
    keys: dict[str, Scalar] = {} if unit is None else {"unit": unit}
    if clipping_norm is None:
        return keys
    if central_noise(strategy) is not None:
        raise InputError(
            f"{type(strategy).__name__} is Flower's own, and states its clipping and noise itself; "
            "declare neither clipping_norm nor noise_multiplier"
        )
    keys |= {"aggregation": "declared", "clipping": "server", "clipping_norm": clipping_norm}
    return keys if noise_multiplier is None else keys | {"noise_multiplier": noise_multiplier}


def _mechanism(strategy: Strategy, declared: Mechanism) -> dict[str, Scalar]:
    """Return what a strategy's attributes say now, and what the user declared."""
    central, strategies = central_noise(strategy), names(strategy)
    mean = averages(chain(strategy)[-1]) if central is None else central.plain_mean
    keys: dict[str, Scalar] = {
        "strategy": strategies[0],
        "inner_strategy": strategies[-1],
        # The aggregate of the innermost strategy decides whether the whole is a mean.
        "aggregation": "mean" if mean and not own_code(chain(strategy)) else "other",
    }
    if key := weighting_key(strategy):
        keys["weighted_by"] = key
    if central is not None:
        keys |= {
            "clipping": "client" if central.client_clips else "server",
            "noise_multiplier": central.noise_multiplier,
            "clipping_norm": central.clipping_norms[0],
            "num_sampled_clients": central.sampled_clients,
            "adaptive": central.adaptive,
        }
    return {**keys, **declared}


def _arrays(message: Message) -> dict[str, np.ndarray]:
    records = message.content.array_records
    if len(records) == 1:
        return _of_record(next(iter(records.values())))
    return {
        f"{name}/{key}": array
        for name, record in records.items()
        for key, array in _of_record(record).items()
    }


def _of_record(record: ArrayRecord) -> dict[str, np.ndarray]:
    return {key: np.array(array.numpy()) for key, array in record.items()}


def _reply(message: Message, weighting_key: str) -> NodeReply:
    metrics: dict[str, Value] = {
        key: list(value) if isinstance(value, list) else value
        for record in message.content.metric_records.values()
        for key, value in record.items()
    }
    weight = metrics.get(weighting_key)
    weight = float(weight) if isinstance(weight, int | float) else None
    return NodeReply(_arrays(message), weight, metrics)


def _round_number(message: Message) -> int:
    for config in message.content.config_records.values():
        number = config.get("server-round")
        if isinstance(number, int):
            return number
    raise ValueError("the message has no server-round")


def _is_training(message: Message) -> bool:
    return message.metadata.message_type.startswith("train")


def _node(context: Context) -> int:
    """Return the partition of a client; its node id if it has none."""
    partition = context.node_config.get("partition-id")
    return partition if isinstance(partition, int) else context.node_id


AnyStrategy = TypeVar("AnyStrategy", bound=Strategy)
IDLE_SHARE = 1e-3
"""Default length of the short canary over the long one: small, but not 0."""


def record(
    strategy: AnyStrategy,
    to: str | Path | Sink,
    *,
    app: str = "",
    resume: bool = False,
    clipping_norm: float | None = None,
    noise_multiplier: float | None = None,
    unit: str | None = None,
) -> AnyStrategy:
    """Record what the server sees of every training round.

    The methods are replaced on this instance, so that a subclass keeps its own. Replies are
    recorded as they arrive, before a wrapper clips them.

    Args:
        strategy: any of Flower's message-based strategies, DP wrappers included. Record the
            outermost wrapper, whose aggregate is released.
        to: folder of the transcript, which must not exist unless `resume`; "{run}" in it becomes
            the run when it starts. Or a function to call with every round.
        resume: whether to continue the transcript of a run that was killed, or ended with an
            exception.
        clipping_norm: C of a strategy of your own, above 0. It states that the strategy releases
            the mean of n updates, each clipped to C as a whole.
        noise_multiplier: z of such a strategy: it adds N(0, (z C / n)^2) to every parameter.
        unit: protected unit of the claim: a "client" with its whole update, or a "record" of a
            client's data; None if unstated.

    Returns:
        The same strategy.

    Raises:
        InputError: the file exists or cannot be written, the strategy is of the older flwr.server,
            or a declared value is out of range or contradicts Flower's own strategy.
    """
    kind: type = type(strategy)
    if not issubclass(kind, Strategy):
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} is not a strategy of flwr.serverapp.strategy. "
            "Only those can be recorded: port the app from the older flwr.server to ServerApp's "
            "strategies (see Flower's upgrade guide)"
        )
    declared = _declared(strategy, clipping_norm, noise_multiplier, unit)
    recorder = ServerRecorder(strategy, RoundSink(to, app, resume), declared)
    recorder.attach()
    recorder.replace(strategy, "start", recorder.start)
    return strategy


def canary_mod(
    path: str | Path,
    *,
    norm: float,
    idle_norm: float | None = None,
    seed: int | None = None,
    app: str = "",
) -> Mod:
    """Return a mod that makes this client a consenting canary, and records it.

    In every round a fair coin decides whether the client sends the global model plus a random
    direction of length `norm`, or of length `idle_norm`. What the app trained is not sent: the
    client gives up its contribution to measure the privacy of one. Only the transcript of this
    client has the coin and the direction.

    Put it last in the list of mods, so that clipping and noise apply to the canary as to any
    update. Put it on `@app.evaluate` too, for the last round.

    Args:
        path: folder of the transcript; "{node}" in it becomes the client's partition (or its node
            id, if it has none), "{run}" the run. Clients on one machine need a folder each.
        norm: at least the clipping norm, so that the canary is as loud as an update can be.
        idle_norm: above 0; None for a thousandth of `norm`.
        seed: seed of coins and directions; None takes them from the operating system.
        app: name of the app, for the transcript.

    Raises:
        InputError: not norm > idle_norm > 0.
    """
    idle = norm * IDLE_SHARE if idle_norm is None else idle_norm
    if not 0 < idle < norm < np.inf:
        raise InputError(
            f"the canary has norm {norm:g} and idle norm {idle:g}; give norm > idle_norm > 0 (an "
            "update of norm 0 ends Flower's server-side clipping)"
        )

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        at = path, partial(_node, context), str(context.run_id), app, "fedsim.recording.canary_mod"
        if not _is_training(message):  # it brings the model of the last round
            append(*at, lambda: ObservedRound(_round_number(message), aggregate=_arrays(message)))
        elif not reply.has_error():
            round, received = _round_number(message), _arrays(message)
            canary = _toss(seed, round, _node(context), norm, idle)
            sent = canaries.displaced(received, canary.seed, norm if canary.coin else idle)
            name = next(iter(reply.content.array_records))
            reply.content[name] = ArrayRecord({key: Array(array) for key, array in sent.items()})
            append(*at, lambda: ObservedRound(round, received, canary=canary))
        return reply

    return mod


class ServerRecorder:
    """Watches the rounds of one strategy and sends each to a sink; recordings and audits use it.

    A round has the model as it was sent, since a strategy may change the model before it sends it.
    Its mechanism is read when the replies arrive, since a strategy may change it for the round.

    nodes: nodes whose replies are kept; None for all.
    """

    def __init__(
        self,
        strategy: Strategy,
        sink: RoundSink,
        declared: Mechanism,
        nodes: Collection[int] | None = None,
    ) -> None:
        self._strategy, self._sink, self._declared = strategy, sink, declared
        self._nodes = nodes
        self._pending: dict[int, tuple[Arrays, tuple[int, ...]]] = {}
        self._before_noise: Arrays | None = None
        self._replaced: list[tuple[Strategy, str, Any]] = []

    def attach(self) -> None:
        strategy: Any = self._strategy
        self.replace(strategy, "configure_train", self._configure_train)
        self.replace(strategy, "aggregate_train", self._aggregate_train)
        wrapper = central_wrapper(strategy)
        # What the server's noise is added to follows from the replies only if it is their mean.
        if wrapper is not None and not averages(wrapper.strategy):
            self.replace(wrapper.strategy, "aggregate_train", self._aggregate_before_noise)

    def detach(self) -> None:
        for strategy, name, own in reversed(self._replaced):
            if own is None:
                delattr(strategy, name)
            else:
                setattr(strategy, name, own)
        self._replaced.clear()

    def replace(self, strategy: Strategy, name: str, watched: Callable[..., Any]) -> None:
        self._replaced.append((strategy, name, vars(strategy).get(name)))
        setattr(strategy, name, partial(watched, getattr(strategy, name)))

    def _configure_train(
        self, configure: Callable[..., Any], server_round: int, model: ArrayRecord, *rest: Any
    ) -> Any:
        sent = list(configure(server_round, model, *rest))
        with self._sink.guarded():
            participants = tuple(sorted(m.metadata.dst_node_id for m in sent))
            seen = _arrays(sent[0]) if sent else {}
            self._pending[server_round] = seen or _of_record(model), participants
        return sent

    def _aggregate_train(
        self, aggregate: Callable[..., Any], server_round: int, replies: Iterable[Message]
    ) -> Any:
        replies = list(replies)
        key = weighting_key(self._strategy)
        # Before the call, which may clip the replies in place and move an adaptive clipping norm.
        mechanism = safely(_mechanism, self._strategy, self._declared) or {}
        replies_by_node: dict[int, NodeReply] = {}
        with self._sink.guarded():
            replies_by_node = {
                message.metadata.src_node_id: _reply(message, key)
                for message in replies
                if message.has_content()
                and (self._nodes is None or message.metadata.src_node_id in self._nodes)
            }
        self._before_noise = None
        aggregated, metrics = aggregate(server_round, replies)
        with self._sink.guarded():
            model, participants = self._pending.pop(server_round, ({}, None))
            if "clipping_norm" in mechanism:
                # A declared multiplier is for the updates that arrived.
                declared = "noise_multiplier" in self._declared
                now = _mechanism(self._strategy, self._declared).get("num_sampled_clients")
                if clients := len(replies_by_node) if declared else now:
                    mechanism["num_sampled_clients"] = clients
            self._sink(
                ObservedRound(
                    server_round,
                    model=model,
                    replies=dict(sorted(replies_by_node.items())),
                    unprotected=self._before_noise,
                    aggregate=None if aggregated is None else _of_record(aggregated),
                    participants=participants,
                    mechanism=mechanism,
                )
            )
        return aggregated, metrics

    def _aggregate_before_noise(
        self, aggregate: Callable[..., Any], server_round: int, replies: Iterable[Message]
    ) -> Any:
        aggregated, metrics = aggregate(server_round, replies)
        with self._sink.guarded():
            self._before_noise = None if aggregated is None else _of_record(aggregated)
        return aggregated, metrics

    def start(self, start: Callable[..., Any], grid: Grid, *arguments: Any, **named: Any) -> Any:
        self._sink.begin(str(grid.run.run_id))
        try:
            result = start(grid, *arguments, **named)
        except BaseException as error:
            # The transcript is complete if the user continues the run with `resume`.
            self._sink.end(f"the run ended with {type(error).__name__}", resumable=True)
            raise
        self._sink.end("")
        return result


def _toss(seed: int | None, round: int, node: int, norm: float, idle: float) -> Canary:
    if seed is None:
        return Canary(bool(secrets.randbits(1)), secrets.randbits(63), norm, idle)
    stream = generator(seed, StreamRole.CANARY, round=round, partition=node)
    return Canary(bool(stream.random() < 0.5), int(stream.integers(2**63)), norm, idle)
