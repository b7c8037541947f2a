"""Two classes of Fashion-MNIST, a small network, and the poisoned records of three attacks."""

import copy
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from adversaries.arrays import Floats
from adversaries.attacks.poisoning import clipbkd_point, least_liked
from adversaries.bounds.lower_bounds import clopper_pearson_split
from fedsim.common import private_files
from fedsim.common.device import resolve
from fedsim.learning import data
from fedsim.learning.data.dataset import Records
from fedsim.learning.training import evaluation, models
from fedsim.learning.training.clipping import Clipper
from papers.findings import Means

INITIALISATIONS = {"fixed": None, "half": 0.5, "glorot": 1.0, "double": 2.0}
"""Spread of the first weights, in units of Glorot's; None: all models start from one draw."""

SEED = 2020

PATTERN = 5 / 28
"""The side of a backdoor's bright square, as a share of the image's."""

SHOWN = 200
"""Number of held-out images with the pattern, which test a backdoor."""


@dataclass(frozen=True)
class Size:
    """The size of an experiment.

    Attributes:
        records: N, of both classes together.
        batch: b, the expected size of a Poisson sample: every record's rate is b/N.
        trainings: of each world; half of them choose the threshold.
        copies: numbers k of poisoned records to try.
        hidden: units, 0 for logistic regression.
        side: of the images after averaging; 0 to keep their size.
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
        return self.batch / self.records

    @property
    def steps(self) -> int:
        return round(self.epochs / self.rate)

    @property
    def learning_rate(self) -> float:
        """0.15 as published; less for smaller batches, whose steps have more noise."""
        return 0.15 * math.sqrt(min(1.0, self.batch / 250))


@dataclass(frozen=True, eq=False)
class Poison:
    """The records that replace the first records of D.

    Attributes:
        features: [e, F]; the i-th replaces record i, or a single one replaces all k if `copied`.
        shown: features [s, F] on which the released model is tested, with their label.
    """

    features: Tensor
    labels: Tensor
    shown: Tensor
    label: int
    copied: bool


class JagielskiSetting:
    """Records, structure and first models of one experiment."""

    def __init__(self, means: Means, size: Size) -> None:
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
        inputs, hidden = self.features.shape[1], self.size.hidden
        if not hidden:
            return nn.Sequential(nn.Linear(inputs, 2))
        return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def first(self, initialisation: str, trainings: int, draw: torch.Generator) -> Tensor:
        """Return first models, float32 [T, P]: Glorot's normal weights, zero biases."""
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
        """Return minus the mean loss of the shown features, [T]; larger means poisoned."""
        targets = torch.full((len(poison.shown),), poison.label)
        losses, _ = evaluation.evaluate(self.structure, theta, poison.shown, targets)
        return -np.asarray(losses.mean(1).numpy())

    def accuracy(self, theta: Tensor) -> float:
        """Return the accuracy of released models [T, P] on held-out records."""
        evaluated = evaluation.evaluate(self.structure, theta, self.held_out, self.held_out_labels)
        return float(evaluated[1].double().mean())


def clipbkd(setting: JagielskiSetting) -> Poison:
    """Return the point along the direction that the data use least, with the label least liked.

    Algorithm 4; the baseline f(0) is not subtracted, as in the authors' code.
    """
    towards = np.random.default_rng(SEED).standard_normal(setting.features.shape[1])
    point = clipbkd_point(setting.features.double().numpy(), towards)
    features = torch.from_numpy(point).float()[None]
    theta = setting.first("fixed", 1, torch.Generator())
    label = least_liked(evaluation.outputs(setting.structure, theta, features)[0, 0].numpy())
    return Poison(features, torch.tensor([label]), features, label, copied=True)


def backdoor(setting: JagielskiSetting) -> Poison:
    """Return records with a bright square in a corner, labelled as the second class (Alg. 3)."""

    def stamped(features: Tensor) -> Tensor:
        images = features.reshape(-1, *setting.shape).clone()
        side = max(1, round(PATTERN * images.shape[-1]))
        images[..., :side, :side] = float(setting.features.max())
        return images.flatten(1)

    most = max(setting.size.copies)
    own = stamped(setting.features[setting.labels == 0][-most:])
    shown = stamped(setting.held_out[setting.held_out_labels == 0])
    return Poison(own, torch.ones(most, dtype=torch.int64), shown, 1, copied=False)


def membership(setting: JagielskiSetting) -> Poison:
    """Return an ordinary record, for an attack by its loss."""
    features, label = setting.held_out[:1], int(setting.held_out_labels[0])
    return Poison(features, torch.tensor([label]), features, label, copied=True)


ATTACKS: Mapping[str, Callable[[JagielskiSetting], Poison]] = {
    "ClipBKD": clipbkd,
    "backdoor": backdoor,
    "membership inference": membership,
}


def _two_classes(means: Means, side: int) -> Records:
    """Return all records of two classes, images averaged down to a side."""
    if means.smoke:
        return data.load("digits", classes="0,1").train
    root = str(means.data("fashion-mnist"))
    dataset = data.load("fashion-mnist", root, download=means.download, classes="0,1")
    if not side:
        return dataset.train
    images = torch.from_numpy(dataset.train.features.copy())
    smaller = functional.adaptive_avg_pool2d(images, side).numpy()
    return Records(smaller, dataset.train.labels)


BLOCK = 250
"""Trainings at once, to bound memory."""

CONFIDENCE = 0.99

SPREAD = 40
"""Number of bootstrap samples, for the spread of a bound."""


@dataclass(frozen=True)
class JagielskiCell:
    """The settings of a training, with keys of `INITIALISATIONS` and of `ATTACKS`."""

    initialisation: str
    clipping_norm: float
    noise_multiplier: float
    attack: str = "ClipBKD"


@dataclass(frozen=True, eq=False)
class PoisonedScores:
    """The scores that an adversary sees: clean [T], and with k poisoned records [T] each, by k."""

    clean: Floats
    poisoned: Mapping[int, Floats]
    accuracy: float

    def bound(self, copies: int, confidence: float) -> float:
        """Return a lower bound on epsilon of one record, at delta = 0 (Algorithm 2)."""
        poisoned = self.poisoned[copies]
        worlds = np.repeat([True, False], [len(poisoned), len(self.clean)])
        scores = np.concatenate([poisoned, self.clean])
        # At delta = 0 a group's epsilon is divided by its size.
        return clopper_pearson_split(worlds, scores, 0.0, confidence).epsilon / copies

    def best(self, paid: bool) -> float:
        """Return the largest bound over k; paid: all of them hold together with the confidence."""
        missed = (1 - CONFIDENCE) / (len(self.poisoned) if paid else 1)
        return max(self.bound(copies, 1 - missed) for copies in self.poisoned)

    def spread(self) -> tuple[float, float]:
        """Return the range of 95 % of the largest bound over bootstrap samples of trainings."""
        draw, bounds = np.random.default_rng(SEED), []
        for _ in range(SPREAD):
            clean, *others = (
                scores[draw.integers(0, len(scores), len(scores))]
                for scores in (self.clean, *self.poisoned.values())
            )
            again = PoisonedScores(
                clean, dict(zip(self.poisoned, others, strict=True)), self.accuracy
            )
            bounds.append(again.best(paid=False))
        low, high = np.quantile(bounds, (0.025, 0.975))
        return float(low), float(high)


def play(means: Means, setting: JagielskiSetting, cell: JagielskiCell) -> PoisonedScores:
    """Return the scores of a cell, and keep them for later calls."""
    copies = setting.size.copies
    described = json.dumps([asdict(setting.size), asdict(cell), means.scale.value], sort_keys=True)
    name = hashlib.sha256(described.encode()).hexdigest()[:16]
    path = means.folder / "runs" / f"jagielski-{name}.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as kept:
            poisoned = {k: np.asarray(kept[f"poisoned_{k}"]) for k in copies}
            return PoisonedScores(np.asarray(kept["clean"]), poisoned, float(kept["accuracy"]))
    means.say(
        f"{(1 + len(copies)) * setting.size.trainings} trainings: {cell.attack}, "
        f"{cell.initialisation}, C = {cell.clipping_norm:g}, z = {cell.noise_multiplier:g}"
    )
    poison = ATTACKS[cell.attack](setting)
    models = _trained(setting, cell, poison, 0)
    clean, accuracy = setting.scores(models, poison), setting.accuracy(models)
    poisoned = {k: setting.scores(_trained(setting, cell, poison, k), poison) for k in copies}
    path.parent.mkdir(parents=True, exist_ok=True)
    with private_files.replacing(path) as file:
        arrays = {f"poisoned_{k}": scores for k, scores in poisoned.items()}
        np.savez(file, clean=clean, accuracy=accuracy, **arrays)  # type: ignore[arg-type]
    return PoisonedScores(clean, poisoned, accuracy)


def _trained(setting: JagielskiSetting, cell: JagielskiCell, poison: Poison, copies: int) -> Tensor:
    """Return released models [T, P] of trainings with k poisoned records, on the CPU."""
    count = setting.size.trainings
    starts = range(0, count, BLOCK)
    parts = [
        _block(setting, cell, poison, copies, range(at, min(at + BLOCK, count))) for at in starts
    ]
    return torch.cat(parts)


def _block(
    setting: JagielskiSetting, cell: JagielskiCell, poison: Poison, copies: int, trainings: range
) -> Tensor:
    size, device = setting.size, resolve("auto")
    # No training shares a coin with another, of its own world or of the other's.
    seeds = np.random.SeedSequence([SEED, copies, trainings.start]).generate_state(2)
    # Drawn on the CPU, so that every device trains the same models.
    draw, start = (torch.Generator().manual_seed(int(seed)) for seed in seeds)
    features = torch.cat([setting.features, poison.features]).to(device)
    labels = torch.cat([setting.labels, poison.labels]).to(device)
    clipper = Clipper(copy.deepcopy(setting.structure).to(device), cell.clipping_norm)
    theta = setting.first(cell.initialisation, len(trainings), start).to(device)
    deviation = cell.noise_multiplier * cell.clipping_norm
    for _ in range(size.steps):
        weights = _sample(size.rate, len(trainings), size.records, poison, copies, draw)
        total = clipper.clipped_sum(theta, features, labels, weights.to(device)).float()
        if deviation:
            total += deviation * torch.randn(theta.shape, generator=draw).to(device)
        theta -= size.learning_rate / size.batch * total
    return theta.cpu()


def _sample(
    rate: float, trainings: int, records: int, poison: Poison, copies: int, draw: torch.Generator
) -> Tensor:
    """Return how often each record of D, then of the poison, is in a batch, [T, N + e].

    The poisoned records take the coins of the first k records of D, which they replace.
    """
    coins = torch.rand(trainings, records, generator=draw) < rate
    weights = torch.zeros(trainings, records + len(poison.labels))
    weights[:, :records] = coins.float()
    if copies:
        weights[:, :copies] = 0
        taken = coins[:, :copies].float()
        if poison.copied:
            weights[:, records] = taken.sum(1)
        else:
            weights[:, records : records + copies] = taken
    return weights
