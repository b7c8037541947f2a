"""One run of a Flower app in this process, honest or scripted, and what was observed in it.

In an honest run the app's clients train. In a scripted run they do not: a `Script` gives every
client its update. The update replaces the train function inside all mods, so that clipping, noise
and weighting are the app's own. Metrics are those of the honest run. A scripted run takes
milliseconds, whatever the app trains.

`python -m fedsim.audits.app.execution DESCRIPTOR` is the process in which an app is audited. It
serves an `AuditedApp`.
"""

import contextlib
import copy
import io
import logging
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import RdpAccountant
from flwr.serverapp.strategy import Strategy

from adversaries.arrays import Floats
from adversaries.bounds.canaries import vector
from adversaries.errors import InputError
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.app.loading import FlowerApp, Train, loaded, patched, without_older_stack
from fedsim.audits.app.records import ClientRun, ClientSteps, ClientWatch, model_of
from fedsim.audits.child_process import channel
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.audit import OWN_NOISE
from fedsim.audits.recorded.releases import Notes
from fedsim.audits.recorded.server_rounds import ServerRounds
from fedsim.audits.recording.flower import ServerRecorder, names, weighting_key, wrapper_of
from fedsim.audits.recording.loop import RoundSink
from fedsim.audits.steps.classes import unwrap
from fedsim.audits.steps.watch import Statement
from fedsim.common.randomness import StreamRole, generator
from fedsim.configuration import Scalar
from fedsim.federation.runtimes.inprocess import FIRST_NODE, RUN_ID, SERVER_NODE, InProcessGrid
from fedsim.federation.transcripts.records import Layout, ObservedRound
from fedsim.privacy.delta import ASSUMED

UNBOUNDED_WEIGHT = 1e9
"""Number of examples that a client claims to outweigh all others."""


@dataclass(frozen=True, kw_only=True)
class AppFacts:
    """What an honest run of an app says about its privacy, and what was measured in it.

    Attributes:
        strategies: class names from the outermost wrapper inwards.
        multipliers: noise of every round, as configured, over the largest change of the average by
            one client; () where theory does not know it.
        clipping_norm: of the first round; 0 without one.
        client_clips: whether clipping is left to the clients.
        weighted_by: the metric, sent by clients, that weights the average; "" if all weigh alike.
        seeded: whether the server set the seed or the state of NumPy's global generator, from which
            Flower draws its noise.
        normal: whether Flower's own code makes the noise, as configured in every round.
        bare: whether the releases are plain averages without noise.
        findings: of the recorded rounds, as of a server's transcript.
        unknown: why theory does not know the noise; "" where it does.
        doubts: why an epsilon within a claim does not support it.
        detects: share of the noise below which the honest run would have raised an alarm.
    """

    rounds: int
    strategies: str
    multipliers: tuple[float, ...]
    clipping_norm: float
    client_clips: bool
    weighted_by: str
    seeded: bool
    normal: bool
    bare: bool
    statement: Statement | None
    findings: tuple[Finding, ...]
    unknown: str
    doubts: tuple[str, ...]
    detects: tuple[float, ...]


@dataclass(frozen=True)
class Script:
    """Messages of the clients in a scripted run.

    Attributes:
        target: partition whose update differs between the worlds.
        length: L2 length of its update along `direction`; negative for the opposite way.
        weight: weight that the target states; None for that of the honest run.
        idle: number that every other client adds to the model's first coordinate. It must not be 0:
            Flower's clipping divides by the norm.
    """

    target: int
    length: float
    weight: float | None
    weighted_by: str
    idle: float
    seed: int


@lru_cache(maxsize=1)
def direction(seed: int, parameters: int) -> Floats:
    """Return the unit vector [P] of the target's update; all runs of an audit share it."""
    drawn = generator(seed, StreamRole.CANARY).standard_normal(parameters)
    return drawn / np.linalg.norm(drawn)


@dataclass(frozen=True)
class AppRound:
    """How far models moved along the script's direction in one round of a scripted run.

    Attributes:
        model_shift: next model, as it is sent or at last returned, less the one that the clients
            were sent.
        message_shift: target's reply less the model that it was sent; nan without a reply.
        message_norm: length of that difference.
    """

    model_shift: float = math.nan
    message_shift: float = math.nan
    message_norm: float = math.nan


@dataclass(frozen=True)
class HonestRun:
    """An honest run: its facts, and the training of each client."""

    facts: AppFacts
    clients: dict[int, ClientRun]


def scripted(template: RecordDict, message: Message, script: Script, partition: int) -> RecordDict:
    """Return an honest reply with the model, and the target's weight, that the script says."""
    model = model_of(message.content)
    size = sum(math.prod(array.shape) for array in model.values() if floating(array))
    targeted = partition == script.target
    update = script.length * direction(script.seed, size) if targeted else np.zeros(size)
    if not targeted:
        update[0] = script.idle
    for name in template.array_records:
        template[name] = _moved(model, update)
    if targeted and script.weight is not None:
        for metrics in template.metric_records.values():
            if script.weighted_by in metrics:
                whole = isinstance(metrics[script.weighted_by], int)
                metrics[script.weighted_by] = int(script.weight) if whole else script.weight
    return template


def _moved(model: ArrayRecord, update: Floats) -> ArrayRecord:
    moved, start = {}, 0
    for name, array in model.items():
        moved[name] = array
        if floating(array):
            change = update[start : start + math.prod(array.shape)]
            start += change.size
            if change.any():
                values = array.numpy()
                moved[name] = Array((values + change.reshape(array.shape)).astype(values.dtype))
    return ArrayRecord(moved)


def floating(array: Array) -> bool:
    return np.issubdtype(np.dtype(array.dtype), np.floating)


NO_NUMBERS = (
    "the app's model has no floating-point numbers (for example trees that are sent as bytes). "
    "This audit shifts a model's weights along a direction, so that it needs numeric weights"
)
SEVERAL = (
    "the app runs rounds of several strategies ({}). This audit judges one mechanism, and rounds "
    "of the others release something else: audit an app for each of them"
)
UNTRAINED = (
    "the app trained no model through Strategy.start of flwr.serverapp.strategy. This audit judges "
    "models that clients train and a strategy aggregates"
)
MOST_QUESTIONS = 8
"""Most times that a strategy may ask for the clients before it sends the next message."""


class AuditedApp:
    """An app that can run many times; every run sets all seeds."""

    def __init__(self, app: FlowerApp, clients: int) -> None:
        self.app, self._clients = app, clients
        self._templates: dict[tuple[str, int], RecordDict] = {}
        self._watch = ClientWatch()
        self._run: _Run

    @property
    def name(self) -> str:
        return self.app.name

    @property
    def clients(self) -> int:
        return self._clients

    def honest(self, seed: int) -> HonestRun:
        """Run the app as it is."""
        facts = self._played(seed, None).facts()
        return HonestRun(facts, self._steps.runs())

    def scripted(self, seed: int, script: Script) -> tuple[AppRound, ...]:
        """Run the app with updates by a script, and return its rounds."""
        return self._played(seed, script).scored()

    def _played(self, seed: int, script: Script | None) -> "_Run":
        run = self._run = _Run(self, script)
        self._steps = ClientSteps(self._watch)
        context = Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(self.app.run_config))
        channel.set_seeds(seed)
        quiet = contextlib.redirect_stdout(io.StringIO() if script else sys.stderr)
        try:
            with _hooks(run), without_older_stack(), quiet, _without_logs():
                self.app.server_app(run, context)
        except (AppFailedError, InputError):
            raise
        # SystemExit too: an app that ends the process would end the audit without a verdict.
        except (Exception, SystemExit) as error:
            raise run.failure(error) from error
        finally:
            run.detach()
        run.check()
        return self._played(seed, script) if self._steps.late else run

    def train(self, message: Message, context: Context, call_next: Train) -> Message:
        """Return the answer to a message in place of the app's train function (a Flower mod)."""
        partition, script = _partition(context), self._run.script
        kind = message.metadata.message_type
        if not kind.startswith("train"):
            return call_next(message, context)
        if script is None:
            reply = self._steps.trained(partition, message, lambda: call_next(message, context))
            self.keep(kind, partition, reply)
            return reply
        template = self.template(kind, partition)
        if template is None:
            raise AppFailedError("no client replied in the honest run")
        return Message(scripted(template, message, script, partition), reply_to=message)

    def keep(self, kind: str, partition: int, reply: Message) -> None:
        """Keep the reply of an honest run to a message of this kind."""
        if not reply.has_error():
            self._templates[kind, partition] = copy.deepcopy(reply.content)

    def template(self, kind: str, partition: int) -> RecordDict | None:
        """Return a copy of the honest run's reply to a message; None without one.

        A client that had no such message in the honest run answers like one that had.
        """
        usable = {key[1]: each for key, each in self._templates.items() if key[0] == kind}
        return copy.deepcopy(usable.get(partition, next(iter(usable.values()), None)))


@contextlib.contextmanager
def opened(directory: Path, clients: int, overrides: dict[str, Scalar]) -> Iterator[AuditedApp]:
    def innermost(message: Message, context: Context, call_next: Train) -> Message:
        return audited.train(message, context, call_next)

    with loaded(directory, overrides, innermost) as app:
        audited = AuditedApp(app, clients)
        try:
            yield audited
        finally:
            unwrap()


class _Watch(RoundSink):
    """Takes a run's rounds from the recorders of its strategies; an error ends the run."""

    def guarded(self) -> Any:
        return contextlib.nullcontext()


class _Run(InProcessGrid):
    """One run, and what was observed in it: the grid through which the server asks the clients."""

    def __init__(self, audited: AuditedApp, script: Script | None) -> None:
        super().__init__(audited.app.client_app, audited.clients, audited.app.run_config)
        self._audited, self.script = audited, script
        self.statement: Statement | None = None
        self.seeded = self.in_client = False
        self._asked, self._answered = 0, False
        self._failed = ""  # first failure of a client
        self._recorders: list[tuple[Strategy, ServerRecorder]] = []
        self._strategies: list[Strategy] = []  # of each round
        self._mechanisms: list[Mapping[str, Any]] = []  # of each round
        self._participants: list[int] = []
        self._weights: dict[int, float] = {}  # as each client stated it last
        self._server = ServerRounds(Notes())
        self._along: list[float] = []  # each sent model along the script, and the last release
        self._messages: list[tuple[float, float]] = []

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
        partition = _partition(self.contexts[message.metadata.dst_node_id])
        kind, self._asked = message.metadata.message_type, 0
        training = kind.startswith("train")
        # Only the type of the message counts: the metrics need not be those of this model.
        asked = self.script is not None and not training
        if asked and (known := self._audited.template(kind, partition)) is not None:
            return Message(known, reply_to=message)
        self.in_client = True
        try:
            reply = super().execute(message)
        finally:
            self.in_client = False
        self._answered = True
        if reply.has_error():
            self._failed = self._failed or f"client {partition} failed: {reply.error.reason}"
            if training:
                raise AppFailedError(self._failed)
        elif training:
            model_of(reply.content)
            if not any(map(floating, model_of(message.content).values())):
                raise InputError(NO_NUMBERS)
        elif self.script is None:
            self._audited.keep(kind, partition, reply)
        return reply

    def failure(self, error: BaseException) -> Exception:
        if self._answered and not self._audited.app.trains:  # why it failed does not matter
            return InputError(UNTRAINED)
        before = f"; before that, {self._failed}" if self._failed else ""
        return AppFailedError(f"the app failed: {type(error).__name__}: {error}{before}")

    def attach(self, strategy: Strategy) -> None:
        if any(strategy is each for each, _ in self._recorders):
            return
        sink = _Watch(partial(self._observe, strategy), "", resume=False)
        nodes = None if self.script is None else {FIRST_NODE + self.script.target}
        recorder = ServerRecorder(strategy, sink, nodes)
        recorder.attach()
        self._recorders.append((strategy, recorder))

    def detach(self) -> None:
        for _, recorder in reversed(self._recorders):
            recorder.detach()

    def _observe(self, strategy: Strategy, observed: ObservedRound) -> None:
        if observed.aggregate is None:
            raise AppFailedError(f"round {observed.round} was skipped: nothing was aggregated")
        self._strategies.append(strategy)
        if self.script is not None:
            self._score(observed, self.script)
            return
        self._mechanisms.append(observed.mechanism)
        # Rounds are counted on where the app starts its strategy again.
        self._server.observe(replace(observed, round=len(self._strategies)))
        self._participants.append(len(observed.replies))
        self._weights |= {
            node - FIRST_NODE: reply.num_examples
            for node, reply in observed.replies.items()
            if reply.num_examples is not None
        }

    def _score(self, observed: ObservedRound, script: Script) -> None:
        """Note how far models and the target's message moved along the script's direction."""
        layout, sent = Layout.of(observed.model), vector(observed.model)
        released = layout.vector(observed.aggregate or {})
        if released is None:
            raise AppFailedError("the released model has other shapes than the one that was sent")
        unit = direction(script.seed, sent.size)
        self._along[-1:] = [float(unit @ sent), float(unit @ released)]
        reply = observed.replies.get(FIRST_NODE + script.target)
        message = None if reply is None else layout.vector(reply.arrays)
        change = np.full(1, np.nan) if message is None else message - sent
        along = math.nan if message is None else float(unit @ change)
        self._messages.append((along, float(np.linalg.norm(change))))

    def check(self) -> None:
        """Raise an error if the run trained nothing, or by several strategies."""
        if self._failed and not self._strategies and self._audited.app.trains:
            raise AppFailedError(self._failed)
        different = dict.fromkeys(map(names, self._strategies))
        if len(different) != 1:
            raise InputError(SEVERAL.format(", then ".join(different)) if different else UNTRAINED)

    def scored(self) -> tuple[AppRound, ...]:
        pairs = zip(np.diff(self._along).tolist(), self._messages, strict=True)
        return tuple(AppRound(shift, *message) for shift, message in pairs)

    def facts(self) -> AppFacts:
        """Return what an honest run shows; the findings are those of a recorded server."""
        said = self._mechanisms[-1]
        measured = self._server.measured(said, ASSUMED, ALARM_CONFIDENCE)
        release, own = measured.release, said.get("own_noise")
        claimed = release is not None and all(release.claimed_std)
        multipliers = () if measured.unmeasured else self._multipliers()
        return AppFacts(
            rounds=len(self._strategies),
            strategies=names(self._strategies[-1]),
            multipliers=multipliers,
            clipping_norm=float(self._mechanisms[0].get("clipping_norm", 0.0)),
            client_clips=said.get("clipping") == "client",
            weighted_by="" if self._alike else weighting_key(self._strategies[-1]),
            seeded=self.seeded,
            normal=bool(multipliers) and not own,
            bare=release is not None and release.noise == "none" and not claimed,
            statement=self.statement,
            findings=tuple(
                each
                for each in measured.findings
                if each.breaks or (each.rule and each.severity == "caution")
            ),
            unknown=measured.unmeasured,
            doubts=(*measured.doubts, *([OWN_NOISE.format(own)] if own else [])),
            detects=tuple(measured.views[-1].detects or ()),
        )

    @property
    def _alike(self) -> bool:
        """Whether every client weighs alike: it sends the constant 1, or the server enforces it."""
        enforced = getattr(wrapper_of(self._strategies[-1]), "accountant", None) is not None
        return enforced or set(self._weights.values()) <= {1.0}

    def _multipliers(self) -> tuple[float, ...]:
        """Return the noise of each round over one client's largest change; () if rounds differ."""
        names = "noise_multiplier", "num_sampled_clients"
        pairs = {tuple(float(each.get(name, 0)) for name in names) for each in self._mechanisms}
        multiplier, clients = pairs.pop()
        if pairs or not clients:
            return ()
        # A client that states its own weight may be all of the average.
        return tuple(
            multiplier / clients * (replies if self._alike else 1) for replies in self._participants
        )


@contextlib.contextmanager
def _hooks(recorder: _Run) -> Iterator[None]:
    answer = RdpAccountant.get_privacy_spent

    def spent(self: RdpAccountant, delta: float | None = None) -> Any:
        result = answer(self, delta)
        recorder.statement = Statement(result.epsilon, result.delta, result.num_releases)
        return result

    def noted(set_generator: Any) -> Any:
        def observed(*arguments: Any, **names: Any) -> None:
            recorder.seeded = recorder.seeded or not recorder.in_client
            set_generator(*arguments, **names)

        return observed

    with ExitStack() as stack:
        for kind in _starters(Strategy):  # type: ignore[type-abstract]
            stack.enter_context(patched(kind, "start", _observed_start(kind, recorder)))
        stack.enter_context(patched(RdpAccountant, "get_privacy_spent", spent))
        for name in ("seed", "set_state"):
            stack.enter_context(patched(np.random, name, noted(getattr(np.random, name))))
        yield


def _observed_start(strategy: type[Strategy], recorder: _Run) -> Any:
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


if __name__ == "__main__":
    channel.serve(opened)
