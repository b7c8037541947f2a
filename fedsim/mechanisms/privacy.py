"""The mechanism that a configuration describes, as each vantage sees it."""

from fedsim.config import Config
from fedsim.mechanisms import joining
from fedsim.privacy import calibration
from fedsim.privacy.identifiability import epsilon_of_rho_beta
from fedsim.privacy.mechanism import Mechanism, nominal_noise_multiplier
from fedsim.privacy.releases import Releases, Rounds


def noise_multiplier(config: Config) -> float:
    """Return the nominal noise multiplier: sigma over the sensitivity of what adds the noise.

    A target rho-beta, rho-alpha, epsilon or mutual information is meant for the configured vantage,
    with the configured colluders, and for the case that as many clients as are tolerated are
    missing in every round. A noise multiplier that is given is taken as it is.

    Args:
        config: the experiment.

    Returns:
        0 for noise that is no multiple of a sensitivity.

    Raises:
        InputError: no noise multiplier reaches the target.
    """
    privacy, federation = config.privacy, config.federation
    if privacy.noise_multiplier:
        return privacy.noise_multiplier
    if privacy.noise.mechanism.by_candidate:
        return 0.0
    training = config.training
    effective = calibration.noise_multiplier(
        _requirement(config),
        joining.most_rounds(config) * training.local_steps,
        config.sampling_rate,
        privacy.neighbouring,
    )
    return nominal_noise_multiplier(
        effective,
        federation.trust,
        federation.vantage,
        federation.clients,
        training.local_steps,
        federation.fewest_participants,
        federation.colluding,
    )


def _requirement(config: Config) -> calibration.Requirement:
    privacy = config.privacy
    if privacy.rho_alpha:
        return calibration.advantage_at_most(privacy.rho_alpha)
    if privacy.mutual_information:
        return calibration.information_at_most(privacy.mutual_information)
    epsilon = privacy.epsilon or epsilon_of_rho_beta(privacy.rho_beta)
    return calibration.epsilon_at_most(epsilon, privacy.delta, privacy.accountant)


def describe(config: Config, nominal: float) -> Releases:
    """Return all rounds that the configuration plans.

    Of the client who joins most of them, where clients are sampled and records the unit. With as
    many clients missing as are tolerated. Without clipping there is no sensitivity that the
    noise could be a multiple of: it is 0.

    Args:
        config: the experiment.
        nominal: the noise multiplier.
    """
    federation, training = config.federation, config.training
    if not training.clipping:
        nominal = 0.0
    rounds = Rounds(
        nominal,
        joining.most_rounds(config),
        config.sampling_rate,
        training.local_steps,
        federation.fewest_participants if federation.tolerated_dropouts else None,
    )
    return Releases(
        (rounds,),
        config.privacy.neighbouring,
        federation.trust,
        federation.clients,
        training.clipping_norm,
        federation.colluding,
        federation.summed_in_the_clear,
    )


def mechanism(config: Config, nominal: float) -> Mechanism:
    """Return the mechanism that stands between the configured vantage and the challenge record.

    Its steps are all noisy steps that a client takes, also those within a round.

    Args:
        config: the experiment.
        nominal: the noise multiplier.
    """
    return describe(config, nominal).towards(config.federation.vantage)
