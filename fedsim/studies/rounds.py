"""The rounds of a study: many trainings on D in one process, step by step as in a run.

A study watches trainings and asks what their releases tell. All studies share this loop: first
models, coins, clipping, noise and steps are those of `fedsim run` with the same seed, up to the
rounding of float64 sums, because the clients' sums are one sum here. Distributed trust also rounds
its sums to integers in a run, which a study leaves out. Studies differ in `release`: it sees a
round before its step, and returns the sum that the server releases.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from fedsim.common.device import single_threaded_kernels
from fedsim.common.randomness import SERVER
from fedsim.configuration import Config
from fedsim.configuration.needs import as_toml
from fedsim.game import federation
from fedsim.game.client import noise
from fedsim.game.federation import Federation
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.mechanism import aggregate_noise_multiplier, sensitivity

Progress = Callable[[float], None]

MEMBERSHIP, RECONSTRUCT = "membership inference", "reconstruction"
SENSITIVITY = "a study of sensitivity"
ALL = (MEMBERSHIP, RECONSTRUCT, SENSITIVITY)


@dataclass(frozen=True)
class Playable:
    """The values of a key that some studies can play; they refuse any other value.

    Attributes:
        values: the first is advised.
        why: a sentence on what the studies do.
    """

    values: tuple[str | float, ...]
    why: str
    studies: tuple[str, ...] = ALL


_ONE_STEP = "Clients take one step a round in this study."
_NONE_MISSING = "All clients take part in every round of this study."
_ONE_ADVERSARY = "The adversary of this study is one curious participant."

UNPLAYED = {
    "privacy.unit": Playable(("record",), "This study is about single records."),
    "privacy.stop-at": Playable(
        (0.0,), "This study trains in all rounds, and a budget may end a training earlier."
    ),
    "privacy.sensitivity": Playable(
        ("global",), "The noise of this study protects every record.", (MEMBERSHIP, RECONSTRUCT)
    ),
    "training.clipping": Playable(
        (True,), "This study needs clipped gradients.", (RECONSTRUCT, SENSITIVITY)
    ),
    "training.sampling-rate": Playable((1.0,), "This study measures full batches.", (SENSITIVITY,)),
    "training.local-steps": Playable((1,), _ONE_STEP),
    "training.local-learning-rate": Playable((0.0,), _ONE_STEP),
    "training.local-epochs": Playable((1,), _ONE_STEP),
    "training.batch-size": Playable((0,), _ONE_STEP),
    "federation.sampling-rate": Playable((1.0,), _NONE_MISSING),
    "federation.dropout-rate": Playable((0.0,), _NONE_MISSING),
    "federation.tolerated-dropouts": Playable((0,), _NONE_MISSING),
    "federation.vantage": Playable(("participant",), _ONE_ADVERSARY, (RECONSTRUCT,)),
    "federation.colluding": Playable((0,), _ONE_ADVERSARY, (RECONSTRUCT,)),
    "challenge.kind": Playable(("record",), "This study uses the records of the data alone."),
    "canaries.count": Playable((0,), "This study plants no canaries."),
    "model.task": Playable(
        ("classification",), "The attacks of this study compare classes.", (MEMBERSHIP,)
    ),
    "model.initialisation": Playable(
        ("random", "fixed"),
        "A worst-case first model has seen every record of D, so membership has no meaning.",
        (MEMBERSHIP,),
    ),
}
"""The keys of which a study cannot play every value."""


def refuse_unplayed(config: Config, study: str) -> None:
    """Raise InputError for the first key whose value a study cannot play."""
    for key, playable in UNPLAYED.items():
        table, name = key.replace("-", "_").split(".")
        value = getattr(getattr(config, table), name)
        if study in playable.studies and value not in playable.values:
            written = as_toml(str(value) if isinstance(value, str) else value)
            raise InputError(
                f"{key} is {written}, which {study} cannot play. {playable.why} Set "
                f"{key} = {as_toml(playable.values[0])}."
            )


@dataclass(frozen=True, eq=False)
class Round:
    """One round of T trainings, before its step.

    Attributes:
        trials: numbers of the trainings.
        number: from 1.
        theta: float32 [T, P], the models from which it starts.
    """

    config: Config
    loaded: Federation
    trials: range
    number: int
    theta: Tensor

    @property
    def rows(self) -> slice:
        """The rows of these trainings in an array of all trainings."""
        return slice(self.trials.start, self.trials.stop)

    @cached_property
    def coins(self) -> Bools | None:
        """Which records of D are sampled, bool [T, n]; None if all are."""
        rule = self.config.participation
        return rule.coins(self.trials, self.number, 1, -1, self.loaded.client_of)

    @property
    def bound(self) -> float:
        """The largest change of a sum that one record can cause: C, or 2C under replace."""
        config = self.config
        return sensitivity(config.privacy.neighbouring, config.training.clipping_norm)

    def clean_sum(self, without: int | None = None, included: Bools | None = None) -> Tensor:
        """Return the sum of the sampled records' clipped gradients, float64 [T, P].

        Args:
            without: position of a record that is left out of every training.
            included: bool [T, n], the records that each training has; None for all.
        """
        positions = np.arange(self.config.data.records)
        if without is not None:
            positions = np.delete(positions, without)
        taking_part = self.coins
        if included is not None:
            taking_part = included if taking_part is None else included & taking_part
        weights = None if taking_part is None else torch.from_numpy(taking_part)
        on = None if weights is None else weights.to(self.theta.device)
        return self.loaded.clipped_sum(self.theta, positions, on)

    def noise(self, nominal: float, scale: Floats | None = None) -> Tensor:
        """Return the noise of a round, of the server or of all clients together, float64 [T, P].

        Args:
            nominal: noise multiplier.
            scale: float64 [T], sensitivity that scales the noise; None for `bound`.
        """
        federation = self.config.federation
        trust, m = federation.trust, federation.clients
        each = aggregate_noise_multiplier(nominal, trust, m, 1)
        scale = np.full(len(self.trials), self.bound) if scale is None else scale
        sources = [SERVER] if trust.model.server_draws else range(m)
        return sum((self.drawn(each * scale, source) for source in sources), torch.zeros(()))

    def drawn(self, std: Floats | float, source: int) -> Tensor:
        """Return the noise of one source of the seed tree, float64 [T, P]; std: [T]."""
        stds = torch.from_numpy(np.broadcast_to(np.float64(std), len(self.trials)).copy())
        step = self.config.participation.step_number(self.number, 1)
        size, on = self.theta.shape[1], self.theta.device
        return noise(self.config.noise_seed, self.trials, step, source, stds.to(on), size)


Release = Callable[[Round], Tensor]
"""Sees a round, and returns its released sum, float64 [T, P]."""


def trained(
    config: Config,
    loaded: Federation,
    count: int,
    batch: int,
    release: Release,
    expected: float = 1.0,
    progress: Progress | None = None,
) -> Iterator[Tensor]:
    """Train `count` trainings, and yield the final models of each batch, float32 [T, P].

    A training's numbers depend only on the seed and its number, up to rounding.

    Args:
        batch: number of trainings at a time, which bounds the memory of their gradients.
        expected: expected share of the records in a training, which scales its steps.
        progress: receives the share of the work that is done.

    Raises:
        InputError: a model diverged.
    """
    if loaded.device.type == "cpu":
        single_threaded_kernels()
    training = config.training
    for first in range(0, count, batch):
        trials = range(first, min(first + batch, count))
        theta = federation.initial_parameters(config, loaded, trials).to(loaded.device)
        optimizer = ServerOptimizer(training, config.participation.divisor * expected)
        for number in range(1, training.rounds + 1):
            try:
                total = release(Round(config, loaded, trials, number, theta))
            except FloatingPointError as error:  # the model diverged
                raise InputError(str(error)) from None
            theta = optimizer.step(theta, total.float(), number)  # a run broadcasts float32, too
            if progress is not None:
                progress((first + len(trials) * number / training.rounds) / count)
        yield theta
