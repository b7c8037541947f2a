"""Trainings on the source's data sets, with or without noise."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from fedsim import configuration
from fedsim.commands.run import Run, load
from fedsim.configuration import Config, Scalar
from fedsim.configuration.objects import GameRules
from fedsim.experiment import in_process, prepare
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy import calibration
from papers.findings import Means

EPSILON, DELTA = 2.0, 1e-5
"""Target epsilon of the noise's calibration, and delta of all experiments."""

TRIALS = {"smoke": 2, "full": 4}

SMOKE: Mapping[str, Scalar] = {
    "data.name": "digits",
    "data.root": "",
    "data.records": 300,
    "data.held-out": 200,
    "training.rounds": 6,
    "training.sampling-rate": 0.2,
    "audit.bayesian-pairs": 16,
    "model.name": "mlp",
}


@dataclass(frozen=True)
class TriastcynSetting:
    """The training on a data set: |D|, q, and clipping norms, each with its learning rate."""

    title: str
    records: int
    held_out: int
    rate: float
    steps: tuple[tuple[float, float], ...]
    model: str = "mlp"


IMAGES = ((1.0, 2.0), (30.0, 0.1))
"""C and the learning rate of images: short, and longer than nearly all gradients."""

SETTINGS = {
    "mnist": TriastcynSetting("MNIST", 20_000, 2_000, 0.0128, IMAGES),
    "fashion-mnist": TriastcynSetting("Fashion-MNIST", 20_000, 2_000, 0.0128, IMAGES),
    "cifar-10": TriastcynSetting("CIFAR-10", 20_000, 2_000, 0.0064, IMAGES),
    "adult": TriastcynSetting("Adult", 20_000, 2_000, 0.0128, ((1.0, 1.0), (10.0, 0.2))),
    "abalone": TriastcynSetting("Abalone", 3_000, 1_000, 0.05, ((1.0, 1.0), (10.0, 0.2))),
}


def configured(means: Means, data: str, changes: Mapping[str, Scalar]) -> Config:
    setting = SETTINGS[data]
    values: dict[str, Scalar] = {
        "data.name": data,
        "data.records": setting.records,
        "data.held-out": setting.held_out,
        "data.pool": 20,
        "federation.trust": "central",
        "model.name": setting.model,
        "model.hidden": 64,
        "model.weights": "glorot",
        "training.rounds": 100,
        "training.sampling-rate": setting.rate,
        "privacy.neighbouring": "add-remove",
        "privacy.epsilon": EPSILON,
        "privacy.delta": DELTA,
        "trials.count": TRIALS[means.scale],
        "audit.mode": "oracle",
        "audit.attacks": "none",
        "audit.evaluated-trials": TRIALS[means.scale],
        "audit.bayesian-pairs": 128,
    }
    where = dict(SMOKE)
    if not means.smoke:
        where = {"data.root": str(means.data(data)), "data.download": means.download}
    return configuration.from_run_config(values | dict(changes) | where)


def play(means: Means, data: str, norm: float, rate: float) -> Run:
    """Return a run with noise; an earlier run is continued."""
    name = f"{means.scale}-triastcyn-{data}-{norm:g}"
    changes: dict[str, Scalar] = {
        "training.clipping-norm": norm,
        "training.learning-rate": rate,
        "run.out": str(means.folder / "runs" / name),
    }
    config = configured(means, data, changes)
    means.say(f"{config.trials.count} trainings of {name}")
    return load(in_process(prepare(config), Console(quiet=True)).path)


def trained(rules: GameRules, loaded: Federation, multiplier: float = 0.0) -> Tensor:
    """Return the models [T, P] after the configured rounds; the noise is over the clipping norm.

    All trials take the same sample in a round, and differ by their first models and their noise.
    """
    theta = federation.initial_parameters(rules, loaded, range(rules.scheme.trial_count))
    theta, draw = theta.to(loaded.device), np.random.default_rng(rules.seed)
    optimizer = ServerOptimizer(rules.scheme.training, rules.scheme.participation.divisor)
    for round in range(1, rules.scheme.training.rounds + 1):
        taken = draw.random(rules.scheme.records) < rules.scheme.training.sampling_rate
        total = loaded.clipped_sum(theta, np.flatnonzero(taken))
        if multiplier:
            noise = torch.from_numpy(draw.standard_normal(tuple(theta.shape))).to(total.device)
            total = total + multiplier * rules.scheme.training.clipping_norm * noise
        theta = optimizer.step(theta, total.float(), round)
    return theta


def multiplier(rounds: int, sampling_rate: float) -> float:
    """Return the noise over the clipping norm with which the rounds have `EPSILON` at `DELTA`."""
    wanted = calibration.epsilon_at_most(EPSILON, DELTA)
    return calibration.noise_multiplier(wanted, rounds, sampling_rate)
