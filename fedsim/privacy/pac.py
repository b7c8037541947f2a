"""PAC privacy: how much a release reveals about a secret that is drawn from a stated prior.

Xiao and Devadas, "PAC privacy: automatic privacy measurement and control of data processing", 2023.
A mechanism maps a secret index S of m stated candidates to c_S, and c_S + B with Gaussian noise B
is released. Their mutual information, in nats, bounds how often an adversary guesses S, or any
property of it, correctly, on average over the prior: no differential privacy.

Rounds add up, MI(S; r_1..r_k) = sum_i MI(S; r_i | r_1..r_(i-1)), if every round keeps its
budget given earlier ones. Noise that fits the prior need not fit the posterior.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import rel_entr

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.statistics.intervals import check_delta
from fedsim.privacy.mechanism import Mechanism

ROUNDING = 1e-15
"""Nats that a bound on success allows besides, since a divergence is rounded."""


# The noise for an information budget.


def anisotropic_variances(eigenvalues: Floats, budget: float) -> Floats:
    """Return the noise variances sqrt(lambda_j) sum_i sqrt(lambda_i) / (2 v) along directions j.

    Of all noise whose linear information 1/2 tr(Sigma Sigma_B^-1) is v, this has the least E|B|^2,
    (sum_i sqrt(lambda_i))^2 / (2 v) (Cauchy-Schwarz; Xiao and Devadas print it without the square).

    eigenvalues: [..., r]; a zero one needs no noise.
    budget: v in nats.
    Raises InputError unless 0 < v < inf and no eigenvalue is negative.
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    if not np.all(values >= 0):
        raise InputError("the eigenvalues must not be negative or NaN; give numbers of at least 0")
    if not 0 < budget < math.inf:
        raise InputError(
            f"the budget of mutual information is {budget}; give a positive number of nats"
        )
    roots = np.sqrt(values)
    return roots * roots.sum(-1, keepdims=True) / (2 * budget)


# Bounds on guessing that follow from information.


def success_bound(information: float, prior: float = 0.5) -> float:
    """Return the largest p >= p0 with KL(p || p0) <= MI: no guess is right more often.

    information: MI in nats, >= 0.
    prior: p0, how often the best guess is right before the release, in (0, 1).
    Raises InputError unless MI >= 0 and 0 < p0 < 1.
    Source: theorem of Xiao and Devadas for f = KL, of Bernoulli distributions.
    """
    if not 0 < prior < 1:
        raise InputError(f"the prior success is {prior}; give a probability between 0 and 1")
    if not information >= 0:
        raise InputError(f"the mutual information is {information}; give nats, at least 0")
    if information == 0:
        return prior

    def allowed(success: float) -> bool:
        divergence = rel_entr(success, prior) + rel_entr(1 - success, 1 - prior)
        return bool(divergence <= information + ROUNDING)

    low, high = prior, 1.0
    while not allowed(high) and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return high


def advantage_bound(information: float) -> float:
    """Return 2p - 1 for the success bound p at even odds, of information >= 0 in nats."""
    return 2 * success_bound(information) - 1


def epsilon_of_success(success: float, delta: float) -> float:
    """Return ln((p - delta)/(1 - p)), the epsilon whose bound on success at even odds is p.

    The result is the epsilon where (e^epsilon + delta)/(e^epsilon + 1) is p, and 0 where delta
    alone allows p. It is no guarantee of differential privacy: an average says nothing about the
    worst case. Raises InputError unless 1/2 <= p <= 1 and 0 <= delta < 1.
    """
    if not 0.5 <= success <= 1:
        raise InputError(f"the success is {success}; give a probability from 0.5 to 1")
    check_delta(delta)
    if success == 1:
        return math.inf
    odds = (success - delta) / (1 - success)
    return math.log(odds) if odds > 1 else 0.0


@dataclass(frozen=True)
class PacGuarantee:
    """Limits on guessing one bit at even odds that follow from an amount of information."""

    mutual_information: float
    success_bound: float
    advantage_bound: float
    equivalent_epsilon: float
    delta: float


def guarantee(information: float, delta: float) -> PacGuarantee:
    """Return the limits on guessing for information in nats, >= 0; delta is in [0, 1)."""
    success = success_bound(information)
    return PacGuarantee(
        information,
        success,
        advantage_bound(information),
        epsilon_of_success(success, delta),
        delta,
    )


# The identification game, whose prior is {D, D'} at even odds.


def pair_information(noise_multiplier: float, sampling_rate: float = 1.0) -> float:
    """Return a bound on the nats that one Gaussian step reveals about whether D or D' was used.

    For the worst gradients it is q/2 log(1 + 1/(4 z^2)). Where the record takes part, the signal
    b Delta has covariance Delta Delta^T/4 and log det applies. A coin B that does not depend on b
    has MI(b; r) <= MI(b; r, B) = q MI(b; r | B = 1).

    Rounds add up: log(1 + pi (1 - pi)/z^2) is concave in the belief pi, whose mean stays 1/2.

    noise_multiplier: z = sigma over the sensitivity, >= 0; 0 gives infinity.
    sampling_rate: q, by a secret coin, in (0, 1].
    Raises InputError unless z >= 0 and 0 < q <= 1.
    """
    if not 0 < sampling_rate <= 1:
        raise InputError(f"the sampling rate is {sampling_rate}; give a number above 0, at most 1")
    if not noise_multiplier >= 0:
        raise InputError(f"the noise multiplier is {noise_multiplier}; give a number of at least 0")
    square = noise_multiplier * noise_multiplier
    if square == 0:
        return math.inf
    return sampling_rate / 2 * math.log1p(0.25 / square)


def mutual_information(mechanism: Mechanism) -> float:
    """Return a bound on the nats that all steps reveal: the sum of `pair_information`."""
    return math.fsum(
        step.count * pair_information(step.noise_multiplier, step.sampling_rate)
        for step in mechanism.groups
    )
