"""Released models of one cell, on D and on its poisoned neighbours: all of a world on one axis."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from adversaries.attacks.poisoning import per_record
from adversaries.statistics.lower_bounds import clopper_pearson_split
from fedsim.common import private_files
from fedsim.learning.training.clipping import Clipper
from fedsim.privacy.pac import Floats
from fedsim.studies.reproduction.findings import Means
from fedsim.studies.reproduction.jagielski.setting import ATTACKS, SEED, Poison, Setting

BLOCK = 250
"""Trainings at once, which bounds memory."""

CONFIDENCE = 0.99

SPREAD = 40
"""Bootstrap samples of the trainings, for how far a bound varies."""


@dataclass(frozen=True)
class Cell:
    """One choice of everything that a training depends on.

    Attributes:
        initialisation: a key of `INITIALISATIONS`.
        attack: a key of `ATTACKS`.
    """

    initialisation: str
    clipping_norm: float
    noise_multiplier: float
    attack: str = "ClipBKD"


@dataclass(frozen=True, eq=False)
class Played:
    """What an adversary sees of a cell.

    Attributes:
        clean: scores of models that were trained on D, [T].
        poisoned: of those with k poisoned records, [T] each, by k.
    """

    clean: Floats
    poisoned: Mapping[int, Floats]
    accuracy: float

    def bound(self, copies: int, confidence: float) -> float:
        """Return epsilon of one record, at least."""
        return _bound(self.clean, self.poisoned[copies], copies, confidence)

    def best(self, paid: bool) -> float:
        """Return the largest bound over k.

        Args:
            paid: whether all of them hold together with the confidence, or each alone, as the
                source has it.
        """
        missed = (1 - CONFIDENCE) / (len(self.poisoned) if paid else 1)
        return max(self.bound(copies, 1 - missed) for copies in self.poisoned)

    def spread(self) -> tuple[float, float]:
        """Return the range of 95 % of the largest bound over bootstrap samples of trainings."""
        draw, found = np.random.default_rng(SEED), []
        for _ in range(SPREAD):
            clean, *others = (
                scores[draw.integers(0, len(scores), len(scores))]
                for scores in (self.clean, *self.poisoned.values())
            )
            again = Played(clean, dict(zip(self.poisoned, others, strict=True)), self.accuracy)
            found.append(again.best(paid=False))
        low, high = np.quantile(found, (0.025, 0.975))
        return float(low), float(high)


def play(means: Means, setting: Setting, cell: Cell) -> Played:
    """Return the scores of a cell, which are kept once they are there."""
    copies = setting.size.copies
    asked = json.dumps([asdict(setting.size), asdict(cell), means.scale.value], sort_keys=True)
    name = hashlib.sha256(asked.encode()).hexdigest()[:16]
    path = means.folder / "runs" / f"jagielski-{name}.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as kept:
            poisoned = {k: np.asarray(kept[f"poisoned_{k}"]) for k in copies}
            return Played(np.asarray(kept["clean"]), poisoned, float(kept["accuracy"]))
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
    return Played(clean, poisoned, accuracy)


def _trained(setting: Setting, cell: Cell, poison: Poison, copies: int) -> Tensor:
    """Return released models [T, P] of trainings with k poisoned records, on the CPU."""
    count = setting.size.trainings
    starts = range(0, count, BLOCK)
    parts = [
        _block(setting, cell, poison, copies, range(at, min(at + BLOCK, count))) for at in starts
    ]
    return torch.cat(parts)


def _block(setting: Setting, cell: Cell, poison: Poison, copies: int, trainings: range) -> Tensor:
    size, device = setting.size, "cuda" if torch.cuda.is_available() else "cpu"
    # No training shares a coin with another, of its own world or of the other's.
    seeds = np.random.SeedSequence([SEED, copies, trainings.start]).generate_state(2)
    draw = torch.Generator(device).manual_seed(int(seeds[0]))
    start = torch.Generator().manual_seed(int(seeds[1]))
    features = torch.cat([setting.features, poison.features]).to(device)
    labels = torch.cat([setting.labels, poison.labels]).to(device)
    clipper = Clipper(setting.structure.to(device), cell.clipping_norm)
    theta = setting.first(cell.initialisation, len(trainings), start).to(device)
    deviation = cell.noise_multiplier * cell.clipping_norm
    for _ in range(size.steps):
        weights = _sample(size.rate, len(trainings), size.records, poison, copies, draw)
        total = clipper.clipped_sum(theta, features, labels, weights).float()
        if deviation:
            total += deviation * torch.randn(theta.shape, generator=draw, device=device)
        theta -= size.learning_rate / size.batch * total
    setting.structure.cpu()
    return theta.cpu()


def _sample(
    rate: float, trainings: int, records: int, poison: Poison, copies: int, draw: torch.Generator
) -> Tensor:
    """Return how often each record of D, then of the poison, is in a batch, [T, N + e].

    The first k records of D have made room: their coins are those of the poisoned ones.
    """
    coins = torch.rand(trainings, records, generator=draw, device=draw.device) < rate
    weights = torch.zeros(trainings, records + len(poison.labels), device=draw.device)
    weights[:, :records] = coins.float()
    if copies:
        weights[:, :copies] = 0
        taken = coins[:, :copies].float()
        if poison.copied:
            weights[:, records] = taken.sum(1)
        else:
            weights[:, records : records + copies] = taken
    return weights


def _bound(clean: Floats, poisoned: Floats, copies: int, confidence: float) -> float:
    """Return what scores of both worlds prove of one record at delta = 0 (Algorithm 2)."""
    worlds = np.repeat([True, False], [len(poisoned), len(clean)])
    scores = np.concatenate([poisoned, clean])
    found = per_record(clopper_pearson_split(worlds, scores, 0.0, confidence), copies)
    return found.epsilon
