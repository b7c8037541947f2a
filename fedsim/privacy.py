"""The mechanism that a configuration describes, as each vantage sees it."""

from fedsim.calibration import noise_multiplier as calibrate
from fedsim.config import Config
from fedsim.identifiability import epsilon_of_rho_beta
from fedsim.mechanism import Mechanism, effective_noise_multiplier, nominal_noise_multiplier


def noise_multiplier(config: Config) -> float:
    """Return the nominal noise multiplier: sigma over the sensitivity of what adds the noise.

    A target rho-beta or epsilon is meant for the configured vantage. Raises InputError.
    """
    privacy, federation = config.privacy, config.federation
    if privacy.noise_multiplier:
        return privacy.noise_multiplier
    training = config.training
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

    Its steps are all noisy steps that an owner takes, also those within a round. Without clipping
    there is no sensitivity that the noise could be a multiple of: the multiplier is 0.
    """
    federation, training = config.federation, config.training
    if not training.clipping:
        nominal = 0.0
    effective = effective_noise_multiplier(
        nominal, federation.trust, federation.vantage, federation.owners, training.local_steps
    )
    return Mechanism(
        effective,
        training.rounds * training.local_steps,
        training.sampling_rate,
        config.privacy.neighbouring,
    )
