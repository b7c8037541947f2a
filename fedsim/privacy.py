"""The mechanism that a configuration describes, as each vantage sees it."""

from fedsim import pac
from fedsim.calibration import noise_multiplier as calibrate
from fedsim.config import Config
from fedsim.identifiability import epsilon_of_rho_beta
from fedsim.mechanism import Mechanism, effective_noise_multiplier, nominal_noise_multiplier


def noise_multiplier(config: Config) -> float:
    """Return the nominal noise multiplier: sigma over the sensitivity of what adds the noise.

    A target rho-beta, epsilon or mutual information is meant for the configured vantage. 0 under
    PAC noise, which is no multiple of a sensitivity. Raises InputError.
    """
    privacy, federation = config.privacy, config.federation
    if privacy.noise_multiplier:
        return privacy.noise_multiplier
    if privacy.noise == "pac":
        return 0.0
    training = config.training
    if privacy.mutual_information:
        steps = training.rounds * training.local_steps
        effective = pac.noise_multiplier(privacy.mutual_information, steps, training.sampling_rate)
        return nominal_noise_multiplier(
            effective, federation.trust, federation.vantage, federation.owners, training.local_steps
        )
    effective = calibrate(
        privacy.epsilon or epsilon_of_rho_beta(privacy.rho_beta),
        privacy.delta,
        training.rounds * training.local_steps,
        training.sampling_rate,
        privacy.neighbouring,
        privacy.accountant,
    )
    return nominal_noise_multiplier(
        effective, federation.trust, federation.vantage, federation.owners, training.local_steps
    )


def mechanism(config: Config, nominal: float) -> Mechanism:
    """Return the mechanism that stands between the configured vantage and the challenge record.

    Its steps are all noisy steps that an owner takes, also those within a round.
    """
    federation, training = config.federation, config.training
    effective = effective_noise_multiplier(
        nominal, federation.trust, federation.vantage, federation.owners, training.local_steps
    )
    return Mechanism(
        effective,
        training.rounds * training.local_steps,
        training.sampling_rate,
        config.privacy.neighbouring,
    )
