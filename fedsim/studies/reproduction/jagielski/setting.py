"""Two classes of Fashion-MNIST, a small network, and what three attacks put among the records."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from adversaries.attacks.poisoning import clipbkd_point, least_liked
from fedsim.learning import data
from fedsim.learning.data.loaders.dataset import Records
from fedsim.learning.training import evaluation, models
from fedsim.privacy.pac import Floats
from fedsim.studies.reproduction.findings import Means

INITIALISATIONS: Mapping[str, float | None] = {
    "fixed": None,
    "half": 0.5,
    "glorot": 1.0,
    "double": 2.0,
}
"""How far first weights are drawn, in units of Glorot's spread; None: all start from one draw."""

SEED = 2020

PATTERN = 5 / 28
"""The side of a backdoor's bright square, as a share of the image's."""

SHOWN = 200
"""Held-out images with the pattern that a backdoor is tested on."""


@dataclass(frozen=True)
class Size:
    """How large an experiment is.

    Attributes:
        records: N, of both classes together.
        batch: b, the expected size of a Poisson sample: every record's rate is b/N.
        epochs: of N/b steps each.
        trainings: of each world, half of which choose the threshold.
        copies: the numbers k of poisoned records that are tried.
        hidden: units, 0 for logistic regression.
        side: of the images, which are averaged down to it; 0 as they are.
    """

    records: int = 6000
    batch: int = 250
    epochs: int = 24
    trainings: int = 1000
    copies: tuple[int, ...] = (1, 2, 4, 8)
    hidden: int = 32
    side: int = 0

    @property
    def rate(self) -> float:
        """The sampling rate."""
        return self.batch / self.records

    @property
    def steps(self) -> int:
        """All noisy steps of a training."""
        return round(self.epochs / self.rate)

    @property
    def learning_rate(self) -> float:
        """0.15 as published; less where batches are smaller, and a step has more noise."""
        return 0.15 * math.sqrt(min(1.0, self.batch / 250))


@dataclass(frozen=True, eq=False)
class Poison:
    """What takes the place of the first records of D.

    Attributes:
        features: [e, F], of which the i-th takes the place of record i, or one of all k.
        labels: [e].
        shown: features [s, F] that the released model is tested on.
        label: of what is shown.
        copied: whether one record takes k places.
    """

    features: Tensor
    labels: Tensor
    shown: Tensor
    label: int
    copied: bool


class Setting:
    """Records, structure and first models of one experiment."""

    def __init__(self, means: Means, size: Size) -> None:
        """Read the records."""
        self.size = size
        pool = _two_classes(means, size.side)
        order = np.random.default_rng(SEED).permutation(len(pool))
        chosen = pool.take(order[: size.records])
        self.shape = chosen.features.shape[1:]
        self.features = torch.from_numpy(chosen.features.reshape(len(chosen), -1).copy())
        self.labels = torch.from_numpy(chosen.labels.copy())
        others = pool.take(order[size.records : size.records + SHOWN])
        self.held_out = torch.from_numpy(others.features.reshape(len(others), -1).copy())
        self.held_out_labels = torch.from_numpy(others.labels.copy())

    @cached_property
    def structure(self) -> nn.Module:
        """The network."""
        inputs, hidden = self.features.shape[1], self.size.hidden
        if not hidden:
            return nn.Sequential(nn.Linear(inputs, 2))
        return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def first(self, initialisation: str, trainings: int, draw: torch.Generator) -> Tensor:
        """Return first models, float32 [T, P]: Glorot's normal weights, zero biases.

        Args:
            draw: randomness, not used where all start from one draw.
        """
        scale = INITIALISATIONS[initialisation]
        rows = 1 if scale is None else trainings
        source = torch.Generator().manual_seed(SEED) if scale is None else draw
        parts = []
        for shape in models.parameter_shapes(self.structure).values():
            if len(shape) == 1:
                parts.append(torch.zeros(rows, shape.numel()))
                continue
            spread = math.sqrt(2 / sum(shape)) * (1.0 if scale is None else scale)
            parts.append(spread * torch.randn(rows, shape.numel(), generator=source))
        return torch.cat(parts, dim=1).expand(trainings, -1).clone()

    def scores(self, theta: Tensor, poison: Poison) -> Floats:
        """Return minus the mean loss of what is shown, [T]: larger speaks for poisoned records.

        Args:
            theta: released models [T, P].
        """
        targets = torch.full((len(poison.shown),), poison.label)
        losses, _ = evaluation.evaluate(self.structure, theta, poison.shown, targets)
        return -np.asarray(losses.mean(1).numpy())

    def accuracy(self, theta: Tensor) -> float:
        """Return the accuracy of released models on held-out records.

        Args:
            theta: [T, P].
        """
        found = evaluation.evaluate(self.structure, theta, self.held_out, self.held_out_labels)
        return float(found[1].double().mean())


def clipbkd(setting: Setting) -> Poison:
    """Return the point along the direction that the data use least, with the label least liked.

    Source:
        Algorithm 4; the baseline f(0) is not subtracted, as in the authors' code.
    """
    towards = np.random.default_rng(SEED).standard_normal(setting.features.shape[1])
    point = clipbkd_point(setting.features.double().numpy(), towards)
    features = torch.from_numpy(point).float()[None]
    theta = setting.first("fixed", 1, torch.Generator())
    label = least_liked(evaluation.logits(setting.structure, theta, features)[0, 0].numpy())
    return Poison(features, torch.tensor([label]), features, label, copied=True)


def backdoor(setting: Setting) -> Poison:
    """Return records of the first class with a bright square in a corner, labelled as the second.

    Source:
        Algorithm 3.
    """

    def stamped(features: Tensor) -> Tensor:
        images = features.reshape(-1, *setting.shape).clone()
        side = max(1, round(PATTERN * images.shape[-1]))
        images[..., :side, :side] = float(setting.features.max())
        return images.flatten(1)

    most = max(setting.size.copies)
    own = stamped(setting.features[setting.labels == 0][-most:])
    shown = stamped(setting.held_out[setting.held_out_labels == 0])
    return Poison(own, torch.ones(most, dtype=torch.int64), shown, 1, copied=False)


def membership(setting: Setting) -> Poison:
    """Return an ordinary record, whose loss tells whether it was used."""
    features, label = setting.held_out[:1], int(setting.held_out_labels[0])
    return Poison(features, torch.tensor([label]), features, label, copied=True)


ATTACKS: Mapping[str, Callable[[Setting], Poison]] = {
    "ClipBKD": clipbkd,
    "backdoor": backdoor,
    "membership inference": membership,
}
"""What is put among the records, by name."""


def _two_classes(means: Means, side: int) -> Records:
    """Return all records of two classes, images averaged down to a side."""
    if means.smoke:
        return data.load("digits", classes=("0", "1")).train
    root = str(means.data("fashion-mnist"))
    found = data.load("fashion-mnist", root, download=means.download, classes=("0", "1"))
    if not side:
        return found.train
    images = torch.from_numpy(found.train.features.copy())
    smaller = functional.adaptive_avg_pool2d(images, side).numpy()
    return Records(smaller, found.train.labels)
