"""Recording somebody else's Flower app: one line on the server, or one on a client.

    strategy = record(strategy, "server.fedt")                          # server_app.py

    @app.train(mods=[recording_mod("client-{node}.fedt")])              # client_app.py

The app runs as before. Where recording fails it says so once, in Flower's log and in the
transcript, and lets the app go on: an audit must not end a training. What can be wrong with the
line itself (a file that cannot be written) is an error before anything was trained.
"""

import logging
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp.mod import LocalDpMod
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp.strategy import Strategy

import fedsim
from adversaries import canaries
from fedsim.app_audit.introspection import (
    averages,
    chain,
    configuration_findings,
    configuration_of,
    local_noise,
    weighting_key,
)
from fedsim.errors import InputError
from fedsim.randomness import Role, generator
from fedsim.transcript import (
    Arrays,
    Canary,
    Facts,
    ObservedRound,
    Reply,
    Scalar,
    Value,
    Writer,
)

Sink = Callable[[ObservedRound], None]
AnyStrategy = TypeVar("AnyStrategy", bound=Strategy)

IDLE_SHARE = 1e-3
"""Length of the short canary by default, as a share of the long one: a change, but next to none."""

log = logging.getLogger("flwr")


def record(
    strategy: AnyStrategy, to: str | Path | Sink, *, app: str = "", resume: bool = False
) -> AnyStrategy:
    """Record what the server sees of every training round; return the same strategy.

    strategy: any of Flower's message-based strategies, DP wrappers included. The last wrapper is
        the one to record: its aggregate is what is released.
    to: file of the transcript, which must not exist unless `resume`; or a function to call with
        every round
    app: name of the app, for the transcript
    resume: whether to continue a transcript whose run was killed, or ended with an exception

    The methods are replaced on this instance, so that a subclass of any kind keeps its own. Replies
    are kept as they arrived, before a wrapper clips them. Raises InputError if the file exists or
    cannot be written.
    """
    recorder = _ServerRecorder(strategy, _sink(to, app, resume))
    recorder.attach()
    return strategy


def recording_mod(path: str | Path, *, local_dp: LocalDpMod | None = None, app: str = "") -> Mod:
    """Return a mod that records what this client receives and sends.

    path: file of the transcript; "{node}" in it becomes the client's partition (its node id, if it
        has none), "{run}" the run. Clients on one machine need a file each.
    local_dp: the LocalDpMod of this client, which then must not stand in the list of mods: the
        recording runs it, and keeps the update before and after its noise

    Put it first in the list, so that it sees what is really sent:
    `@app.train(mods=[recording_mod("{node}.fedt"), fixedclipping_mod])`. On `@app.evaluate` as well
    it sees the global model after the last round, which no training message brings.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        unprotected: dict[str, np.ndarray] = {}

        def captured(message: Message, context: Context) -> Message:
            reply = call_next(message, context)
            if local_dp is not None and not reply.has_error():
                unprotected.update(_safely(_arrays, reply) or {})
            return reply

        received = _safely(_arrays, message) or {}
        if _is_training(message):
            reply = (local_dp or _unchanged)(message, context, captured)
        else:
            reply = call_next(message, context)

        def observed() -> ObservedRound:
            if not _is_training(message):
                return _evaluated(message)
            return ObservedRound(
                round=_round_number(message),
                model=received,
                own={} if reply.has_error() else _arrays(reply),
                unprotected=unprotected if local_dp is not None and unprotected else None,
                mechanism=_client_mechanism(message, local_dp),
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
    """Return a mod that makes this client a consented canary, and records it.

    In every round a fair coin decides whether the client sends the global model plus a random
    direction of length `norm`, or of length `idle_norm` (default a thousandth). What the app
    trained is not sent: the client gives up its contribution to measure the privacy of one. Coin
    and direction are known to the transcript of this client alone.

    norm: at least the clipping norm, so that the canary is as loud as an update can be
    seed: of coins and directions; None takes them from the operating system
    path: as for `recording_mod`

    Put it last in the list of mods, so that clipping and noise apply to the canary as to any
    update; on `@app.evaluate` as well, for the sake of the last round. Raises InputError unless
    norm > idle_norm > 0.
    """
    idle = norm * IDLE_SHARE if idle_norm is None else idle_norm
    if not 0 < idle < norm < np.inf:
        raise InputError(
            f"a canary of norm {norm:g} or {idle:g}; give norm > idle_norm > 0 (an update of "
            "norm 0 ends Flower's server-side clipping)"
        )

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        recorder = "fedsim.recording.canary_mod"
        if not _is_training(message):
            _append(path, context, app, recorder, lambda: _evaluated(message))
            return reply
        if reply.has_error():
            return reply
        round, received = _round_number(message), _arrays(message)
        canary = _toss(seed, round, _node(context), norm, idle)
        length = norm if canary.coin else idle
        sent = canaries.displaced(received, canary.seed, length)
        name = next(iter(reply.content.array_records))
        reply.content[name] = ArrayRecord({key: Array(array) for key, array in sent.items()})

        def observed() -> ObservedRound:
            mechanism = _client_mechanism(message, None)
            return ObservedRound(round, model=received, mechanism=mechanism, canary=canary)

        _append(path, context, app, recorder, observed)
        return reply

    return mod


class _ServerRecorder:
    """Stands between a strategy and whoever calls it."""

    def __init__(self, strategy: Strategy, sink: "_Sink") -> None:
        self._strategy, self._sink = strategy, sink
        self._pending: dict[int, tuple[Arrays, tuple[int, ...], dict[str, Scalar]]] = {}

    def attach(self) -> None:
        """Replace three methods of the instance."""
        strategy: Any = self._strategy
        configure, aggregate, start = (
            strategy.configure_train,
            strategy.aggregate_train,
            strategy.start,
        )

        def configure_train(server_round: int, arrays: ArrayRecord, *rest: Any) -> Any:
            # Before the call, which may move an adaptive clipping norm on.
            mechanism = _safely(_mechanism, strategy) or {}
            messages = list(configure(server_round, arrays, *rest))
            with self._sink.guarded():
                participants = tuple(sorted(m.metadata.dst_node_id for m in messages))
                self._pending[server_round] = _of_record(arrays), participants, mechanism
            return messages

        def aggregate_train(server_round: int, replies: Iterable[Message]) -> Any:
            replies = list(replies)
            key = weighting_key(strategy)
            # Before the call, which may clip them in place.
            seen: dict[int, Reply] = {}
            with self._sink.guarded():
                seen = {
                    message.metadata.src_node_id: _reply(message, key)
                    for message in replies
                    if message.has_content()
                }
            aggregated, metrics = aggregate(server_round, replies)
            with self._sink.guarded():
                model, participants, mechanism = self._pending.pop(server_round, ({}, None, {}))
                if "clipping_norm" in mechanism:
                    # Flower's adaptive clipping scales its noise to the norm of the next round.
                    mechanism["noise_clipping_norm"] = _mechanism(strategy)["clipping_norm"]
                self._sink(
                    ObservedRound(
                        server_round,
                        model=model,
                        replies=dict(sorted(seen.items())),
                        aggregate=None if aggregated is None else _of_record(aggregated),
                        participants=participants,
                        mechanism=mechanism,
                    )
                )
            return aggregated, metrics

        def started(*arguments: Any, **named: Any) -> Any:
            _log_findings(strategy)
            try:
                result = start(*arguments, **named)
            except BaseException as error:
                # No round is missing if somebody takes the run up again with `resume`.
                self._sink.end(f"the run ended with {type(error).__name__}", resumable=True)
                raise
            self._sink.end("")
            return result

        strategy.configure_train = configure_train
        strategy.aggregate_train = aggregate_train
        strategy.start = started


class _Sink:
    """Where rounds go; falls silent, once and loudly, when that fails."""

    def __init__(self, send: Sink, writer: Writer | None) -> None:
        self._send, self._writer, self._reason = send, writer, ""

    def __call__(self, observed: ObservedRound) -> None:
        if not self._reason:
            self._send(observed)

    def guarded(self) -> "_Guard":
        """Return a context in which an error ends the recording and nothing else."""
        return _Guard(self)

    def fail(self, error: Exception) -> None:
        """End the recording. The first reason is the one that is told."""
        if self._reason:
            return
        self._reason = f"{type(error).__name__}: {error}"
        log.error(
            "fedsim: RECORDING STOPPED, the transcript is incomplete; the app goes on (%s)",
            self._reason,
        )
        self.end(self._reason)

    def end(self, reason: str, *, resumable: bool = False) -> None:
        """Say in the transcript that nothing follows."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(Exception):  # a full disk: the missing last record says it too
                writer.end(reason, resumable=resumable)


class _Guard:
    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._sink.fail(error)
        return True


def _sink(to: str | Path | Sink, app: str, resume: bool) -> _Sink:
    if callable(to):
        return _Sink(to, None)
    path = Path(to)
    if path.exists() and not resume:
        raise InputError(f"'{path}' exists; name a new transcript, or continue it with resume=True")
    writer = Writer(path, _facts("server", "fedsim.recording.record", app))
    return _Sink(writer.append, writer)


def _append(
    path: str | Path,
    context: Context,
    app: str,
    recorder: str,
    observed: Callable[[], ObservedRound],
) -> None:
    """Append one round to the transcript of a client, which may be a new process each time."""
    try:
        node, run = _node(context), str(context.run_id)
        place = Path(str(path).replace("{node}", str(node)).replace("{run}", run))
        with Writer(place, _facts("participant", recorder, app, node, run)) as writer:
            writer.append(observed())
    except Exception as error:
        _tell(str(path), error)


_TOLD: set[str] = set()
"""Failures that this process has logged: each is told once, or the log would hold nothing else."""


def _tell(what: str, error: Exception) -> None:
    if what not in _TOLD:
        _TOLD.add(what)
        log.error(
            "fedsim: RECORDING FAILED, the transcript is incomplete; the app goes on (%s: %s: %s)",
            what,
            type(error).__name__,
            error,
        )


def _evaluated(message: Message) -> ObservedRound:
    """Return what an evaluation shows: the global model after its round."""
    return ObservedRound(_round_number(message), aggregate=_arrays(message))


def _facts(vantage: str, recorder: str, app: str, node: int | None = None, run: str = "") -> Facts:
    versions = {"fedsim": fedsim.__version__}
    for package in ("flwr", "numpy"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return Facts(vantage, recorder, app, node, run, versions)


def _mechanism(strategy: Strategy) -> dict[str, Scalar]:
    """Return the noise configuration of a strategy as it stands."""
    configuration = configuration_of(strategy)
    central = configuration.central
    mean = averages(chain(strategy)[-1]) if central is None else central.plain_mean
    found: dict[str, Scalar] = {
        "strategy": configuration.strategies[0],
        "inner_strategy": configuration.strategies[-1],
        # Whatever else a strategy is, its aggregate is a mean only if this is.
        "aggregation": "mean" if mean else "other",
    }
    if key := weighting_key(strategy):
        found["weighted_by"] = key
    if central is not None:
        found |= {
            "clipping": "client" if central.client_clips else "server",
            "noise_multiplier": central.noise_multiplier,
            "clipping_norm": central.clipping_norms[0],
            "num_sampled_clients": central.sampled_clients,
            "adaptive": central.adaptive,
        }
        if central.adaptive:
            found["clipped_count_std"] = central.count_std
    return found


def _client_mechanism(message: Message, local_dp: LocalDpMod | None) -> dict[str, Scalar]:
    """Return what a client knows of the noise: what it was told, and what it adds itself."""
    found: dict[str, Scalar] = {}
    for config in message.content.config_records.values():
        norm = config.get("clipping_norm")
        if isinstance(norm, float):
            found |= {"clipping": "client", "clipping_norm": norm}
    if local_dp is not None:
        found |= {f"local_{name}": value for name, value in asdict(local_noise(local_dp)).items()}
    return found


def _arrays(message: Message) -> dict[str, np.ndarray]:
    """Return copies of the arrays of a message."""
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


def _reply(message: Message, weighting_key: str) -> Reply:
    metrics: dict[str, Value] = {}
    for record in message.content.metric_records.values():
        metrics |= {
            key: list(value) if isinstance(value, list) else value for key, value in record.items()
        }
    weight = metrics.get(weighting_key)
    weight = float(weight) if isinstance(weight, int | float) else None
    return Reply(_arrays(message), weight, metrics)


def _round_number(message: Message) -> int:
    for config in message.content.config_records.values():
        number = config.get("server-round")
        if isinstance(number, int):
            return number
    raise ValueError("the message has no server-round")


def _is_training(message: Message) -> bool:
    return message.metadata.message_type.startswith("train")


def _node(context: Context) -> int:
    partition = context.node_config.get("partition-id")
    return partition if isinstance(partition, int) else context.node_id


def _toss(seed: int | None, round: int, node: int, norm: float, idle: float) -> Canary:
    if seed is None:
        return Canary(bool(secrets.randbits(1)), secrets.randbits(63), norm, idle)
    leaf = generator(seed, Role.CANARY, round=round, partition=node)
    return Canary(bool(leaf.random() < 0.5), int(leaf.integers(2**63)), norm, idle)


def _unchanged(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    return call_next(message, context)


def _log_findings(strategy: Strategy) -> None:
    """Say at the start what is wrong with the strategy's differential privacy, as far as it shows.

    Nobody claims anything here, so that the rules speak which need no claim.
    """
    for finding in _safely(configuration_findings, strategy) or []:
        log.warning("fedsim: %s: %s. To mend it: %s", finding.rule, finding.why, finding.mend)


def _safely(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, None if it fails: what is missing shows in the transcript."""
    try:
        return function(*arguments)
    except Exception as error:
        _tell(function.__name__, error)
        return None
