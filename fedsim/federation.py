"""What a process knows of a federation before the first message: data, owners, model.

Nothing here knows Flower. In a simulation every process can read the whole dataset, but an owner
takes only its own records out of it, and the adversary those that its background knowledge covers.
"""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedsim import data, device, models
from fedsim.clipping import Clipper
from fedsim.config import Config
from fedsim.partition import partition


@dataclass(frozen=True)
class Federation:
    """The records of D and who holds them; the model that all owners train."""

    split: data.Split
    owner_of: npt.NDArray[np.int64]
    model: nn.Module
    clipper: Clipper
    device: torch.device

    def members(self, positions: npt.NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        """Return features and labels of the records of D at `positions`, on the device."""
        return self._tensors(self.split.members_records.take(positions))

    def pool(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Return features and labels of the records of the pool at `positions`, on the device."""
        return self._tensors(self.split.pool_records.take(np.asarray(positions, dtype=np.intp)))

    def held_out(self) -> tuple[Tensor, Tensor]:
        """Return features and labels of the records that nobody trains on, on the device."""
        return self._tensors(self.split.held_out_records)

    def owned_by(self, owner: int) -> npt.NDArray[np.intp]:
        """Return the positions in D of an owner's records."""
        return np.flatnonzero(self.owner_of == owner)

    def _tensors(self, records: data.Records) -> tuple[Tensor, Tensor]:
        # The arrays are shared and read-only; torch wants a copy of its own.
        features, labels = torch.tensor(records.features), torch.tensor(records.labels)
        return features.to(self.device), labels.to(self.device)


def build_model(config: Config, dataset: data.Dataset) -> nn.Module:
    """Return the configured network for the records of a dataset. Raises InputError."""
    shape, model = dataset.train.features.shape[1:], config.model
    return models.build(
        model.name, shape, dataset.classes, model.hidden, model.batch_norm, model.frozen
    )


@lru_cache(maxsize=4)
def load(config: Config) -> Federation:
    """Return the federation that a configuration describes. Raises InputError.

    A pure function of the configuration, cached because a client is called once for each message.
    """
    dataset = data.load(config.data.name, config.data.root)
    split = data.split(
        dataset, config.data.records, config.data.held_out, config.data.pool, config.data.seed
    )
    owner_of = partition(
        split.members_records.labels,
        config.federation.owners,
        config.federation.partition,
        config.federation.dirichlet_alpha,
        config.data.seed,
    )
    where = device.resolve(config.run.device)
    model = models.structural_model(partial(build_model, config, dataset), config.run.seed)
    shape = dataset.train.features.shape[1:]
    models.check_input(model, config.model.name, shape, dataset.classes)
    model = model.to(where)
    workers = device.threads(config.run.threads)
    clipper = Clipper(model, config.training.clipping_norm, workers)
    return Federation(split, owner_of, model, clipper, where)
