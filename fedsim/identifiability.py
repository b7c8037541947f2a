"""From a mechanism to identifiability: what an adversary may believe, and how often it is right."""

import math
from dataclasses import dataclass

from scipy.special import expit, logit, ndtr

from fedsim.accounting import PLD, accountant
from fedsim.errors import InputError
from fedsim.mechanism import (
    Mechanism,
    Neighbouring,
    Trust,
    Vantage,
    effective_noise_multiplier,
)


@dataclass(frozen=True)
class Bounds:
    """What theory says about the adversary in front of one mechanism.

    epsilon is the named accountant's at `delta`, tight_epsilon that of the noise actually used;
    rho_beta and tight_rho_beta are the beliefs that go with them. tail_probability is how often the
    belief passes rho_beta when D was used (None where it is not known), and rho_alpha the most
    that the advantage can be. theorem2_rho_alpha is no bound.
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
    """The bounds of one vantage point; epsilon is tight, and infinite where nothing protects."""

    vantage: Vantage
    noise_multiplier: float
    epsilon: float
    rho_beta: float
    rho_alpha: float
    note: str


def epsilon_of_rho_beta(rho_beta: float) -> float:
    """Return ln(rho_beta / (1 - rho_beta)) (Bernau et al., Eq. 10).

    Raises InputError unless 0.5 < rho_beta < 1: at 0.5 the adversary believes what a coin says.
    """
    if not 0.5 < rho_beta < 1:
        raise InputError(
            f"rho-beta is {rho_beta}; a bound on a belief lies above 0.5 (a coin) and below 1"
        )
    return float(logit(rho_beta))


def rho_beta_of_epsilon(epsilon: float) -> float:
    """Return 1 / (1 + e^-epsilon), the bound on the posterior belief (Bernau et al., Theorem 1)."""
    return float(expit(epsilon))


def rho_alpha(mechanism: Mechanism) -> float:
    """Return the bound on the advantage: total variation of the two worlds, delta at epsilon 0."""
    return PLD.delta(mechanism, 0.0)


def tail_probability(mechanism: Mechanism, epsilon: float) -> float | None:
    """Return Pr_D[privacy loss > epsilon]: how often the belief passes its bound when D was used.

    None where it is not known: no loss distribution can be computed, or epsilon is infinite.
    """
    return PLD.tail(mechanism, epsilon) if math.isfinite(epsilon) else None


def theorem2_rho_alpha(epsilon: float, delta: float) -> float:
    """Return 2 Phi(epsilon / (2 sqrt(2 ln(1.25/delta)))) - 1, as Bernau et al. print Theorem 2.

    Not a bound: it presumes sigma = sqrt(2 ln(1.25/delta)) Delta / epsilon, and noise that is
    calibrated more tightly allows a larger advantage.
    """
    return float(2 * ndtr(epsilon / (2 * math.sqrt(2 * math.log(1.25 / delta)))) - 1)


def yeom_bound(epsilon: float) -> float:
    """Return e^epsilon - 1, the bound on membership advantage of Yeom et al., 2018, Theorem 1."""
    return math.expm1(epsilon) if epsilon < 700 else math.inf


def bounds(mechanism: Mechanism, delta: float, accountant_name: str = "pld") -> Bounds:
    """Return all bounds of a mechanism at delta. Raises InputError for what cannot be accounted."""
    epsilon = accountant(accountant_name).epsilon(mechanism, delta)
    tight = PLD.epsilon(mechanism, delta)
    return Bounds(
        epsilon=epsilon,
        delta=delta,
        rho_beta=rho_beta_of_epsilon(epsilon),
        rho_alpha=rho_alpha(mechanism),
        tail_probability=tail_probability(mechanism, epsilon),
        theorem2_rho_alpha=theorem2_rho_alpha(epsilon, delta),
        yeom_bound=yeom_bound(epsilon),
        accountant=accountant_name,
        tight_epsilon=tight,
        tight_rho_beta=rho_beta_of_epsilon(tight),
    )


def vantage_bounds(
    noise_multiplier: float,
    steps: int,
    sampling_rate: float,
    neighbouring: Neighbouring,
    trust: Trust,
    owners: int,
    delta: float,
) -> list[VantageBounds]:
    """Return the bounds of every vantage point under one nominal noise multiplier."""
    rows = []
    for vantage in Vantage:
        effective = effective_noise_multiplier(noise_multiplier, trust, vantage, owners)
        mechanism = Mechanism(effective, steps, sampling_rate, neighbouring)
        epsilon = PLD.epsilon(mechanism, delta)
        rows.append(
            VantageBounds(
                vantage,
                effective,
                epsilon,
                rho_beta_of_epsilon(epsilon),
                rho_alpha(mechanism),
                _note(trust, vantage),
            )
        )
    return rows


def _note(trust: Trust, vantage: Vantage) -> str:
    match vantage:
        case Vantage.SERVER if trust is Trust.CENTRAL:
            return "sees every owner's clean sum: no protection"
        case Vantage.SERVER if trust is Trust.DISTRIBUTED:
            return "holds as long as secure aggregation does"
        case Vantage.SERVER:
            return "sees every owner's noisy sum"
        case Vantage.PARTICIPANT:
            return "sees the aggregate, and knows its own part in it"
        case Vantage.RELEASED_MODEL:
            return "no closed form: the participant's bound, which is an upper bound"
