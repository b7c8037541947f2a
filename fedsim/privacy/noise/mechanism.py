"""The interface of noise mechanisms."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy.typing as npt

from adversaries.arrays import Bools, Floats
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.privacy.trust.model import Vantage

Learnt = Mapping[str, Floats]
"""Values [T] that an adversary learns from a round, by name.

`ratios`: the log-likelihood ratio of D to D'; `sensitivities`: |g - g'|; `noise_stds`;
`present_norms`: |g|; `absent_norms`: |g'|; and the mechanism's own `columns`.
"""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """A batch of T trials, as its noise mechanism sees it.

    Attributes:
        numbers: number of each trial, [T], which decides what it draws.
        worlds: bool [T], whether a trial trains on D.
        rounds: number of planned rounds.
        noise_seed: seed of the noise; None for the operating system's entropy.
        secret_seed: seed of the experiment's other draws.
        server_draws: whether the server adds noise; else the clients do.
        information: nats that all rounds together may reveal, for noise shaped by candidates.
        prior: the candidates, "pair" or "halves".
    """

    numbers: Sequence[int]
    worlds: Bools
    rounds: int
    noise_seed: int | None
    secret_seed: int
    server_draws: bool
    information: float = 0.0
    prior: str = "pair"

    def normals(self, round: int, size: int) -> Floats:
        """Return the server's independent standard normals [T, size] of a round.

        Args:
            round: counts from 1.
            size: numbers in each trial.
        """
        return gaussian_noise(self.noise_seed, self.numbers, round, SERVER, size)


@dataclass(frozen=True)
class Summed:
    """A round's sum before the server adds noise.

    Attributes:
        round: counts from 1.
        total: float64 [T, P]; [T, m, P] for m candidates.
        noise_stds: float64 [T], the nominal noise multiplier times the sensitivity.
        measured: returns what the target's client reports to an oracle audit, by name: `present`
            [T, P], g; `absent` [T, P], g', under replace; `membership` bool [m] of the candidates.
    """

    round: int
    total: Floats
    noise_stds: Floats
    measured: Callable[[], Mapping[str, npt.NDArray[Any]]]


@dataclass(frozen=True)
class Noised:
    """The release of a round.

    Attributes:
        total: float64 [T, P].
        noise: float64 [T, P], the server's part of the noise; None without it or with `learnt`.
        learnt: what an adversary learns, by vantage, where the noise has a law of its own.
    """

    total: Floats
    noise: Floats | None = None
    learnt: Mapping[Vantage, Learnt] = field(default_factory=dict)


class NoiseMechanism(ABC):
    """The noise of a batch of trials over all rounds.

    Attributes:
        title: name of the mechanism in a sentence.
        failing: why it never gives a guarantee of differential privacy, "" where it may.
        own_law: whether adversaries need its likelihood ratios (`Noised.learnt`): no Gaussian.
        by_candidate: whether clients send a sum for every candidate of privacy.pac-prior, and the
            noise is scaled to privacy.mutual-information instead of a sensitivity.
        columns: names of further values in `learnt`, all not negative.
    """

    title: ClassVar[str]
    failing: ClassVar[str] = ""
    own_law: ClassVar[bool] = False
    by_candidate: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, trials: Trials) -> None:
        self.trials = trials

    @abstractmethod
    def add(self, summed: Summed) -> Noised:
        """Return a round's sum with noise; may change `summed.total` in place."""
