"""The exact posterior over several candidates for one record of a training.

In each step the adversary sees r = known + b g_c + noise, where g_c is the clipped gradient of the
candidate that was used, and b is 1 with probability q. All values are float64, in log space.
"""

import numpy as np
import torch
from scipy.special import log_softmax, ndtri
from torch import Tensor

from adversaries.arrays import Floats, Ints
from adversaries.attacks.posterior import mixture


def log_likelihood_ratios(
    observed: Tensor, gradients: Tensor, noise_std: float, sampling_rate: float = 1.0
) -> Tensor:
    """Return how much likelier a step is with each candidate than without any, [T, s, m].

    Args:
        observed: float64 [T, s, P], what s observers of each trial see beyond what they know.
        gradients: float64 [T, m, P], of the candidates at each trial's model.
        noise_std: standard deviation of the noise that the observers do not know, above 0.
        sampling_rate: q, the probability that the record takes part in the step, in (0, 1].
    """
    # log N(r; g, s^2 I) - log N(r; 0, s^2 I) = (<r, g> - |g|^2/2)/s^2: |r|^2 cancels.
    inner = observed @ gradients.transpose(1, 2)
    half = torch.linalg.vecdot(gradients, gradients)[:, None] / 2
    return mixture((inner - half) / noise_std**2, sampling_rate)


def log_posterior(log_likelihoods: Floats, prior: Floats) -> Floats:
    """Return the log-probability of each candidate, [..., m].

    Args:
        log_likelihoods: float64 [..., m], summed over all steps.
        prior: [m], probabilities above 0.
    """
    # log_softmax subtracts the evidence without an exponential that could overflow.
    posterior: Floats = log_softmax(log_likelihoods + np.log(prior), axis=-1)
    return posterior


def surprise(posterior: Floats, secrets: Ints, coins: Floats) -> Floats:
    """Return how unlikely the posterior held each true candidate, as normal scores [T].

    A score is the quantile of the posterior probability that is ahead of the truth, where a coin
    divides the truth's own share. Scores of an exact posterior are independent N(0, 1).

    Args:
        posterior: probabilities [T, m].
        secrets: true candidates [T].
        coins: uniform in (0, 1), [T].

    Source: the randomised probability integral transform: Brockwell, "Universal residuals", 2007.
    """
    true = np.take_along_axis(posterior, secrets[:, None], axis=1)
    # The truth's own mass is an interval of the distribution function; the coin picks its point.
    ahead = np.where(posterior > true, posterior, 0.0).sum(axis=1)
    tied = np.where(posterior == true, posterior, 0.0).sum(axis=1)
    # The quantile is infinite at 0 and 1; 1 - 2^-53 is the largest float64 below 1.
    smallest = np.finfo(np.float64).eps / 2
    scores: Floats = ndtri(np.clip(ahead + coins * tied, smallest, 1 - smallest))
    return scores
