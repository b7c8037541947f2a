"""The mechanism that a configuration describes, at each vantage."""

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
    """Return the nominal noise multiplier, sigma over the sensitivity; 0 for noise of another kind.

    A target holds at the configured vantage, with the configured colluding clients, and with as
    many clients missing as are tolerated. Raises InputError if no noise multiplier reaches it.
    """
    privacy, federation = scheme.privacy, scheme.federation
    if privacy.noise_multiplier:
        return privacy.noise_multiplier
    if privacy.noise.mechanism.by_candidate:
        return 0.0
    requirement, nominal = _requirement(scheme.privacy), 0.0
    for history in histories(scheme.participation, scheme.training.rounds):

        def towards_vantage(multiplier: float, history: History = history) -> Mechanism:
            return _releases(scheme, multiplier, history).towards(federation.vantage)

        # The worst-off client decides.
        if not nominal or requirement.excess(towards_vantage(nominal)) > 0:
            nominal = _least_nominal(scheme, requirement, history)
    return nominal


def _least_nominal(scheme: Scheme, requirement: "Requirement", history: History) -> float:
    """Return the least nominal multiplier with which a client's rounds meet a requirement."""
    federation, steps = scheme.federation, scheme.training.local_steps

    def converted(conversion: Callable[..., float], multiplier: float, present: int) -> float:
        return conversion(
            multiplier,
            federation.trust,
            federation.vantage,
            federation.clients,
            steps,
            present,
            federation.colluding,
            scheme.participation.joining_rate,
        )

    first, _ = history[0]
    converted(nominal_noise_multiplier, 1.0, first)  # raises where no noise helps
    # The search is for the effective multiplier of one kind of round; others are proportional.
    shares = [converted(effective_noise_multiplier, 1.0, present) for present, _ in history]
    ratios = [share / shares[0] for share in shares]

    def of_multiplier(multiplier: float) -> Mechanism:
        groups = (
            Steps(multiplier * ratio, count * steps, scheme.participation.rate)
            for ratio, (_, count) in zip(ratios, history, strict=True)
        )
        return Mechanism(tuple(groups), scheme.privacy.neighbouring)

    # Imported here, since a process with a configured multiplier needs no calibration.
    from fedsim.privacy import calibration  # noqa: PLC0415

    effective = calibration.least_multiplier(requirement, of_multiplier)
    return converted(nominal_noise_multiplier, effective, first)


def _requirement(privacy: PrivacyConfig) -> "Requirement":
    from fedsim.privacy import calibration  # noqa: PLC0415
    from fedsim.privacy.identifiability import epsilon_of_rho_beta  # noqa: PLC0415

    if privacy.rho_alpha:
        return calibration.advantage_at_most(privacy.rho_alpha)
    if privacy.max_risk:
        return calibration.success_at_most(privacy.max_risk, privacy.baseline_risk)
    if privacy.mutual_information:
        return calibration.information_at_most(privacy.mutual_information)
    epsilon = privacy.epsilon or epsilon_of_rho_beta(privacy.rho_beta)
    return calibration.epsilon_at_most(epsilon, privacy.delta, privacy.accountant)


def describe(scheme: Scheme, nominal: float, vantage: Vantage | None = None) -> Releases:
    """Return all rounds that the configuration plans, of the worst-off client towards a vantage.

    Without clipping there is no sensitivity, and the multiplier is 0.
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
            None if present == federation.clients else present,
        )
        for present, count in history
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
    """Return the mechanism between the configured vantage and the target, by all noisy steps."""
    return describe(scheme, nominal).towards(scheme.federation.vantage)
