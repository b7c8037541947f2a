"""What a noise mechanism does in a round, and what it has to say of itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.privacy.trust.model import Vantage

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

Learnt = Mapping[str, Floats]
"""What an adversary learns from a round, [T] each.

`ratios`: the log-likelihood ratio of D to D'; `sensitivities`: |g - g'|; `noise_stds`;
`present_norms`: |g|; `absent_norms`: |g'|; and the mechanism's own `columns`.
"""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """A batch of T trials, as far as its noise goes.

    Attributes:
        streams: the trial whose random numbers each draws, [T].
        worlds: bool [T], which train on D.
        rounds: how many are planned.
        noise_seed: of the noise; None where it comes from the operating system.
        secret_seed: of what else the experiment draws.
        server_draws: whether the server adds noise; else clients have.
        information: nats that all rounds may tell together, of noise that is shaped by candidates.
        prior: the candidates, "pair" or "halves".
    """

    streams: Sequence[int]
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
            size: of a trial's.
        """
        return gaussian_noise(self.noise_seed, self.streams, round, SERVER, size)


@dataclass(frozen=True)
class Summed:
    """A round's sum without the server's noise.

    Attributes:
        round: its number, from 1.
        total: float64 [T, P]; [T, m, P] of m candidates.
        noise_stds: float64 [T], the nominal noise multiplier times the sensitivity.
        measured: returns what the target's client tells an oracle audit by name: `present` [T, P],
            g; `absent` [T, P], g', under replace; `membership` bool [m], which candidates have it.
    """

    round: int
    total: Floats
    noise_stds: Floats
    measured: Callable[[], Mapping[str, npt.NDArray[Any]]]


@dataclass(frozen=True)
class Noised:
    """What a round releases.

    Attributes:
        total: float64 [T, P].
        noise: float64 [T, P], what the server drew of it; None for none, or if `learnt` is said.
        learnt: by vantage, what an adversary learns where the noise has a law of its own.
    """

    total: Floats
    noise: Floats | None = None
    learnt: Mapping[Vantage, Learnt] = field(default_factory=dict)


class NoiseMechanism(ABC):
    """The noise of a batch of trials, from its first round on.

    The ledger charges every round as one of Gaussian noise of `noise_stds`: a mechanism without a
    `failing` must be at least as private as that.

    Attributes:
        title: what a sentence calls it.
        failing: why it gives nobody a guarantee of differential privacy, "" where it may.
        own_law: whether what adversaries learn takes its own likelihood ratios (`Noised.learnt`),
            from what an oracle audit measures: the release is not a sum with Gaussian noise.
        by_candidate: whether clients send a sum for every candidate of privacy.pac-prior, and the
            noise is scaled to privacy.mutual-information: no multiple of a sensitivity.
        columns: what `learnt` has besides, all not negative.
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
        """Return a round's sum with its noise; may change `summed.total` in place."""
