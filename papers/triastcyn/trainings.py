"""Trainings on the source's data sets, with or without noise."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedsim import configuration
from fedsim.configuration import Config, Scalar
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
    "model.name": "mlp",
}


def configured(means: Means, changes: Mapping[str, Scalar]) -> Config:
    """Return the configuration of a training on MNIST."""
    values: dict[str, Scalar] = {
        "data.name": "mnist",
        "data.records": 20_000,
        "data.held-out": 2_000,
        "data.pool": 20,
        "federation.trust": "central",
        "model.name": "mlp",
        "model.hidden": 64,
        "model.weights": "glorot",
        "training.rounds": 100,
        "training.sampling-rate": 0.0128,
        "privacy.neighbouring": "add-remove",
        "privacy.epsilon": EPSILON,
        "privacy.delta": DELTA,
        "trials.count": TRIALS[means.scale],
        "audit.mode": "oracle",
        "audit.attacks": "none",
        "audit.evaluated-trials": TRIALS[means.scale],
    }
    where = dict(SMOKE)
    if not means.smoke:
        where = {"data.root": str(means.data("mnist")), "data.download": means.download}
    return configuration.from_run_config(values | dict(changes) | where)


def trained(config: Config, loaded: Federation, multiplier: float = 0.0) -> Tensor:
    """Return the models [T, P] after the configured rounds; the noise is over the clipping norm.

    All trials take the same sample in a round, and differ by their first models and their noise.
    """
    theta = federation.initial_parameters(config, loaded, range(config.trials.count))
    theta, draw = theta.to(loaded.device), np.random.default_rng(config.run.seed)
    optimizer = ServerOptimizer(config.training, config.participation.divisor)
    for round in range(1, config.training.rounds + 1):
        taken = draw.random(config.data.records) < config.training.sampling_rate
        total = loaded.clipped_sum(theta, np.flatnonzero(taken))
        if multiplier:
            noise = torch.from_numpy(draw.standard_normal(tuple(theta.shape))).to(total.device)
            total = total + multiplier * config.training.clipping_norm * noise
        theta = optimizer.step(theta, total.float(), round)
    return theta


def multiplier(rounds: int, sampling_rate: float) -> float:
    """Return the noise over the clipping norm with which the rounds have `EPSILON` at `DELTA`."""
    wanted = calibration.epsilon_at_most(EPSILON, DELTA)
    return calibration.noise_multiplier(wanted, rounds, sampling_rate)
