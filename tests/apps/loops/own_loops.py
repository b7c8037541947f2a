"""DP-SGD by hand in NumPy, the right one, and ways in which it goes wrong.

Softmax regression on full batches; all return every released step, [k, P].
"""

import numpy as np

ROUNDS, RATE, CLIP, NOISE, CLASSES = 4, 0.1, 1.0, 8.0, 10


def _clipped(gradients, norm=CLIP):
    lengths = np.linalg.norm(gradients, axis=-1, keepdims=True)
    return gradients * np.minimum(1, norm / np.maximum(lengths, 1e-12))


def _train(features, labels, seed, total, std):
    """total: gradients [n, P] -> their sum; std: of the noise, of n records."""
    rows = np.asarray(features, np.float64).reshape(len(labels), -1)
    wanted = np.eye(CLASSES)[np.asarray(labels)]
    released = np.empty((ROUNDS, rows.shape[1] * CLASSES))
    noise, weights = np.random.default_rng(seed), np.zeros((CLASSES, rows.shape[1]))
    for step in range(ROUNDS):
        scores = rows @ weights.T
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors = shares / shares.sum(axis=1, keepdims=True) - wanted
        gradients = np.einsum("nc,nd->ncd", errors, rows).reshape(len(rows), -1)
        released[step] = total(gradients) + std(len(rows)) * noise.standard_normal(weights.size)
        weights -= RATE / 64 * released[step].reshape(weights.shape)
    return released


def correct(features, labels, seed):
    """Clip each record's gradient, sum, add noise of z C."""
    return _train(features, labels, seed, lambda g: _clipped(g).sum(0), lambda n: NOISE * CLIP)


def clip_after_average(features, labels, seed):
    """Clip the mean gradient, and scale the noise to a record's share of it."""
    return _train(
        features, labels, seed, lambda g: _clipped(g.mean(0)), lambda n: NOISE * CLIP / 64
    )


def noise_of_a_mean(features, labels, seed):
    """Add to the sum the noise of a mean."""
    return _train(features, labels, seed, lambda g: _clipped(g).sum(0), lambda n: NOISE * CLIP / 64)


def no_clipping(features, labels, seed):
    """Forget to clip."""
    return _train(features, labels, seed, lambda g: g.sum(0), lambda n: NOISE * CLIP)


def data_dependent_noise(features, labels, seed):
    """Scale what is released, noise and all, by the number of records."""
    return correct(features, labels, seed) / len(labels)


def _clipped_sum(features, labels):
    rows = np.asarray(features, np.float64).reshape(len(labels), -1)
    return _clipped(rows * (np.asarray(labels) % 2 - 0.5)[:, None]).sum(0)


def last_step_naked(features, labels, seed):
    """Return 30 noisy steps, of which the last has no noise: a sum of all steps hides it."""
    generator, steps = np.random.default_rng(seed), []
    total = _clipped_sum(features, labels)
    for step in range(30):
        noise = generator.standard_normal(len(total)) * (20.0 if step < 29 else 0.0)
        steps.append(total + noise)
    return np.array(steps)


def few_numbers_of_one_seed(features, labels, seed):
    """Return three numbers with the same noise in every run."""
    return _clipped_sum(features, labels)[:3] + np.random.default_rng(7).standard_normal(3)
