"""The recorder of a user's Flower app: one line on the server.

    strategy = record(strategy, "server.fedt")                          # server_app.py

The app runs as before. If recording fails, Flower's log and the transcript say so once, and the app
continues: an audit must not end a training. Errors of the line itself, such as a file that cannot
be written, are raised before the training.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from adversaries.errors import InputError
from fedsim.audits.recorded.releases import JUDGED
from fedsim.audits.recording.loop import RoundSink, Sink, log
from fedsim.audits.steps.watch import safely
from fedsim.federation.transcripts.records import Arrays, NodeReply, ObservedRound, Scalar, Value


def _arrays(message: Message) -> dict[str, np.ndarray]:
    records = message.content.array_records
    if len(records) == 1:
        return _of_record(next(iter(records.values())))
    # Without a slash in the record's name, no two arrays have the same name.
    return {
        f"{name.replace('%', '%25').replace('/', '%2F')}/{key}": array
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


AnyStrategy = TypeVar("AnyStrategy", bound=Strategy)


def record(
    strategy: AnyStrategy, to: str | Path | Sink, *, app: str = "", resume: bool = False
) -> AnyStrategy:
    """Record what the server sees of every training round.

    The methods are replaced on this instance, so that a subclass keeps its own. Replies are
    recorded as they arrive, before a wrapper clips them. The log warns at the start of a strategy
    that no audit judges.

    Args:
        strategy: any of Flower's message-based strategies, DP wrappers included. Record the
            outermost wrapper, whose aggregate is released.
        to: folder of the transcript, which must not exist unless `resume`; "{run}" in it becomes
            the run when it starts. Or a function to call with every round.
        resume: whether to continue the transcript of a run that was killed, or ended with an
            exception.

    Returns:
        The same strategy.

    Raises:
        InputError: the file exists or cannot be written, or the strategy is of the older
            flwr.server.
    """
    kind: type = type(strategy)
    if not issubclass(kind, Strategy):
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} is not a strategy of flwr.serverapp.strategy. "
            "Only those can be recorded: port the app from the older flwr.server to ServerApp's "
            "strategies (see Flower's upgrade guide)"
        )
    recorder = ServerRecorder(strategy, RoundSink(to, app, resume))
    recorder.attach()
    recorder.replace(strategy, "start", recorder.start)
    return strategy


class ServerRecorder:
    """Watches the rounds of one strategy and sends each to a sink; recordings and audits use it.

    A round has the model as it was sent, since a strategy may change the model before it sends it.
    Its mechanism is read when the replies arrive, since a strategy may change it for the round.

    nodes: nodes whose replies are kept; None for all.
    """

    def __init__(
        self, strategy: Strategy, sink: RoundSink, nodes: Collection[int] | None = None
    ) -> None:
        self._strategy, self._sink, self._nodes = strategy, sink, nodes
        self._pending: dict[int, tuple[Arrays, tuple[int, ...]]] = {}
        self._replaced: list[tuple[Strategy, str, Any]] = []

    def attach(self) -> None:
        strategy: Any = self._strategy
        self.replace(strategy, "configure_train", self._configure_train)
        self.replace(strategy, "aggregate_train", self._aggregate_train)

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
        said = safely(mechanism, self._strategy) or {}
        replies_by_node: dict[int, NodeReply] = {}
        with self._sink.guarded():
            replies_by_node = {
                message.metadata.src_node_id: _reply(message, key)
                for message in replies
                if message.has_content()
                and (self._nodes is None or message.metadata.src_node_id in self._nodes)
            }
        aggregated, metrics = aggregate(server_round, replies)
        with self._sink.guarded():
            model, participants = self._pending.pop(server_round, ({}, None))
            self._sink(
                ObservedRound(
                    server_round,
                    model=model,
                    replies=dict(sorted(replies_by_node.items())),
                    aggregate=None if aggregated is None else _of_record(aggregated),
                    participants=participants,
                    mechanism=said,
                )
            )
        return aggregated, metrics

    def start(self, start: Callable[..., Any], grid: Grid, *arguments: Any, **named: Any) -> Any:
        self._sink.begin(str(grid.run.run_id))
        if not averages(self._strategy):
            log.warning("fedsim: %s", JUDGED.format(names(self._strategy)))
        try:
            result = start(grid, *arguments, **named)
        except BaseException as error:
            # The transcript is complete if the user continues the run with `resume`.
            self._sink.end(f"the run ended with {type(error).__name__}", resumable=True)
            raise
        self._sink.end("")
        return result


CLIENT_SIDE = (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
FIXED = (DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyClientSideFixedClipping)
WRAPPERS = (
    DifferentialPrivacyServerSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    *CLIENT_SIDE,
)
OUTSIDE = ("add_gaussian_noise_inplace", "compute_stdv")
"""Flower's functions that make the noise, as its strategies call them."""


def chain(strategy: Strategy) -> list[Strategy]:
    """Return a strategy and those that it wraps, from the outermost inwards."""
    strategies = [strategy]
    while isinstance(inner := getattr(strategies[-1], "strategy", None), Strategy):
        if any(inner is each for each in strategies):
            break
        strategies.append(inner)
    return strategies


def names(strategy: Strategy) -> str:
    return " > ".join(type(each).__name__ for each in chain(strategy))


def weighting_key(strategy: Strategy) -> str:
    return str(getattr(chain(strategy)[-1], "weighted_by_key", ""))


def wrapper_of(strategy: Strategy) -> Any | None:
    return next((each for each in chain(strategy) if isinstance(each, WRAPPERS)), None)


def averages(strategy: Strategy) -> bool:
    """Return whether Flower's own code releases the plain mean, or adds one noise of a fixed norm.

    A second wrapper would clip or add noise as well, of which the first one's numbers say nothing.
    """
    *wrappers, inner = chain(strategy)
    fixed = (isinstance(one, FIXED) and _of_flower(type(one).aggregate_train) for one in wrappers)
    mean = type(inner).aggregate_train is FedAvg.aggregate_train
    return mean and len(wrappers) <= 1 and all(fixed)


def mechanism(strategy: Strategy) -> dict[str, Scalar]:
    """Return what a strategy's attributes say now, by the names of a transcript's mechanism."""
    strategies, wrapper = chain(strategy), wrapper_of(strategy)
    said: dict[str, Scalar] = {
        "strategy": names(strategy),
        "aggregation": "mean" if averages(strategy) else "other",
    }
    if key := weighting_key(strategy):
        said["weighted_by"] = key
    if wrapper is None or not all(
        _of_flower(type(each).aggregate_train)
        for each in strategies[: strategies.index(wrapper) + 1]
    ):
        return said
    if own := _own_noise(wrapper):
        said["own_noise"] = own
    return said | {
        "clipping": "client" if isinstance(wrapper, CLIENT_SIDE) else "server",
        "noise_multiplier": float(wrapper.noise_multiplier),
        "clipping_norm": float(wrapper.clipping_norm),
        "num_sampled_clients": int(wrapper.num_sampled_clients),
    }


def _own_noise(wrapper: Any) -> str:
    """Return the name of code that makes the noise and is not Flower's; "" if there is none."""
    method = wrapper._add_noise_to_aggregated_arrays
    inside = [getattr(method, "__globals__", {}).get(name) for name in OUTSIDE]
    makers: Sequence[Any] = [method, *(each for each in inside if each)]
    return next((str(each.__qualname__) for each in makers if not _of_flower(each)), "")


def _of_flower(code: Any) -> bool:
    return str(code.__module__).startswith("flwr.")
