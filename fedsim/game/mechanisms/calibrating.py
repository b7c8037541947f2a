"""The noise multiplier that just meets a configuration's target."""

from collections.abc import Callable, Iterable

from fedsim.configuration import Config
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.privacy import calibration
from fedsim.privacy.calibration import Requirement
from fedsim.privacy.identifiability import epsilon_of_rho_beta
from fedsim.privacy.mechanism import (
    Mechanism,
    Steps,
    effective_noise_multiplier,
    nominal_noise_multiplier,
)
from fedsim.privacy.participation.rule import History
from fedsim.privacy.releases import Releases


def least_nominal(
    config: Config,
    histories: Iterable[History],
    releases: Callable[[Config, float, History], Releases],
) -> float:
    """Return the least nominal noise multiplier that meets the target for every client.

    histories: the planned rounds of clients, one of which is the worst off.
    releases: returns those of a client's rounds with a nominal multiplier.
    Raises InputError if no multiplier meets it.
    """
    requirement, nominal = _requirement(config.privacy), 0.0
    for history in histories:

        def towards_vantage(multiplier: float, history: History = history) -> Mechanism:
            return releases(config, multiplier, history).towards(config.federation.vantage)

        # The worst-off client decides.
        if not nominal or requirement.excess(towards_vantage(nominal)) > 0:
            nominal = _least_nominal(config, requirement, history)
    return nominal


def _least_nominal(config: Config, requirement: Requirement, history: History) -> float:
    """Return the least nominal multiplier with which a client's rounds meet a requirement."""
    federation, steps = config.federation, config.training.local_steps

    def converted(conversion: Callable[..., float], multiplier: float, present: int) -> float:
        return conversion(
            multiplier,
            federation.trust,
            federation.vantage,
            federation.clients,
            steps,
            present,
            federation.colluding,
            config.participation.joining_rate,
        )

    first, _ = history[0]
    converted(nominal_noise_multiplier, 1.0, first)  # raises where no noise helps
    # The search is for the effective multiplier of one kind of round; others are proportional.
    shares = [converted(effective_noise_multiplier, 1.0, present) for present, _ in history]
    ratios = [share / shares[0] for share in shares]

    def of_multiplier(multiplier: float) -> Mechanism:
        groups = (
            Steps(multiplier * ratio, count * steps, config.participation.rate)
            for ratio, (_, count) in zip(ratios, history, strict=True)
        )
        return Mechanism(tuple(groups), config.privacy.neighbouring)

    effective = calibration.least_multiplier(requirement, of_multiplier)
    return converted(nominal_noise_multiplier, effective, first)


def _requirement(privacy: PrivacyConfig) -> Requirement:
    if privacy.rho_alpha:
        return calibration.advantage_at_most(privacy.rho_alpha)
    if privacy.max_risk:
        return calibration.success_at_most(privacy.max_risk, privacy.baseline_risk)
    epsilon = privacy.epsilon or epsilon_of_rho_beta(privacy.rho_beta)
    return calibration.epsilon_at_most(epsilon, privacy.delta, privacy.accountant)
