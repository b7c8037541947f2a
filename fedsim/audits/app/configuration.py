"""An app's configuration, read off Flower's objects, and what its runs show.

The audit requests one run after another and gets measurements back. It computes the verdict itself.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from adversaries.arrays import Floats
from adversaries.statistics.intervals import Interval
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Claim, Finding
from fedsim.audits.loop.observation import ObservedRun
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy.trust.model import Vantage

UNBOUNDED_WEIGHT = 1e9
"""Number of examples that a client claims to outweigh all others."""

CLIENT_SIDE = (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
ADAPTIVE = (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
CENTRAL = (DifferentialPrivacyServerSideFixedClipping, *CLIENT_SIDE, *ADAPTIVE)
OUTSIDE = ("add_gaussian_noise_inplace", "compute_stdv")
"""Flower's functions that make the noise, as its strategies call them."""


@dataclass(frozen=True)
class CentralNoise:
    """Noise that the server adds to an average of clipped updates.

    Before the app runs, norms are those of the first round alone.

    Attributes:
        noise_multiplier: z; the noise has the standard deviation z C / sampled_clients. The least
            of all rounds.
        noise_norms: C that scaled the noise of every round. It differs under adaptive clipping,
            which moves C before the noise is drawn.
        sampled_clients: divisor of the strategy, however many clients replied. The largest of all
            rounds.
        adaptive: whether C follows the updates, which releases a noisy count of clipped updates.
        count_std: standard deviation of the noise on that count, in clients.
        plain_mean: whether the noise is added to Flower's plain average of the replies.
        weighted_by: the metric, sent by clients, that weights the average.
        own_noise: whether code that is not Flower's makes the noise.
        varies: whether the multiplier or the divisor differs between rounds.
    """

    strategy: str
    noise_multiplier: float
    clipping_norms: tuple[float, ...]
    noise_norms: tuple[float, ...]
    sampled_clients: int
    client_clips: bool = False
    adaptive: bool = False
    count_std: float = 0.0
    plain_mean: bool = True
    weighted_by: str = "num-examples"
    equal_weights_enforced: bool = False
    own_noise: bool = False
    varies: bool = False

    @property
    def adds_noise(self) -> bool:
        return self.noise_multiplier > 0 or self.varies


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
class AppObservation:
    """Observations of one honest run of the app, and of one with a huge update.

    Attributes:
        noise_ratios: realised over configured standard deviation of the central noise in every
            round; () without noise, and where the noise could not be measured.
        client_norm_kept: whether an update far above the clipping norm left its client unclipped.
        seeded: whether the server set the seed or the state of NumPy's global generator, from which
            Flower draws its noise.
        checks: findings on the recorded rounds, as for a server's transcript.
        unsure: why these do not support a claim; "" if they may.
    """

    participants: tuple[int, ...]
    weights: dict[int, float]
    noise_ratios: tuple[Interval, ...]
    client_norm_kept: bool
    seeded: bool
    statements: tuple[AppStatement, ...]
    noise_coordinates: int = 0
    checks: tuple[Finding, ...] = ()
    unsure: str = ""

    @property
    def constant_weights(self) -> bool:
        """Whether every client sent the constant weight 1 instead of a count of its data."""
        return set(self.weights.values()) <= {1.0}


@dataclass(frozen=True)
class Configuration:
    """The app's differential privacy, as far as it can be read or observed.

    Attributes:
        strategies: class names from the outermost wrapper inwards.
        mods: names of the clients' mods, outermost first.
        known: whether all strategies are Flower's own, so that no other noise is possible.
    """

    rounds: int
    strategies: tuple[str, ...]
    mods: tuple[str, ...] = ()
    known: bool = True
    central: CentralNoise | None = None
    local: LocalNoise | None = None
    observation: AppObservation | None = None


BY_LOCAL = "LocalDpMod, for all messages together"


def claim_of(configuration: Configuration) -> Claim | None:
    """Return the app's own claim: its accountant's last answer, else what LocalDpMod states.

    That is about one message. The epsilons and deltas of all rounds add up.
    """
    observation, local = configuration.observation, configuration.local
    if observation is not None and observation.statements:
        last = observation.statements[-1]
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


# Flower's objects


def chain(strategy: Strategy) -> list[Strategy]:
    strategies = [strategy]
    while isinstance(inner := getattr(strategies[-1], "strategy", None), Strategy):
        if any(inner is each for each in strategies):
            break
        strategies.append(inner)
    return strategies


def central_wrapper(strategy: Strategy) -> Any | None:
    return next((each for each in chain(strategy) if isinstance(each, CENTRAL)), None)


def own_code(strategies: Iterable[Strategy]) -> bool:
    """Return whether a strategy aggregates by code that is not Flower's."""
    return not all(_of_flower(type(each).aggregate_train) for each in strategies)


def averages(strategy: Strategy) -> bool:
    """Return whether a strategy without an inner one releases FedAvg's weighted mean of replies."""
    return isinstance(strategy, FedAvg) and type(strategy).aggregate_train is FedAvg.aggregate_train


def weighting_key(strategy: Strategy) -> str:
    return str(getattr(chain(strategy)[-1], "weighted_by_key", ""))


def configuration_of(
    strategy: Strategy,
    mods: Iterable[object] = (),
    rounds: int = 1,
    mechanisms: Sequence[Mapping[str, Any]] = (),
) -> Configuration:
    """Return the privacy of a strategy, and of its rounds where their mechanisms were recorded."""
    strategies, mods = chain(strategy), list(mods)
    return Configuration(
        rounds=rounds,
        strategies=tuple(type(each).__name__ for each in strategies),
        mods=tuple(getattr(mod, "__name__", type(mod).__name__) for mod in mods),
        known=all(map(_of_flower, map(type, strategies))),
        central=_central_noise(strategy, mechanisms),
        local=next((local_noise(mod) for mod in mods if isinstance(mod, LocalDpMod)), None),
    )


def local_noise(mod: LocalDpMod) -> LocalNoise:
    values = (mod.clipping_norm, mod.sensitivity, mod.epsilon, mod.delta)
    return LocalNoise(*(float(value) for value in values))


def _of_flower(code: Any) -> bool:
    return str(code.__module__).startswith("flwr.")


def _central_noise(
    strategy: Strategy, mechanisms: Sequence[Mapping[str, Any]]
) -> CentralNoise | None:
    """Return the noise of Flower's wrapper; None where the app's code may release without it.

    mechanisms: of the recorded rounds, whose least noise counts; none before the app runs.
    """
    wrapper = central_wrapper(strategy)
    if wrapper is None or own_code(chain(strategy)[: chain(strategy).index(wrapper) + 1]):
        return None
    adaptive, norm = isinstance(wrapper, ADAPTIVE), float(wrapper.clipping_norm)
    method = wrapper._add_noise_to_aggregated_arrays
    inner = [getattr(method, "__globals__", {}).get(name) for name in OUTSIDE]
    now = {
        "noise_multiplier": float(wrapper.noise_multiplier),
        "num_sampled_clients": int(wrapper.num_sampled_clients),
        "clipping_norm": norm,
        "noise_clipping_norm": norm,
    }
    multipliers, clients, clipping, noise = (
        tuple(each.get(name, math.nan) for each in mechanisms or [now]) for name in now
    )
    return CentralNoise(
        strategy=type(wrapper).__name__,
        noise_multiplier=min(multipliers),
        clipping_norms=clipping,
        noise_norms=noise,
        sampled_clients=max(clients),
        client_clips=isinstance(wrapper, CLIENT_SIDE),
        adaptive=adaptive,
        count_std=float(wrapper.clipped_count_stddev) if adaptive else 0.0,
        plain_mean=averages(wrapper.strategy),
        weighted_by=str(getattr(wrapper.strategy, "weighted_by_key", "")),
        equal_weights_enforced=getattr(wrapper, "accountant", None) is not None,
        own_noise=not all(map(_of_flower, [method, *(each for each in inner if each)])),
        varies=len({z / n for z, n in zip(multipliers, clients, strict=True)}) > 1,
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
