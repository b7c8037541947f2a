"""An app's configuration and what its runs show, in this process or another.

The audit requests one run after another and gets measurements back. It computes the verdict here.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from adversaries.arrays import Floats
from adversaries.statistics.intervals import Interval
from fedsim.audits.judgement.claim import Claim, Finding, Scope
from fedsim.audits.loop.measurement import ObservedRun
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy.trust.model import Vantage

UNBOUNDED_WEIGHT = 1e9
"""Number of examples that a client claims to outweigh all others."""


@dataclass(frozen=True)
class CentralNoise:
    """Noise that the server adds to an average of clipped updates.

    Before the app runs, norms are those of the first round alone.

    Attributes:
        noise_multiplier: z; the noise has the standard deviation z C / sampled_clients. The least
            of all rounds.
        clipping_norms: C (L2 norm) to which updates were clipped in every round.
        noise_norms: C that scaled the noise of every round. It differs under adaptive clipping,
            which moves C before the noise is drawn.
        sampled_clients: divisor of the strategy, however many clients replied. The largest of all
            rounds.
        client_clips: whether clipping is left to the clients.
        adaptive: whether C follows the updates, which releases a noisy count of clipped updates.
        count_std: standard deviation of the noise on that count, in clients.
        plain_mean: whether the noise is added to Flower's plain average of the replies.
        weighted_by: the metric, sent by clients, that weights the average.
        own_noise: whether code that is not Flower's makes the noise.
        noise_per_norm: standard deviation of each round's noise as configured, over the norm that
            scales it; () before the app runs.
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
    noise_per_norm: tuple[float, ...] = ()

    @property
    def least_per_norm(self) -> float:
        """Least noise of any round over its norm, which counts in every round."""
        return min(self.noise_per_norm, default=self.noise_multiplier / self.sampled_clients)

    @property
    def varies(self) -> bool:
        return len(set(self.noise_per_norm)) > 1

    @property
    def adds_noise(self) -> bool:
        return self.noise_multiplier > 0 or self.varies


@dataclass(frozen=True)
class LocalNoise:
    """Noise that every client adds to its own clipped update: Flower's LocalDpMod.

    Its standard deviation is sensitivity * sqrt(2 ln(1.25/delta)) / epsilon.

    Attributes:
        sensitivity: scale of the noise; nothing ties it to the clipping norm.
        epsilon: of one message, at delta, as LocalDpMod is configured.
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
    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True)
class AppObservation:
    """Observations of one honest run of the app, and of one with a huge update.

    Attributes:
        participants: number of aggregated replies in every round.
        weights: that clients stated, by partition.
        noise_ratios: realised over configured standard deviation of the central noise in every
            round; () without noise, and where the noise could not be measured.
        client_norm_kept: whether an update far above the clipping norm left its client unclipped.
        seeded: whether the server set the seed or the state of NumPy's global generator, from which
            Flower draws its noise.
        noise_coordinates: number of coordinates on which a round's noise was measured.
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
        central: the server's noise; None if none of Flower's wrappers adds noise.
    """

    rounds: int
    strategies: tuple[str, ...]
    mods: tuple[str, ...] = ()
    known: bool = True
    central: CentralNoise | None = None
    local: LocalNoise | None = None
    observation: AppObservation | None = None


def claim_of(configuration: Configuration) -> Claim | None:
    """Return the app's own claim: its accountant's last answer, else LocalDpMod's epsilon."""
    observation, local = configuration.observation, configuration.local
    if observation is not None and observation.statements:
        last = observation.statements[-1]
        source = "the app's accountant, at the end of the run"
        return Claim(last.epsilon, last.delta, Scope.RUN, source, Vantage.PARTICIPANT, "client")
    if local is None or not 0 < local.delta < 1:
        return None
    source = "LocalDpMod, for every message"
    return Claim(local.epsilon, local.delta, Scope.ROUND, source, Vantage.SERVER, "client")


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
class ClientRun:
    """The training of one client in an honest run.

    Attributes:
        run: steps of Opacus's optimizers in all rounds.
        rounds: number of rounds in which it trained.
        bare: rounds in which its reply is another model, without any such step.
        echo: p-value of the repetition of its noise.
    """

    run: ObservedRun
    rounds: int
    bare: int
    echo: float


@dataclass(frozen=True)
class HonestRun:
    """An honest run: its configuration, with what was observed, and the training of each client.

    Attributes:
        clients: by partition.
    """

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
