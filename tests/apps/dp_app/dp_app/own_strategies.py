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


class PartlySameNoise(OwnClipping):
    """Adds noise of the right size, most of it the same in every round."""

    kept: Update | None = None

    def released(self, updates: list[Update]) -> Update:
        """Return the mean with noise of which nine tenths were seen before."""
        std = self.noise_multiplier * self.norm / len(updates)

        def noise() -> Update:
            return {name: np.random.normal(0, std, part.shape) for name, part in self.model.items()}  # noqa: NPY002

        self.kept, fresh = self.kept or noise(), noise()
        clipped = [self.clipped(update) for update in updates]
        return {
            name: np.mean([each[name] for each in clipped], axis=0)
            + np.sqrt(0.9) * self.kept[name]
            + np.sqrt(0.1) * fresh[name]
            for name in self.model
        }


class ServerRate(OwnClipping):
    """Moves the model by a share of what was released: a learning rate, which costs no privacy."""

    rate = 0.9

    def step(self, released: Update) -> Update:
        """Return the share."""
        return {name: self.rate * part for name, part in released.items()}


class PerLayer(OwnClipping):
    """Clips each of L arrays to C / sqrt(L), so that the whole update is no longer than C."""

    def clipped(self, update: Update) -> Update:
        """Return an update of length C at most."""
        norm = self.norm / np.sqrt(len(update))
        return {
            name: part * min(1.0, norm / max(np.linalg.norm(part), 1e-12))
            for name, part in update.items()
        }


class Adaptive(OwnClipping):
    """Moves C to the median length by a noisy count (Andrew et al., 2021), and clips to it."""

    def released(self, updates: list[Update]) -> Update:
        """Return the noisy mean; the next C follows a count with noise of its own."""
        short = sum(_length(update) <= self.norm for update in updates)
        noisy = short + np.random.normal(0, 4 * self.noise_multiplier)  # noqa: NPY002
        released = super().released(updates)
        self.norm *= float(np.exp(-0.2 * np.clip(noisy / len(updates) - 0.5, -1, 1)))
        return released


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
    "own-partly-same-noise": PartlySameNoise,
    "own-server-rate": ServerRate,
    "own-per-layer": PerLayer,
    "own-adaptive": Adaptive,
    "own-adam": AdamAfterNoise,
}
"""By the name of the variant."""


def _length(update: Update) -> float:
    return float(np.sqrt(sum(np.sum(np.square(part)) for part in update.values())))
