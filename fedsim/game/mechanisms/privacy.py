"""The mechanism that a configuration describes, as each vantage sees it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedsim.config.objects import Scheme
from fedsim.config.privacy import PrivacyConfig
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import (
    Mechanism,
    Steps,
    effective_noise_multiplier,
    nominal_noise_multiplier,
)
from fedsim.privacy.participation.histories import History, histories
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust.model import Vantage

if TYPE_CHECKING:
    from fedsim.privacy.calibration import Requirement


def noise_multiplier(scheme: Scheme) -> float:
    """Return the nominal noise multiplier: sigma over the sensitivity of what adds the noise.

    A target rho-beta, rho-alpha, epsilon or mutual information is meant for the configured vantage,
    with the configured colluders, and for the case that as many clients as are tolerated are
    missing in every round. A noise multiplier that is given is taken as it is.

    Returns: 0 for noise that is no multiple of a sensitivity.
    Raises InputError if no noise multiplier reaches the target.
    """
    privacy, federation = scheme.privacy, scheme.federation
    if privacy.noise_multiplier:
        return privacy.noise_multiplier
    if privacy.noise.mechanism.by_candidate:
        return 0.0
    requirement, found = _requirement(scheme.privacy), 0.0
    for history in histories(scheme.participation, scheme.training.rounds):

        def towards_vantage(nominal: float, history: History = history) -> Mechanism:
            return _releases(scheme, nominal, history).towards(federation.vantage)

        # Whoever is worst off decides.
        if not found or requirement.excess(towards_vantage(found)) > 0:
            found = _least_nominal(scheme, requirement, history)
    return found


def _least_nominal(scheme: Scheme, requirement: "Requirement", history: History) -> float:
    """Return the least nominal multiplier for which a client's rounds satisfy a requirement."""
    federation, steps = scheme.federation, scheme.training.local_steps

    def converted(conversion: Callable[..., float], multiplier: float, there: int) -> float:
        return conversion(
            multiplier,
            federation.trust,
            federation.vantage,
            federation.clients,
            steps,
            there,
            federation.colluding,
            scheme.participation.joining_rate,
        )

    first, _ = history[0]
    converted(nominal_noise_multiplier, 1.0, first)  # raises where no noise helps
    # Searched for is the effective multiplier of one kind of round; others are in proportion.
    shares = [converted(effective_noise_multiplier, 1.0, there) for there, _ in history]
    ratios = [share / shares[0] for share in shares]

    def of_multiplier(multiplier: float) -> Mechanism:
        groups = (
            Steps(multiplier * ratio, count * steps, scheme.participation.rate)
            for ratio, (_, count) in zip(ratios, history, strict=True)
        )
        return Mechanism(tuple(groups), scheme.privacy.neighbouring)

    # A process whose noise is given leaves calibration out.
    from fedsim.privacy import calibration  # noqa: PLC0415

    effective = calibration.least_multiplier(requirement, of_multiplier)
    return converted(nominal_noise_multiplier, effective, first)


def _requirement(privacy: PrivacyConfig) -> "Requirement":
    from fedsim.privacy import calibration  # noqa: PLC0415
    from fedsim.privacy.identifiability import epsilon_of_rho_beta  # noqa: PLC0415

    if privacy.rho_alpha:
        return calibration.advantage_at_most(privacy.rho_alpha)
    if privacy.mutual_information:
        return calibration.information_at_most(privacy.mutual_information)
    epsilon = privacy.epsilon or epsilon_of_rho_beta(privacy.rho_beta)
    return calibration.epsilon_at_most(epsilon, privacy.delta, privacy.accountant)


def describe(scheme: Scheme, nominal: float, vantage: Vantage | None = None) -> Releases:
    """Return all rounds that the configuration plans.

    Of the client who is worst off, where who joins is public. With as many clients missing as are
    tolerated. Without clipping there is no sensitivity that the noise could be a multiple of: it is
    0.

    vantage: towards whom a client is worst off; None for the configured one.
    """
    first, *others = histories(scheme.participation, scheme.training.rounds)
    described = _releases(scheme, nominal, first)
    if not (others and nominal and scheme.training.clipping):
        return described
    seen_by, privacy = vantage or scheme.federation.vantage, scheme.privacy
    chosen_accountant = accountant(privacy.accountant)

    def epsilon(releases: Releases) -> float:
        return chosen_accountant.epsilon(releases.towards(seen_by), privacy.delta)

    return max((described, *(_releases(scheme, nominal, each) for each in others)), key=epsilon)


def _releases(scheme: Scheme, nominal: float, history: History) -> Releases:
    federation, training = scheme.federation, scheme.training
    rounds = tuple(
        Rounds(
            nominal if training.clipping else 0.0,
            count,
            scheme.participation.rate,
            training.local_steps,
            None if there == federation.clients else there,
        )
        for there, count in history
    )
    return Releases(
        rounds,
        scheme.privacy.neighbouring,
        federation.trust,
        federation.clients,
        training.clipping_norm,
        federation.colluding,
        federation.summed_in_the_clear,
        scheme.participation.joining_rate,
    )


def mechanism(scheme: Scheme, nominal: float) -> Mechanism:
    """Return the mechanism that stands between the configured vantage and the challenge record.

    Its steps are all noisy steps that a client takes, also those within a round.
    """
    return describe(scheme, nominal).towards(scheme.federation.vantage)
