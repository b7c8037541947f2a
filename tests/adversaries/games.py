"""Games of known truth, and how often something may happen in repeated ones."""

import numpy as np
from scipy import stats


def balanced(trials):
    return np.arange(trials) % 2 == 0


def gaussian_game(rng, repeats, trials, mu):
    """Log-odds [repeats, trials] of a Gaussian mechanism; under mu = 0 both worlds are N(0, 1)."""
    worlds = balanced(trials)
    mean = np.where(worlds, 0.5, -0.5) * mu**2
    return worlds, mean + (mu or 1.0) * rng.standard_normal((repeats, trials))


def rng_of(seed):
    return np.random.default_rng(seed)


def decisions(true, trials, false, others):
    """A game with so many decisions for D in trials on D, and in the others."""
    worlds = np.arange(trials + others) < trials
    for_d = np.concatenate([np.arange(trials) < true, np.arange(others) < false])
    return worlds, np.where(for_d, 1.0, -1.0)


def often_at_most(count, repeats, probability):
    return bool(stats.binom.sf(count - 1, repeats, probability) > 1e-4)


def often_exactly(count, repeats, probability):
    at_least = stats.binom.cdf(count, repeats, probability) > 1e-4
    return often_at_most(count, repeats, probability) and bool(at_least)
