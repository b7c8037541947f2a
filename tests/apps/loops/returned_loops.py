"""One training by hand that returns its steps, its models or its last model, with noise of a size.

The name of a function says both: `models_noise_200` has the noise multiplier 2. The gradient of a
record is that of a logistic regression whose weights are 0, whatever the model is, so that theory's
numbers are exact. Labels are 0 and 1.
"""

from collections.abc import Callable

import numpy as np

STEPS, CLIP, RATE = 8, 1.0, 0.1


def _steps(features, labels, seed, multiplier):
    rows = np.asarray(features, np.float64).reshape(len(labels), -1)
    rows = rows * (0.5 - np.asarray(labels)[:, None])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    summed = (rows * np.minimum(1, CLIP / np.maximum(lengths, 1e-12))).sum(0)
    noise = np.random.default_rng(seed).standard_normal((STEPS, rows.shape[1]))
    return summed + multiplier * CLIP * noise


def _models(steps, seed):
    first = np.random.default_rng([seed, 1]).standard_normal(steps.shape[1])
    return first - RATE * np.cumsum(steps, axis=0)


def __getattr__(name: str) -> Callable[..., np.ndarray]:
    form, _, percent = name.rpartition("_noise_")
    if form not in ("steps", "lists", "last"):
        raise AttributeError(name)

    def train(features, labels, seed):
        steps = _steps(features, labels, seed, int(percent) / 100)
        if form == "steps":
            return steps
        models = _models(steps, seed)
        return [{"weights": each} for each in models] if form == "lists" else models[-1]

    return train
