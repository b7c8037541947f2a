"""Bounds on identifiability: what a privacy guarantee says about one person's record.

rho_beta bounds the adversary's posterior belief, and rho_alpha its advantage over guessing (Bernau
et al., section 4), from even odds and with knowledge of everything but the bit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.gaussian import check_positive_delta
from fedsim.privacy import risks
from fedsim.privacy.accounting import PLD, accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Trust, Vantage


def advantage_of_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest advantage that (epsilon, delta)-differential privacy allows.

    Source: Kairouz, Oh and Viswanath, 2015, "The Composition Theorem for Differential Privacy",
    Theorem 2.1: tanh(epsilon / 2) + 2 delta / (1 + e^epsilon).
    """
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta * float(scipy.special.expit(-epsilon)))


LEAST_STEP, STEPS_BELOW = 1e-3, 48
"""`tail_limit` looks delta up at so many steps below epsilon, from this share of epsilon to all."""


@dataclass(frozen=True)
class Bounds:
    """Limits that theory sets an adversary against one mechanism at one delta.

    Attributes:
        epsilon: certified by the named accountant, as are the values that follow from it.
        rho_beta: belief that the worst pair exceeds only with probability tail_probability.
        rho_alpha: advantage that no adversary exceeds under the noise actually used.
        tail_probability: Pr_D[privacy loss > epsilon] of the worst pair, see `tail_limit`; None if
            unknown.
        theorem2_rho_alpha: the paper's printed value, which is not a bound.
        yeom_bound: e^epsilon - 1, on the advantage of membership inference; vacuous above 1.
        tight_epsilon: epsilon from the privacy loss distribution.
        tight_rho_beta: the rho_beta of tight_epsilon.
    """

    epsilon: float
    delta: float
    rho_beta: float
    rho_alpha: float
    tail_probability: float | None
    theorem2_rho_alpha: float
    yeom_bound: float
    accountant: str
    tight_epsilon: float
    tight_rho_beta: float


@dataclass(frozen=True)
class VantageBounds:
    """Limits that theory sets an adversary at one vantage point under one trust model.

    Attributes:
        noise_multiplier: effective at this vantage point; None where it differs between rounds.
        epsilon: tight, at the requested delta; inf without such noise.
        rho_beta: belief that the worst pair exceeds only with probability tail_probability.
        tail_probability: Pr_D[privacy loss > epsilon] of the worst pair; None if unknown.
        risks: for each baseline: it, and the largest success of any attack from it.
    """

    trust: Trust
    vantage: Vantage
    noise_multiplier: float | None
    epsilon: float
    rho_beta: float
    rho_alpha: float
    tail_probability: float | None
    theorem2_rho_alpha: float
    yeom_bound: float
    note: str
    risks: tuple[tuple[float, float], ...]


LOCAL_STEPS_NOTE = (
    "upper bound: sees {}, and is assumed to see every local step of a client under that client's "
    "own noise, because other clients' noise does not hide the model from which the client steps"
)
_SEES = {
    Vantage.SERVER: "every client's message",
    Vantage.PARTICIPANT: "the aggregate of every round",
    Vantage.RELEASED_MODEL: "the last model",
}


def epsilon_of_rho_beta(rho_beta: float) -> float:
    """Return ln(rho_beta / (1 - rho_beta)) for rho_beta in [0.5, 1), Eq. 10; else InputError."""
    if not 0.5 <= rho_beta < 1:
        raise InputError(
            f"rho_beta is {rho_beta}, but a bound on belief lies between 0.5 (a coin) and 1 "
            "(certainty); give for example 0.9"
        )
    return math.log(rho_beta) - math.log1p(-rho_beta)


def rho_beta_of_epsilon(epsilon: float) -> float:
    """Return the bound on the belief, 1 / (1 + e^-epsilon) from even odds.

    epsilon: >= 0, may be infinite.
    Raises InputError unless epsilon >= 0.
    Source: Theorem 1.
    """
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}; give a number of at least 0")
    return 1 / (1 + math.exp(-epsilon))


def rho_alpha(mechanism: Mechanism) -> float:
    """Return the total variation distance, the largest advantage: delta at epsilon = 0."""
    return PLD.delta(mechanism, 0.0)


def tail_probability(mechanism: Mechanism, epsilon: float) -> float | None:
    """Return Pr_D[privacy loss > epsilon]: how often the belief in D exceeds rho_beta(epsilon).

    This is for the worst pair, which differs by the whole sensitivity in every step. It is larger
    than delta(epsilon), and no limit for other pairs: use `tail_limit` for them.

    Returns: None where the loss distribution cannot be computed.
    Raises InputError for epsilon below 0.
    """
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}; give a number of at least 0")
    return 0.0 if math.isinf(epsilon) else PLD.tail(mechanism, epsilon)


@lru_cache(maxsize=256)
def tail_limit(mechanism: Mechanism, epsilon: float) -> float:
    """Return the largest Pr_D[privacy loss > epsilon] of any pair, milder pairs included.

    A milder pair has a smaller delta at every epsilon, but not always a smaller tail. For e <
    epsilon

        delta(e) >= E_D[(1 - exp(e - loss))+] >= Pr_D[loss > epsilon] (1 - exp(e - epsilon)).

    The result is the least of these limits over a grid of e, and 1 (no limit) at epsilon = 0.

    epsilon: may be infinite.
    Raises InputError for epsilon below 0.
    """
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}; give a number of at least 0")
    if epsilon == 0 or math.isinf(epsilon):
        return float(epsilon == 0)
    # A small step divides by almost 0, a large one uses a large delta: the best step lies in
    # between, so a geometric grid looks for it.
    below = epsilon * np.geomspace(LEAST_STEP, 1, STEPS_BELOW)
    limits = [PLD.delta(mechanism, epsilon - step) / -math.expm1(-step) for step in below]
    return min(1.0, *limits)


def theorem2_rho_alpha(epsilon: float, delta: float) -> float:
    """Return 2 Phi(epsilon / (2 sqrt(2 ln(1.25/delta)))) - 1, which is not a bound.

    It assumes the classic sigma = Delta sqrt(2 ln(1.25/delta)) / epsilon of a single step. Raises
    InputError unless epsilon >= 0 and 0 < delta < 1. Source: Theorem 2 as printed.
    """
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}; give a number of at least 0")
    check_positive_delta(delta)
    return gaussian.advantage(epsilon / math.sqrt(2 * math.log(1.25 / delta)))


def yeom_bound(epsilon: float) -> float:
    """Return e^epsilon - 1, the bound on membership advantage of Yeom et al., 2018, Theorem 1."""
    try:
        return math.expm1(epsilon)
    except OverflowError:
        return math.inf


def bounds(mechanism: Mechanism, delta: float, accountant_name: str = "pld") -> Bounds:
    """Return the limits on an adversary. Raises InputError for an unsuitable accountant."""
    epsilon = accountant(accountant_name).epsilon(mechanism, delta)
    tight_epsilon = PLD.epsilon(mechanism, delta)
    return Bounds(
        epsilon=epsilon,
        delta=delta,
        rho_beta=rho_beta_of_epsilon(epsilon),
        rho_alpha=rho_alpha(mechanism),
        tail_probability=tail_probability(mechanism, epsilon),
        theorem2_rho_alpha=theorem2_rho_alpha(epsilon, delta),
        yeom_bound=yeom_bound(epsilon),
        accountant=accountant_name,
        tight_epsilon=tight_epsilon,
        tight_rho_beta=rho_beta_of_epsilon(tight_epsilon),
    )


def vantage_bounds(
    releases: Releases,
    delta: float,
    trust: Trust | None = None,
    baselines: Sequence[float] = risks.BASELINES,
) -> list[VantageBounds]:
    """Return the limits at every vantage point, for another trust model if given."""
    releases = releases if trust is None else releases.under(trust)
    clients = releases.joining_rate * releases.clients
    local = any(alike.local_steps > 1 for alike in releases.rounds)
    rows = []
    for vantage in Vantage:
        mechanism = releases.towards(vantage)
        bound = bounds(mechanism, delta)
        # One number only if all rounds have the same noise.
        multipliers = {group.noise_multiplier for group in mechanism.groups}
        if local:
            note = LOCAL_STEPS_NOTE.format(_SEES[vantage])
        elif vantage is Vantage.RELEASED_MODEL:
            note = "upper bound, that of a participant, who sees more; no closed form is known"
        else:
            note = releases.trust.model.sees(vantage, clients, releases.summed_in_the_clear)
        rows.append(
            VantageBounds(
                trust=releases.trust,
                vantage=vantage,
                noise_multiplier=multipliers.pop() if len(multipliers) == 1 else None,
                epsilon=bound.epsilon,
                rho_beta=bound.rho_beta,
                rho_alpha=bound.rho_alpha,
                tail_probability=bound.tail_probability,
                theorem2_rho_alpha=bound.theorem2_rho_alpha,
                yeom_bound=bound.yeom_bound,
                note=note,
                risks=risks.success_by_baseline(mechanism, baselines),
            )
        )
    return rows
