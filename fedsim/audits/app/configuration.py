"""The differential-privacy configuration of a Flower app, as data.

What can be read off the app's strategy and mods before anything runs is a `Configuration`; what one
run of it showed is an `Observation`. A claim is what somebody says that the two amount to.
"""

import math
from dataclasses import dataclass

from adversaries.statistics.intervals import Interval
from fedsim.audits.judgement.claim import Claim, Scope
from fedsim.privacy.trust.model import Vantage

UNBOUNDED_WEIGHT = 1e9
"""The number of examples that a client claims in order to outweigh all others."""


@dataclass(frozen=True)
class CentralNoise:
    """Noise that the server adds to an average of clipped updates.

    Attributes:
        noise_multiplier: z; the noise has the standard deviation z C / sampled_clients.
        clipping_norms: the C (L2 norm) that updates were clipped to in every round; before the app
            ran, of the first alone.
        noise_norms: the C that scaled the noise of every round, likewise; adaptive clipping has
            moved it by then.
        sampled_clients: the number by which the strategy divides, whoever replied.
        client_clips: whether clipping is left to the clients.
        adaptive: whether C follows the updates, which releases a noisy count of clipped updates.
        count_std: standard deviation of the noise on that count, in clients.
        plain_mean: whether what is noised is Flower's plain average of the replies.
        weighted_by: the metric that weights the average, which clients send.
        equal_weights_enforced: whether the strategy refuses replies of unequal weight.
        own_noise: whether code that is not Flower's makes the noise.
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


@dataclass(frozen=True)
class LocalNoise:
    """Noise that every client adds to its own clipped update: Flower's LocalDpMod.

    Its standard deviation is sensitivity * sqrt(2 ln(1.25/delta)) / epsilon.

    Attributes:
        clipping_norm: the longest (L2) that an update leaves the client, before noise.
        sensitivity: what scales the noise; nothing ties it to the clipping norm.
        epsilon: that LocalDpMod means to keep for one message.
        delta: likewise; the formula has an answer below 1.25.
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
class Statement:
    """What the app's accountant answered when it was asked.

    Attributes:
        epsilon: spent so far, by Flower's own accounting.
        releases: noisy aggregates that it had counted by then.
    """

    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True)
class Training:
    """What the honest run showed of the clients' training, which trials do not run.

    Attributes:
        random: whether a client that trained one model twice, from other seeds, returned two
            updates.
        libraries: of differential privacy, that the app's modules import.
        epsilon: the largest that a client reported among its metrics, None if none did.
        metric: the name that it was reported under, "" if none was.
    """

    random: bool
    libraries: tuple[str, ...] = ()
    epsilon: float | None = None
    metric: str = ""


@dataclass(frozen=True)
class Observation:
    """What one honest run of the app, and one with a huge update, showed.

    Attributes:
        participants: replies that went into the aggregate, of every round.
        weights: of every client that was seen and stated one, by partition.
        noise_ratios: realised over configured standard deviation of the central noise, of every
            round; () without any.
        client_norm_kept: whether an update far above the clipping norm left its client unclipped.
        seeded: whether the server set the seed or the state of NumPy's global generator, from which
            Flower draws its noise.
        training: what the clients' training showed; None if no client trained.
        noise_coordinates: on how many numbers the noise of a round was measured.
    """

    participants: tuple[int, ...]
    weights: dict[int, float]
    noise_ratios: tuple[Interval, ...]
    client_norm_kept: bool
    seeded: bool
    statements: tuple[Statement, ...]
    training: Training | None = None
    noise_coordinates: int = 0

    @property
    def constant_weights(self) -> bool:
        """Whether every client sent the weight 1, a constant, rather than a count of its data."""
        return set(self.weights.values()) <= {1.0}


@dataclass(frozen=True)
class Configuration:
    """All that is known of the app's differential privacy.

    Attributes:
        strategies: class names from the outermost wrapper inwards.
        mods: names of the clients' mods, outermost first.
        known: whether all strategies are Flower's own, so that no other noise can be there.
        central: the server's noise, None if no wrapper of Flower's adds any.
        local: the noise of the clients' LocalDpMod, None without one.
    """

    rounds: int
    strategies: tuple[str, ...]
    mods: tuple[str, ...] = ()
    known: bool = True
    central: CentralNoise | None = None
    local: LocalNoise | None = None
    observation: Observation | None = None


def claim_of(configuration: Configuration) -> Claim | None:
    """Return what the app itself claims: its accountant's last word, else LocalDpMod's epsilon.

    The accountant speaks of released models, towards a participant; LocalDpMod of every message,
    towards the server.
    """
    seen = configuration.observation
    if seen is not None and seen.statements:
        last = seen.statements[-1]
        source = "the app's accountant, at its end"
        return Claim(
            last.epsilon, last.delta, Scope.RUN, source, Vantage.PARTICIPANT, unit="client"
        )
    return local_claim(configuration)


def local_claim(configuration: Configuration) -> Claim | None:
    """Return what LocalDpMod says of every message, None without one or a delta that means any."""
    local = configuration.local
    if local is None or not 0 < local.delta < 1:
        return None
    source = "LocalDpMod, of every message"
    return Claim(local.epsilon, local.delta, Scope.ROUND, source, Vantage.SERVER, unit="client")
