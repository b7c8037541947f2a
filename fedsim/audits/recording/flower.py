"""Recorders of a user's Flower app: one line on the server, or one on a client.

    strategy = record(strategy, "server.fedt")                          # server_app.py

    @app.train(mods=[recording_mod("client-{node}.fedt")])              # client_app.py

The app runs as before. If recording fails, Flower's log and the transcript say so once, and the app
continues: an audit must not end a training. Errors of the line itself, such as a file that cannot
be written, are raised before the training.
"""

import logging
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp.mod import LocalDpMod
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from adversaries.errors import InputError
from adversaries.statistics import canaries
from fedsim.audits.app.introspection import configuration_findings, weighting_key
from fedsim.audits.recording import flower_messages as messages
from fedsim.audits.recording.flower_messages import Declared
from fedsim.audits.recording.recorder_sink import RoundSink, Sink, append, safely
from fedsim.common.randomness import Role, generator
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound, Reply, Scalar

AnyStrategy = TypeVar("AnyStrategy", bound=Strategy)
IDLE_SHARE = 1e-3
"""Default length of the short canary over the long one: small, but not 0."""

log = logging.getLogger("flwr")


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
        to: file of the transcript, which must not exist unless `resume`; "{run}" in it becomes the
            run when it starts. Or a function to call with every round.
        resume: whether to continue the transcript of a run that was killed, or ended with an
            exception.
        clipping_norm: C of a strategy of your own, as in `Declared`.
        noise_multiplier: z of such a strategy, as in `Declared`.
        unit: protected unit of the claim, as in `Declared`; None if unstated.

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
    declared = Declared(clipping_norm, noise_multiplier, unit)
    declared.check(strategy)
    recorder = _ServerRecorder(strategy, RoundSink(to, app, resume), declared)
    recorder.attach()
    return strategy


def recording_mod(path: str | Path, *, local_dp: LocalDpMod | None = None, app: str = "") -> Mod:
    """Return a mod that records what this client receives and sends.

    Put it first in the list, so that it sees the messages as they are sent:
    `@app.train(mods=[recording_mod("{node}.fedt"), fixedclipping_mod])`. Put it on `@app.evaluate`
    too: only an evaluation brings the global model after the last round.

    Args:
        path: file of the transcript; "{node}" in it becomes the client's partition (or its node id,
            if it has none), "{run}" the run. Clients on one machine need a file each.
        local_dp: LocalDpMod of this client, which must then not be in the list of mods. The
            recorder runs it, and records the update before and after its noise.
        app: name of the app, for the transcript.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        unprotected: dict[str, np.ndarray] = {}

        def captured(message: Message, context: Context) -> Message:
            reply = call_next(message, context)
            if not reply.has_error():
                unprotected.update(safely(messages.arrays, reply) or {})
            return reply

        received = safely(messages.arrays, message) or {}
        if local_dp is not None and messages.is_training(message):
            reply = local_dp(message, context, captured)
        else:
            reply = call_next(message, context)

        def observed() -> ObservedRound:
            if not messages.is_training(message):
                return messages.evaluated(message)
            return ObservedRound(
                round=messages.round_number(message),
                model=received,
                own={} if reply.has_error() else messages.arrays(reply),
                unprotected=unprotected if local_dp is not None and unprotected else None,
                mechanism=messages.client_mechanism(message, reply, local_dp),
            )

        _append(path, context, app, "fedsim.recording.recording_mod", observed)
        return reply

    return mod


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
        path: as in `recording_mod`.
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
        recorder = "fedsim.recording.canary_mod"
        if not messages.is_training(message):
            _append(path, context, app, recorder, lambda: messages.evaluated(message))
            return reply
        if reply.has_error():
            return reply
        round, received = messages.round_number(message), messages.arrays(message)
        canary = _toss(seed, round, messages.node_of(context), norm, idle)
        length = norm if canary.coin else idle
        sent = canaries.displaced(received, canary.seed, length)
        name = next(iter(reply.content.array_records))
        reply.content[name] = ArrayRecord({key: Array(array) for key, array in sent.items()})

        def observed() -> ObservedRound:
            mechanism = messages.client_mechanism(message, reply, None)
            return ObservedRound(round, model=received, mechanism=mechanism, canary=canary)

        _append(path, context, app, recorder, observed)
        return reply

    return mod


class _ServerRecorder:
    def __init__(self, strategy: Strategy, sink: RoundSink, declared: Declared) -> None:
        self._strategy, self._sink, self._declared = strategy, sink, declared
        self._pending: dict[int, tuple[Arrays, tuple[int, ...], dict[str, Scalar]]] = {}

    def attach(self) -> None:
        strategy: Any = self._strategy
        strategy.configure_train = partial(self._configure_train, strategy.configure_train)
        strategy.aggregate_train = partial(self._aggregate_train, strategy.aggregate_train)
        strategy.start = partial(self._start, strategy.start)

    def _configure_train(
        self, configure: Callable[..., Any], server_round: int, arrays: ArrayRecord, *rest: Any
    ) -> Any:
        # Before the call, which may change an adaptive clipping norm.
        mechanism = safely(messages.mechanism, self._strategy, self._declared) or {}
        sent = list(configure(server_round, arrays, *rest))
        with self._sink.guarded():
            participants = tuple(sorted(m.metadata.dst_node_id for m in sent))
            model = messages.of_record(arrays)
            self._pending[server_round] = model, participants, mechanism
        return sent

    def _aggregate_train(
        self, aggregate: Callable[..., Any], server_round: int, replies: Iterable[Message]
    ) -> Any:
        replies = list(replies)
        key = weighting_key(self._strategy)
        # Before the call, which may clip the replies in place.
        replies_by_node: dict[int, Reply] = {}
        with self._sink.guarded():
            replies_by_node = {
                message.metadata.src_node_id: messages.reply_of(message, key)
                for message in replies
                if message.has_content()
            }
        aggregated, metrics = aggregate(server_round, replies)
        with self._sink.guarded():
            model, participants, mechanism = self._pending.pop(server_round, ({}, None, {}))
            if "clipping_norm" in mechanism:
                # Flower's adaptive clipping scales its noise to the norm of the next round. A
                # declared multiplier is for the updates that arrived.
                after = messages.mechanism(self._strategy, self._declared, len(replies_by_node))
                mechanism["noise_clipping_norm"] = after["clipping_norm"]
                if "num_sampled_clients" in after:
                    mechanism["num_sampled_clients"] = after["num_sampled_clients"]
            self._sink(
                ObservedRound(
                    server_round,
                    model=model,
                    replies=dict(sorted(replies_by_node.items())),
                    aggregate=None if aggregated is None else messages.of_record(aggregated),
                    participants=participants,
                    mechanism=mechanism,
                )
            )
        return aggregated, metrics

    def _start(self, start: Callable[..., Any], grid: Grid, *arguments: Any, **named: Any) -> Any:
        self._sink.begin(str(grid.run.run_id))
        for finding in safely(configuration_findings, self._strategy) or []:
            log.warning("fedsim: %s: %s. To mend it: %s", finding.rule, finding.why, finding.mend)
        try:
            result = start(grid, *arguments, **named)
        except BaseException as error:
            # The transcript is complete if the user continues the run with `resume`.
            self._sink.end(f"the run ended with {type(error).__name__}", resumable=True)
            raise
        self._sink.end("")
        return result


def _append(
    path: str | Path,
    context: Context,
    app: str,
    recorder: str,
    observed: Callable[[], ObservedRound],
) -> None:
    run = str(context.run_id)
    append(path, lambda: messages.node_of(context), run, app, recorder, observed)


def _toss(seed: int | None, round: int, node: int, norm: float, idle: float) -> Canary:
    if seed is None:
        return Canary(bool(secrets.randbits(1)), secrets.randbits(63), norm, idle)
    stream = generator(seed, Role.CANARY, round=round, partition=node)
    return Canary(bool(stream.random() < 0.5), int(stream.integers(2**63)), norm, idle)
