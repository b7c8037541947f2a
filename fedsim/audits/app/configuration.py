"""An app's configuration, as read off Flower's objects and observed, and what its runs show.

The audit requests one run after another and gets measurements back. It computes the verdict itself.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import Strategy

from adversaries.arrays import Floats
from adversaries.statistics.intervals import Interval
from fedsim.audits.app.strategies import CentralNoise, central_noise, chain, names, of_flower
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Claim, Finding
from fedsim.audits.loop.observation import ObservedRun
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy.trust import Vantage

UNBOUNDED_WEIGHT = 1e9
"""Number of examples that a client claims to outweigh all others."""


@dataclass(frozen=True)
class LocalNoise:
    """Noise that every client adds to its own clipped update: Flower's LocalDpMod.

    Its standard deviation is sensitivity * sqrt(2 ln(1.25/delta)) / epsilon.

    Attributes:
        sensitivity: scale of the noise; nothing ties it to the clipping norm.
    """

    clipping_norm: float
    sensitivity: float
    epsilon: float
    delta: float

    @classmethod
    def of(cls, mod: LocalDpMod) -> "LocalNoise":
        values = (mod.clipping_norm, mod.sensitivity, mod.epsilon, mod.delta)
        return cls(*(float(value) for value in values))

    @property
    def std(self) -> float:
        if self.epsilon == 0 or not 0 < self.delta < 1.25:
            return math.inf if self.epsilon == 0 else 0.0
        return self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon


@dataclass(frozen=True)
class AppStatement:
    """An answer of the app's accountant."""

    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True)
class Configuration:
    """The app's differential privacy, as far as it can be read or observed.

    Attributes:
        strategies: class names from the outermost wrapper inwards.
        mods: names of the clients' mods, outermost first.
        known: whether all strategies are Flower's own, so that no other noise is possible.
        participants: number of replies of every round of the honest run.
        weights: weight that each client states.
        noise_ratios: realised over configured standard deviation of the central noise in every
            round; () without noise, and where the noise could not be measured.
        client_norm_kept: whether an update far above the clipping norm left its client unclipped.
        seeded: whether the server set the seed or the state of NumPy's global generator, from which
            Flower draws its noise.
        checks: findings on the recorded rounds, as for a server's transcript.
        unsure: why these do not support a claim; "" if they may.
    """

    rounds: int
    strategies: tuple[str, ...]
    mods: tuple[str, ...] = ()
    known: bool = True
    central: CentralNoise | None = None
    local: LocalNoise | None = None
    participants: tuple[int, ...] = ()
    weights: dict[int, float] = field(default_factory=dict)
    noise_ratios: tuple[Interval, ...] = ()
    noise_coordinates: int = 0
    client_norm_kept: bool = False
    seeded: bool = False
    statements: tuple[AppStatement, ...] = ()
    checks: tuple[Finding, ...] = ()
    unsure: str = ""

    @property
    def constant_weights(self) -> bool:
        """Whether every client sent the constant weight 1 instead of a count of its data."""
        return set(self.weights.values()) <= {1.0}


BY_LOCAL = "LocalDpMod, for all messages together"


def claim_of(configuration: Configuration) -> Claim | None:
    """Return the app's own claim: its accountant's last answer, else what LocalDpMod states.

    That is about one message. The epsilons and deltas of all rounds add up.
    """
    local = configuration.local
    if configuration.statements:
        last = configuration.statements[-1]
        source = "the app's accountant, at the end of the run"
        return Claim(last.epsilon, last.delta, source, Vantage.PARTICIPANT, "client")
    if local is None or not 0 < local.delta < 1 / configuration.rounds:
        return None
    totals = local.epsilon * configuration.rounds, local.delta * configuration.rounds
    return Claim(*totals, BY_LOCAL, Vantage.SERVER, "client")


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
    """

    model_shift: float = math.nan
    message_shift: float = math.nan
    message_norm: float = math.nan


@dataclass(frozen=True)
class ClientRun:
    """The training of one client in an honest run."""

    run: ObservedRun
    rounds: int
    bare: int
    echo: float


@dataclass(frozen=True)
class HonestRun:
    """An honest run: its configuration, with what was observed, and the training of each client."""

    configuration: Configuration
    clients: dict[int, ClientRun]


class App(Protocol):
    """An app that can run many times, in this process or another; every run sets all seeds."""

    @property
    def name(self) -> str: ...

    @property
    def clients(self) -> int: ...

    def honest(self, seed: int) -> HonestRun:
        """Run the app as it is."""

    def scripted(self, seed: int, script: Script) -> tuple[AppRound, ...]:
        """Run the app with updates by a script, and return its rounds."""


def configuration_of(
    strategy: Strategy,
    mods: Iterable[object] = (),
    rounds: int = 1,
    mechanisms: Sequence[Mapping[str, Any]] = (),
) -> Configuration:
    """Return the privacy of a strategy, and of its rounds where their mechanisms were recorded."""
    mods = list(mods)
    return Configuration(
        rounds=rounds,
        strategies=names(strategy),
        mods=tuple(getattr(mod, "__name__", type(mod).__name__) for mod in mods),
        known=all(map(of_flower, map(type, chain(strategy)))),
        central=central_noise(strategy, mechanisms),
        local=next((LocalNoise.of(mod) for mod in mods if isinstance(mod, LocalDpMod)), None),
    )


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


def model_of(content: RecordDict) -> ArrayRecord:
    """Return a message's one model. Raises AppFailedError if it holds more, or none."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise AppFailedError(
            f"a message holds {len(records)} models; this audit needs exactly one in each message"
        )
    return records[0]


def floating(array: Array) -> bool:
    return np.issubdtype(np.dtype(array.dtype), np.floating)
