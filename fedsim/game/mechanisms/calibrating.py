"""The noise multiplier that just meets a configuration's target."""

from collections.abc import Callable, Iterable

from fedsim.configuration import Config
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.privacy import calibration
from fedsim.privacy.calibration import Requirement
from fedsim.privacy.identifiability import epsilon_of_rho_beta
from fedsim.privacy.mechanism import Mechanism
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
            nominal = calibration.least_multiplier(requirement, towards_vantage)
    return nominal


def _requirement(privacy: PrivacyConfig) -> Requirement:
    if privacy.rho_alpha:
        return calibration.advantage_at_most(privacy.rho_alpha)
    if privacy.max_risk:
        return calibration.success_at_most(privacy.max_risk, privacy.baseline_risk)
    epsilon = privacy.epsilon or epsilon_of_rho_beta(privacy.rho_beta)
    return calibration.epsilon_at_most(epsilon, privacy.delta, privacy.accountant)
