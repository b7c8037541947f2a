"""What a model learns under differential privacy: by default, tuned, by Opacus, without noise.

Every training of one setting starts from the same first models and adds the same noise multiplier.
Tuned settings are chosen by their accuracy on the very records on which all are compared, which
flatters them: a default that comes near has nothing left to gain.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy import stats
from tables import Table
from torch import Tensor, nn

from fedsim.configuration import TrainingConfig
from fedsim.learning import data
from fedsim.learning.training import evaluation, models, quality
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.calibration import epsilon_at_most, noise_multiplier

ROUNDS = 30
RATES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Learning rates of SGD that are tried."""

ADAM_RATES = (0.01, 0.03, 0.1, 0.3)
"""Learning rates of Adam that are tried."""

TUNED_ON = 5
"""The first so many seeds, on which a setting is chosen."""


@dataclass(frozen=True)
class Records:
    """Records to train on, and others to judge a model by. Features [n, *shape], labels [n]."""

    name: str
    network: str
    classes: int
    features: Tensor
    labels: Tensor
    unseen: Tensor
    answers: Tensor


@dataclass(frozen=True)
class Setting:
    """What all trainings of one row have in common. first: [T, P], the models they start from."""

    records: Records
    model: nn.Module
    first: Tensor
    noise_multiplier: float
    rounds: int


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a row for each data set and epsilon."""
    seeds, rounds = (3, 3) if smoke else (20, ROUNDS)
    names = ["digits", "breast-cancer"]
    if data_root is not None and not smoke:
        names += ["adult", "mnist", "fashion-mnist"]
    rows = []
    for name in names:
        records = _records(name, data_root)
        model = models.build(
            records.network, tuple(records.features.shape[1:]), records.classes, 32
        )
        first = torch.stack([_first(records, seed) for seed in range(seeds)])
        for epsilon in (8.0,) if smoke else (1.0, 2.0, 8.0):
            needed = epsilon_at_most(epsilon, 1e-5)
            setting = Setting(records, model, first, noise_multiplier(needed, rounds), rounds)
            rows += _compared(setting, f"{epsilon:g}")
        rows += [_row(records, "∞", "no noise, no clipping", *_bare(records, model, first, rounds))]
    yield Table(
        "Accuracy on records that no training saw",
        (
            *("records", "ε", "training", "accuracy", "below the best tuned, paired"),
            *("AUC", "least recall of a class"),
        ),
        rows,
        f"{seeds} trainings of {rounds} rounds each over all records, clipping norm 1, δ = 1e-5, "
        "central noise. ±: 95% intervals (Student's t) of the mean. Tuned: the best of "
        f"{len(RATES)} learning rates of SGD and {len(ADAM_RATES)} of Adam on the linear schedule "
        f"(Opacus: constant), by the accuracy of {TUNED_ON} trainings on the records of the table.",
    )


def _records(name: str, data_root: Path | None) -> Records:
    network, most, unseen = {
        "digits": ("mlp", 1200, 597),
        "breast-cancer": ("linear", 400, 169),
        "adult": ("mlp", 6000, 5000),
        "mnist": ("mlp", 3000, 2000),
        "fashion-mnist": ("mlp", 3000, 2000),
    }[name]
    root = "" if data_root is None or name in data.BUNDLED else str(data_root / name)
    found = data.load(name, root)
    order = np.random.default_rng(7).permutation(len(found.train.labels))[: most + unseen]
    features = torch.from_numpy(found.train.features[order])
    labels = torch.from_numpy(found.train.labels[order])
    parts = features[:most], labels[:most], features[most:], labels[most:]
    return Records(name, network, found.classes, *parts)


def _first(records: Records, seed: int) -> Tensor:
    torch.manual_seed(seed)
    shape = tuple(records.features.shape[1:])
    return models.flatten(models.build(records.network, shape, records.classes, 32))


def _compared(setting: Setting, epsilon: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one data set and epsilon."""
    default = TrainingConfig(optimizer="normalized", schedule="linear", rounds=setting.rounds)
    tried = {
        "fedsim, tuned": [
            partial(_federation, _stepping(optimizer, rate, setting.rounds))
            for optimizer, rates in (("sgd", RATES), ("adam", ADAM_RATES))
            for rate in rates
        ],
        "Opacus, tuned": [
            partial(_opacus, kind, rate)
            for kind, rates in ((torch.optim.SGD, RATES), (torch.optim.Adam, ADAM_RATES))
            for rate in rates
        ],
    }
    found = {"fedsim, default": _federation(default, setting)}
    found |= {name: _best(each, setting) for name, each in tried.items()}
    right = {name: _accuracies(setting.records, each) for name, each in found.items()}
    best = max((right[name] for name in tried), key=np.mean)
    for name, trained in found.items():
        yield _row(setting.records, epsilon, name, trained, best - right[name])


def _stepping(optimizer: str, rate: float, rounds: int) -> TrainingConfig:
    return TrainingConfig(optimizer=optimizer, learning_rate=rate, schedule="linear", rounds=rounds)


def _best(tried: list[Callable[[Setting], Tensor]], setting: Setting) -> Tensor:
    few = Setting(**(vars(setting) | {"first": setting.first[:TUNED_ON]}))
    means = [_accuracies(setting.records, each(few)).mean() for each in tried]
    return tried[int(np.argmax(means))](setting)


def _federation(training: TrainingConfig, setting: Setting) -> Tensor:
    """Return the final models [T, P] of the server's steps over the noisy clipped sum."""
    records, generator = setting.records, torch.Generator().manual_seed(5)
    clipper = Clipper(setting.model, training.clipping_norm, threads=1)
    optimizer, now = ServerOptimizer(training, len(records.labels)), setting.first
    for round in range(1, setting.rounds + 1):
        total = clipper.clipped_sum(now, records.features, records.labels).double()
        noise = torch.randn(total.shape, generator=generator, dtype=torch.float64)
        now = optimizer.step(now, total + setting.noise_multiplier * noise, round)
    return now


def _opacus(kind: type[torch.optim.Optimizer], rate: float, setting: Setting) -> Tensor:
    """Return the final models [T, P] of Opacus on the same records and noise multiplier."""
    records, final = setting.records, []
    for seed, first in enumerate(setting.first):
        shape = tuple(records.features.shape[1:])
        network = models.build(records.network, shape, records.classes, 32)
        # A copy: the parameters become views of it, and training changes them in place.
        nn.utils.vector_to_parameters(first.clone(), network.parameters())
        model = GradSampleModule(network, loss_reduction="mean")
        optimizer = DPOptimizer(
            kind(model.parameters(), lr=rate),  # type: ignore[call-arg]
            noise_multiplier=setting.noise_multiplier,
            max_grad_norm=1.0,
            expected_batch_size=len(records.labels),
            generator=torch.Generator().manual_seed(seed),
        )
        for _ in range(setting.rounds):
            optimizer.zero_grad()
            features = records.features.clone().requires_grad_()
            nn.functional.cross_entropy(model(features), records.labels).backward()
            optimizer.step()
        final.append(nn.utils.parameters_to_vector(network.parameters()).detach())
    return torch.stack(final)


def _bare(
    records: Records, model: nn.Module, first: Tensor, rounds: int
) -> tuple[Tensor, np.ndarray]:
    """Return models of the same rounds without noise or clipping, and the records' own best."""
    setting = Setting(records, model, first, 0.0, rounds)
    tried = [
        partial(
            _federation,
            TrainingConfig(
                optimizer="adam",
                learning_rate=rate,
                rounds=rounds,
                clipping_norm=1e6,
                schedule="linear",
            ),
        )
        for rate in ADAM_RATES
    ]
    trained = _best(tried, setting)
    return trained, np.zeros(len(first))


def _accuracies(records: Records, trained: Tensor) -> np.ndarray:
    _, right = _judged(records, trained)
    return right.double().mean(1).numpy()


def _judged(records: Records, trained: Tensor) -> tuple[Tensor, Tensor]:
    return evaluation.evaluate(_network(records), trained, records.unseen, records.answers)


def _network(records: Records) -> nn.Module:
    shape = tuple(records.features.shape[1:])
    return models.build(records.network, shape, records.classes, 32)


def _row(
    records: Records, epsilon: str, name: str, trained: Tensor, below: np.ndarray
) -> tuple[str, ...]:
    _, right = _judged(records, trained)
    outputs = evaluation.outputs(_network(records), trained, records.unseen)
    area = quality.areas_under_curve(outputs, records.answers)
    recalls = torch.stack(
        [right[:, records.answers == label].double().mean(1) for label in records.answers.unique()]
    )
    return (
        records.name,
        epsilon,
        name,
        _mean(right.double().mean(1).numpy()),
        "" if not below.any() else _mean(below),
        "" if area is None else _mean(area.numpy(), percent=False),
        _mean(recalls.min(0).values.numpy()),
    )


def _mean(values: np.ndarray, percent: bool = True) -> str:
    count = len(values)
    half = stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count)
    return f"{values.mean():.1%} ± {half:.1%}" if percent else f"{values.mean():.3f} ± {half:.3f}"
