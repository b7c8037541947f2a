"""One run of a Flower app in this process, honest or scripted, and what was observed in it.

In an honest run the app's clients train. In a scripted run they do not: a `Script` gives every
client its update. The update replaces the train function inside all mods, so that clipping, noise
and weighting are the app's own. Metrics are those of the honest run. A scripted run takes
milliseconds, whatever the app trains.

`python -m fedsim.audits.app.execution DESCRIPTOR` is the process in which an app is audited. It
talks over a socket to `fedsim.audits.app.process`.
"""

import contextlib
import copy
import io
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import RdpAccountant
from flwr.serverapp.strategy import Strategy

from adversaries.errors import InputError
from fedsim.audits.app import introspection, loading
from fedsim.audits.app.client_steps import ClientSteps, ClientWatch
from fedsim.audits.app.introspection import flat, flat_record, scripted
from fedsim.audits.app.loading import FlowerApp, Train, loaded, missing, patched
from fedsim.audits.app.process import (
    ORDER,
    REQUEST,
    AppAnswer,
    AppRound,
    AppStatement,
    Execution,
    Script,
    Vector,
    direction,
)
from fedsim.audits.child_process import channel
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.steps.classes import unwrap
from fedsim.config import Scalar
from fedsim.federation.runtimes.inprocess import RUN_ID, SERVER_NODE, InProcessGrid

MOST_QUESTIONS = 8
"""Most times that a strategy may ask for the clients before it sends the next message."""


class AuditedApp:
    def __init__(self, clients: int) -> None:
        self.clients = clients
        self._recorder: _Recorder | None = None
        self._templates: dict[tuple[str, int], RecordDict] = {}
        self._watch = ClientWatch()
        self._app: FlowerApp

    @property
    def name(self) -> str:
        return self._app.name

    def execute(self, seed: int, script: Script | None = None) -> Execution:
        """Return the observations of one run of the app, after setting every global seed."""
        recorder = _Recorder(self.clients, script)
        self._recorder, self._steps = recorder, ClientSteps(self._watch)
        grid = _AuditGrid(self, recorder, self._app)
        context = Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(self._app.run_config))
        channel.set_seeds(seed)
        quiet = contextlib.redirect_stdout(io.StringIO() if script else sys.stderr)
        try:
            with (
                _hooks(recorder, grid),
                loading.older_stack(self._app.mods),
                quiet,
                _without_logs(),
            ):
                self._app.server_app(grid, context)
        except (AppFailedError, InputError):
            raise
        # SystemExit too: an app that ends the process would end the audit without a verdict.
        except (Exception, SystemExit) as error:
            raise recorder.failure(error, self._app) from error
        finally:
            recorder.detach()
        if self._steps.late:
            return self.execute(seed, script)
        return replace(recorder.finish(self._app), clients=self._steps.runs())

    def train(self, message: Message, context: Context, call_next: Train) -> Message:
        """Return the answer to a message in place of the app's train function (a Flower mod)."""
        assert self._recorder is not None
        partition, script = _partition(context), self._recorder.script
        kind = message.metadata.message_type
        if not kind.startswith("train"):
            return call_next(message, context)
        if script is None:
            reply = self._steps.trained(partition, message, lambda: call_next(message, context))
            if not reply.has_error():
                self._templates[kind, partition] = copy.deepcopy(reply.content)
            return reply
        # A client that was not sampled in the honest run answers like one that was.
        usable = [key for key in self._templates if key[0] == kind]
        if not usable:
            raise AppFailedError("no client replied in the honest run")
        wanted = (kind, partition)
        chosen = wanted if wanted in self._templates else usable[0]
        template = copy.deepcopy(self._templates[chosen])
        return Message(scripted(template, message, script, partition), reply_to=message)

    def remembered(self, message: Message, context: Context) -> Message | None:
        """Return the honest run's reply to a message that is not training; None without one.

        Only the type of the message counts: the metrics need not be those of this model.
        """
        kind = message.metadata.message_type
        content = self._templates.get((kind, _partition(context)))
        if content is None:  # a client that had no message in the honest run answers like another
            content = next((each for key, each in self._templates.items() if key[0] == kind), None)
        return None if content is None else Message(copy.deepcopy(content), reply_to=message)

    def remember(self, message: Message, context: Context, reply: Message) -> None:
        kind = message.metadata.message_type
        if not kind.startswith("train") and not reply.has_error():
            self._templates[kind, _partition(context)] = copy.deepcopy(reply.content)


@contextlib.contextmanager
def opened(directory: Path, clients: int, overrides: dict[str, Scalar]) -> Iterator[AuditedApp]:
    audited = AuditedApp(clients)
    with loaded(directory, overrides, audited.train) as app:
        audited._app = app
        try:
            yield audited
        finally:
            unwrap()


class _AuditGrid(InProcessGrid):
    def __init__(self, audited: AuditedApp, recorder: "_Recorder", app: FlowerApp) -> None:
        super().__init__(app.client_app, audited.clients, app.run_config)
        self._audited, self._recorder = audited, recorder
        self._asked = 0
        self.in_client = False

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes. A strategy that keeps asking waits for more clients."""
        self._asked += 1
        if self._asked > MOST_QUESTIONS:
            raise AppFailedError(
                f"the app waits for more than {self._audited.clients} clients; give a larger "
                "--clients"
            )
        return super().get_node_ids()

    def execute(self, message: Message) -> Message:
        context = self.contexts[message.metadata.dst_node_id]
        self._asked = 0
        training = message.metadata.message_type.startswith("train")
        if self._recorder.script is not None and not training:
            reply = self._audited.remembered(message, context)
            if reply is not None:
                return reply
        self.in_client = True
        try:
            reply = super().execute(message)
        finally:
            self.in_client = False
        self._recorder.answered(message, _partition(context), reply)
        if training:
            self._recorder.replied(message, _partition(context), reply)
        elif self._recorder.script is None:
            self._audited.remember(message, context, reply)
        return reply


class _Recorder:
    def __init__(self, clients: int, script: Script | None) -> None:
        self.clients, self.script = clients, script
        self.statements: list[AppStatement] = []
        self.seeded = False
        self._kinds: Counter[str] = Counter()  # of messages that clients answered
        self._failed = ""  # first failure of a client
        self.local: LocalDpMod | None = None
        self._rounds: list[AppRound] = []
        self._model: Vector = np.empty(0)
        self._replies: dict[int, RecordDict] = {}
        self._without_noise: Vector | None = None
        self._strategy: Strategy | None = None
        self._replaced: list[tuple[Strategy, Any]] = []

    def answered(self, message: Message, partition: int, reply: Message) -> None:
        self._kinds[message.metadata.message_type] += 1
        if reply.has_error() and not self._failed:
            self._failed = f"client {partition} failed: {reply.error.reason}"

    def failure(self, error: BaseException, app: FlowerApp) -> Exception:
        if self._kinds and not app.trains:  # why it failed does not matter
            return InputError(loading.untrained(self._kinds))
        why = f"the app failed: {type(error).__name__}: {error}"
        return self._explained(f"{why}; before that, {self._failed}" if self._failed else why, app)

    def _explained(self, why: str, app: FlowerApp) -> AppFailedError:
        return AppFailedError(why + missing(why, app.described))

    def replied(self, message: Message, partition: int, reply: Message) -> None:
        if reply.has_error():
            raise AppFailedError(self._failed)
        if not self._replies:  # all clients of a round receive the same model
            self._model = flat(message.content)
            if not self._model.size:
                raise InputError(loading.NO_NUMBERS)
        self._replies[partition] = copy.copy(reply.content)

    def attach(self, strategy: Strategy) -> None:
        self._strategy = strategy
        wrapper = introspection.central_wrapper(strategy)
        if any(strategy is each for each, _ in self._replaced):
            return
        aggregate = strategy.aggregate_train

        def observed(server_round: int, replies: Iterable[Message]) -> Any:
            contents, self._replies = self._replies, {}
            key = introspection.weighting_key(self._strategy) if self._strategy else ""
            weights = {}
            for partition, content in contents.items():
                for metrics in content.metric_records.values():
                    weight = metrics.get(key)
                    if isinstance(weight, int | float):
                        weights[partition] = float(weight)
            shifts = self._target_shift(contents)
            before = float(getattr(wrapper, "clipping_norm", np.nan))
            result = aggregate(server_round, list(replies))
            if result[0] is None:
                raise AppFailedError(f"round {server_round} was skipped: nothing was aggregated")
            model = flat_record(result[0])
            energy = None
            if self._without_noise is not None:
                energy = float(np.square(model - self._without_noise).sum())
            shift = np.nan
            if self.script is not None:
                along = direction(self.script.seed, model.size)
                shift = float((model - self._model) @ along)
            after = float(getattr(wrapper, "clipping_norm", np.nan))
            self._rounds.append(
                AppRound(len(contents), weights, before, after, energy, shift, *shifts)
            )
            self._without_noise = None
            return result

        self._replace(strategy, observed)
        if wrapper is not None and self.script is None:
            self._watch_inside(wrapper.strategy)

    def detach(self) -> None:
        for strategy, own in reversed(self._replaced):
            if own is None:
                del strategy.aggregate_train
            else:
                strategy.aggregate_train = own

    def finish(self, app: FlowerApp) -> Execution:
        if self._failed and not self._rounds and app.trains:
            raise self._explained(self._failed, app)
        if self._strategy is None or not self._rounds:
            raise InputError(loading.untrained(self._kinds))
        mods = (*app.mods, self.local) if self.local is not None else app.mods
        configuration = introspection.configuration_of(self._strategy, mods, len(self._rounds))
        return Execution(
            tuple(self._rounds),
            configuration,
            tuple(self.statements),
            self.seeded,
            self._model.size,
        )

    def _watch_inside(self, inner: Strategy) -> None:
        aggregate = inner.aggregate_train

        def observed(server_round: int, replies: Iterable[Message]) -> Any:
            result = aggregate(server_round, replies)
            self._without_noise = None if result[0] is None else flat_record(result[0])
            return result

        self._replace(inner, observed)

    def _replace(self, strategy: Strategy, aggregate_train: Any) -> None:
        self._replaced.append((strategy, strategy.__dict__.get("aggregate_train")))
        strategy.aggregate_train = aggregate_train  # type: ignore[method-assign]

    def _target_shift(self, contents: dict[int, RecordDict]) -> tuple[float, float]:
        """Return the target's change along the direction, and its length; nan without a message."""
        if self.script is None or self.script.target not in contents:
            return np.nan, np.nan
        change = flat(contents[self.script.target]) - self._model
        along = direction(self.script.seed, change.size)
        return float(change @ along), float(np.linalg.norm(change))


@contextlib.contextmanager
def _hooks(recorder: _Recorder, grid: _AuditGrid) -> Iterator[None]:
    call, answer = LocalDpMod.__call__, RdpAccountant.get_privacy_spent

    def local(self: LocalDpMod, *arguments: Any) -> Message:
        recorder.local = self
        return call(self, *arguments)

    def spent(self: RdpAccountant, delta: float | None = None) -> Any:
        result = answer(self, delta)
        statement = AppStatement(result.epsilon, result.delta, result.num_releases)
        recorder.statements.append(statement)
        return result

    def noted(set_generator: Any) -> Any:
        def observed(*arguments: Any, **names: Any) -> None:
            recorder.seeded = recorder.seeded or not grid.in_client
            set_generator(*arguments, **names)

        return observed

    with ExitStack() as stack:
        for kind in _starters(Strategy):  # type: ignore[type-abstract]
            stack.enter_context(patched(kind, "start", _observed_start(kind, recorder)))
        stack.enter_context(patched(LocalDpMod, "__call__", local))
        stack.enter_context(patched(RdpAccountant, "get_privacy_spent", spent))
        for name in ("seed", "set_state"):
            stack.enter_context(patched(np.random, name, noted(getattr(np.random, name))))
        yield


def _observed_start(strategy: type[Strategy], recorder: _Recorder) -> Any:
    start = strategy.start

    def observed(self: Strategy, *arguments: Any, **names: Any) -> Any:
        recorder.attach(self)
        if recorder.script is not None:  # the audit does not use evaluations of the model
            arguments, names = arguments[:6], names | {"evaluate_fn": None}
        return start(self, *arguments, **names)

    return observed


def _starters(strategy: type[Strategy]) -> Iterator[type[Strategy]]:
    if "start" in strategy.__dict__:
        yield strategy
    for derived in strategy.__subclasses__():
        yield from _starters(derived)


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Silence Flower's log, which prints dozens of lines for every run."""
    log = logging.getLogger("flwr")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def answers(first: bytes, later: Iterator[bytes]) -> Iterator[AppAnswer]:
    order = ORDER.validate_json(first, strict=True)
    with opened(Path(order.directory), order.clients, order.overrides) as app:
        yield AppAnswer(name=app.name)
        for each in later:
            request = REQUEST.validate_json(each, strict=True)
            yield AppAnswer(execution=app.execute(request.seed, request.script))


if __name__ == "__main__":
    channel.serve(answers)
