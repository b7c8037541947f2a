"""Calibration: the least noise or the most steps that meet a requirement."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from adversaries.errors import InputError
from adversaries.statistics.gaussian import check_positive_delta
from adversaries.statistics.roots import find_root
from fedsim.privacy import identifiability, risks
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import MOST_STEPS, Mechanism, Neighbouring

MOST_NOISE = 1e15
"""The noise multiplier beyond which a search gives up."""


@dataclass(frozen=True)
class Requirement:
    """A condition on a mechanism; `excess` is the log of its leak over what is allowed."""

    described: str
    excess: Callable[[Mechanism], float]
    reached: Callable[[Mechanism], str]
    allowed: tuple[str, float] | None = None


def epsilon_at_most(epsilon: float, delta: float, accountant_name: str = "pld") -> Requirement:
    """Require (epsilon, delta)-DP as certified by one of `accounting.ACCOUNTANTS`.

    epsilon: in [0, inf).
    delta: in (0, 1).
    Raises InputError for a number out of range, or an unknown accountant.
    """
    chosen_accountant = accountant(accountant_name)
    if not 0 <= epsilon < math.inf:
        raise InputError(f"epsilon is {epsilon}; give a finite number of at least 0")
    check_positive_delta(delta)

    # Compare epsilons: at the resolution of the loss distribution delta(epsilon) is flat. Only a
    # target of 0, which has no logarithm, compares deltas.
    def excess(mechanism: Mechanism) -> float:
        if epsilon == 0:
            return math.log(chosen_accountant.delta(mechanism, epsilon)) - math.log(delta)
        certified = chosen_accountant.epsilon(mechanism, delta)
        return math.log(min(max(certified, 1e-300), 1e300)) - math.log(epsilon)

    return Requirement(
        f"epsilon {epsilon:.4g} at delta {delta:g} by the accountant {chosen_accountant.name}",
        excess,
        lambda mechanism: f"epsilon {chosen_accountant.epsilon(mechanism, delta):.4g}",
        ("delta", delta),
    )


def advantage_at_most(rho_alpha: float) -> Requirement:
    """Require that no adversary's advantage exceeds rho_alpha.

    Raises InputError unless 0 < it < 1.
    """
    if not 0 < rho_alpha < 1:
        raise InputError(
            f"rho_alpha is {rho_alpha}, but a bound on the advantage lies between 0 (guessing) and "
            "1 (certainty); give for example 0.25"
        )
    return Requirement(
        f"an advantage of at most {rho_alpha:.4g}",
        lambda mechanism: math.log(identifiability.rho_alpha(mechanism)) - math.log(rho_alpha),
        lambda mechanism: f"an advantage of {identifiability.rho_alpha(mechanism):.4g}",
        ("rho_alpha", rho_alpha),
    )


def success_at_most(risk: float, baseline: float) -> Requirement:
    """Require that no attack with some success without the release exceeds a success with it.

    risk: success with the release.
    baseline: without it, such as 1/n for one of n people.
    Raises InputError unless 0 < baseline < risk < 1.
    """
    if not 0 < baseline < 1:
        raise InputError(
            f"the baseline risk is {baseline}; give the success of an attack without the release, "
            "above 0 and below 1, for example 0.001"
        )
    if not baseline < risk < 1:
        raise InputError(
            f"the largest risk is {risk}; give a number between the baseline risk, {baseline:g}, "
            "and 1"
        )
    return Requirement(
        f"a success of at most {risk:.4g} from a baseline of {baseline:.4g}",
        lambda mechanism: math.log(risks.success(mechanism, baseline)) - math.log(risk),
        lambda mechanism: f"a success of {risks.success(mechanism, baseline):.4g}",
    )


def noise_multiplier(
    requirement: Requirement,
    steps: int,
    sampling_rate: float = 1.0,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
) -> float:
    """Return the least noise multiplier that satisfies the requirement.

    Returns: standard deviation of the noise over the sensitivity, to a relative 1e-9.
    Raises InputError for values out of range, a mechanism that the accountant does not cover, or a
    target that no noise reaches or that needs no noise.
    """

    return least_multiplier(
        requirement,
        lambda multiplier: Mechanism.alike(multiplier, steps, sampling_rate, neighbouring),
    )


def least_multiplier(requirement: Requirement, mechanism: Callable[[float], Mechanism]) -> float:
    """Return the least factor on the noise that satisfies the requirement, never too small.

    mechanism: of a factor, for example of a nominal noise multiplier.
    Raises InputError if no factor satisfies it, or none is needed.
    """

    # The search runs over the logarithm, because noise multipliers span many powers of ten.
    def excess(log_multiplier: float) -> float:
        return requirement.excess(mechanism(math.exp(log_multiplier)))

    unit = mechanism(1.0)
    _check_noise_helps(unit)
    _check_noise_is_needed(requirement, unit)
    # Start where the noise is about the spread of the record's contributions, then double or halve.
    rate = max(group.sampling_rate for group in unit.groups)
    low = high = math.log(max(1e-3, math.sqrt(unit.steps) * rate))
    while excess(low) <= 0:
        high, low = low, low - math.log(2)
        if low < math.log(2e-6):
            raise InputError(
                f"{requirement.described} is met even by a noise multiplier of 1e-6; give a "
                "stricter target"
            )
    while excess(high) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(MOST_NOISE):
            raise InputError(
                f"no noise reaches {requirement.described}: the best that any noise certifies is "
                f"{requirement.reached(mechanism(MOST_NOISE))}; give a weaker target, or choose "
                "the accountant pld"
            )
    root = find_root(excess, low, high, xtol=1e-10, rtol=1e-14)
    # The root may lie on the wrong side by its tolerance: move to the safe side.
    while excess(root) > 0:
        root += 1e-10
    return math.exp(root)


def most_rounds(requirement: Requirement, mechanism: Callable[[int], Mechanism]) -> int:
    """Return the largest number of rounds whose mechanism satisfies the requirement.

    Raises InputError if not even one round does, or more than a mechanism may have.
    """
    one = mechanism(1)
    _check_noise_helps(one)

    def satisfied(rounds: int) -> bool:
        return requirement.excess(mechanism(rounds)) <= 0

    if not satisfied(1):
        raise InputError(
            f"not even one round meets {requirement.described}: it allows "
            f"{requirement.reached(one)}; add noise, or give a weaker target"
        )
    low, high = 1, 2
    while satisfied(high):
        low, high = high, 2 * high
        if high * one.steps > MOST_STEPS:
            raise InputError(
                f"more than {low} rounds meet {requirement.described}; give less noise, or a "
                "stricter target"
            )
    # The leak grows with the number of rounds, so bisection between the last count that satisfies
    # and the first that does not finds the largest.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if satisfied(middle) else (low, middle)
    return low


def _check_noise_helps(mechanism: Mechanism) -> None:
    if mechanism.noiseless:
        raise InputError(
            "no noise protects from the server: with central trust it sees each client's sum "
            "before it adds noise; choose a trust model in which clients add noise, or another "
            "vantage"
        )


def _check_noise_is_needed(requirement: Requirement, mechanism: Mechanism) -> None:
    """Raise InputError if the record takes part so rarely that no noise is needed."""
    if requirement.allowed is None or requirement.allowed[1] < mechanism.participation:
        return
    name, value = requirement.allowed
    raise InputError(
        f"{name} is {value:g}, but a record takes part in any step only with probability "
        f"{mechanism.participation:.3g}, so no noise is needed; give a smaller {name}"
    )
