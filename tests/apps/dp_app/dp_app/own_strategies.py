"""Strategies of somebody's own, which clip and add noise by their own code: honest, but for one."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

Update = dict[str, np.ndarray]


class OwnClipping(FedAvg):
    """Releases the mean of n updates, each clipped to C as a whole, plus N(0, (z C / n)^2)."""

    def __init__(self, clipping_norm: float, noise_multiplier: float, **options: Any) -> None:
        super().__init__(**options)
        self.norm, self.noise_multiplier = clipping_norm, noise_multiplier
        self.model: Update = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Keep the model, to tell updates from models."""
        self.model = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Return the next model."""
        updates = []
        for reply in replies:
            (sent,) = reply.content.array_records.values()
            updates.append({name: sent[name].numpy() - self.model[name] for name in self.model})
        step = self.step(self.released(updates))
        moved = {name: Array((self.model[name] + step[name]).astype(np.float32)) for name in step}
        return ArrayRecord(moved), MetricRecord()

    def released(self, updates: list[Update]) -> Update:
        """Return the noisy mean."""
        clipped = [self.clipped(update) for update in updates]
        std = self.noise_multiplier * self.norm / len(updates)
        mean = {name: np.mean([each[name] for each in clipped], axis=0) for name in self.model}
        # NumPy's global generator, as Flower's own wrappers.
        return {name: part + np.random.normal(0, std, part.shape) for name, part in mean.items()}  # noqa: NPY002

    def clipped(self, update: Update) -> Update:
        """Return an update of length C at most."""
        share = min(1.0, self.norm / _length(update))
        return {name: part * share for name, part in update.items()}

    def step(self, released: Update) -> Update:
        """Return how the model moves, by what was released alone."""
        return released


class Quiet(OwnClipping):
    """Adds a tenth of the noise that it is configured with."""

    def released(self, updates: list[Update]) -> Update:
        """Return the mean with too little noise."""
        self.noise_multiplier /= 10
        try:
            return super().released(updates)
        finally:
            self.noise_multiplier *= 10


class SameSeed(OwnClipping):
    """Draws the same noise in every round."""

    def released(self, updates: list[Update]) -> Update:
        """Return the mean with noise that everybody saw before."""
        np.random.seed(7)  # noqa: NPY002  (the mistake itself)
        return super().released(updates)


class AdamAfterNoise(OwnClipping):
    """Takes an Adam step by the noisy mean, which nothing private enters."""

    def __init__(self, *arguments: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.first: Update = {}
        self.second: Update = {}

    def step(self, released: Update) -> Update:
        """Return Adam's step."""
        found = {}
        for name, part in released.items():
            self.first[name] = 0.9 * self.first.get(name, 0.0) + 0.1 * part
            self.second[name] = 0.99 * self.second.get(name, 0.0) + 0.01 * part**2
            found[name] = 0.05 * self.first[name] / (np.sqrt(self.second[name]) + 1e-3)
        return found


OWN = {
    "own-clipping": OwnClipping,
    "own-quiet": Quiet,
    "own-same-seed": SameSeed,
    "own-adam": AdamAfterNoise,
}
"""By the name of the variant."""


def _length(update: Update) -> float:
    return float(np.sqrt(sum(np.sum(np.square(part)) for part in update.values())))
