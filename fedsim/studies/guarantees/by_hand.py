"""A mechanism that is described by hand, also without the one number that a limit decides."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, TypeVar

from adversaries.errors import InputError
from fedsim.privacy import calibration, identifiability, risks
from fedsim.privacy.accounting import accountant as find_accountant
from fedsim.privacy.calibration import Requirement
from fedsim.privacy.mechanism import Mechanism, Neighbouring
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust, Vantage

Unknown = Literal["noise_multiplier", "rounds"]
"""The number that a limit decides."""

ACCOUNTANT = "pld"
"""The accountant of a limit, unless another is given."""

Choice = TypeVar("Choice", bound=StrEnum)


def chosen(kind: type[Choice], value: str | None, default: Choice) -> Choice:
    """Return a member of an enumeration by its name. Raises InputError for an unknown name."""
    try:
        return default if value is None else kind(value)
    except ValueError:
        raise InputError(
            f"{kind.__name__.lower()} is '{value}'; give one of {', '.join(kind)}"
        ) from None


@dataclass(frozen=True)
class Target:
    """A limit on what an adversary achieves; without one, the guarantees are only stated.

    Attributes:
        max_risk: largest success of an attack that succeeds with `baseline_risk` without the
            release.
        accountant: of the limits epsilon and rho_beta; None for `ACCOUNTANT`.

    Raises:
        InputError: there are several limits, or an option without its limit.
    """

    epsilon: float | None = None
    rho_beta: float | None = None
    rho_alpha: float | None = None
    max_risk: float | None = None
    baseline_risk: float | None = None
    accountant: str | None = None

    def __post_init__(self) -> None:
        if len(self.limits) > 1:
            raise InputError(
                f"{' and '.join(self.limits)} are given; give one of epsilon, rho-beta, rho-alpha "
                "and max-risk"
            )
        if self.baseline_risk is not None and self.max_risk is None:
            raise InputError("baseline-risk needs max-risk; give both, or leave it out")
        if self.accountant is not None:
            find_accountant(self.accountant)
            if not self.of_epsilon and self.accountant != ACCOUNTANT:
                raise InputError(
                    f"the accountant is '{self.accountant}', but it has an effect only on the "
                    "limits epsilon and rho-beta; leave it out"
                )

    @property
    def limits(self) -> list[str]:
        names = "epsilon", "rho_beta", "rho_alpha", "max_risk"
        return [name.replace("_", "-") for name in names if getattr(self, name) is not None]

    @property
    def of_epsilon(self) -> float | None:
        """The limit as an epsilon, which every accountant can keep; None for other limits."""
        if self.rho_beta is not None:
            return identifiability.epsilon_of_rho_beta(self.rho_beta)
        return self.epsilon

    @property
    def baseline(self) -> float:
        return risks.BASELINE if self.baseline_risk is None else self.baseline_risk

    def requirement(self, delta: float, accountant: str | None = None) -> Requirement:
        """Return the limit at a delta, by an accountant; None for the target's own."""
        if self.rho_alpha is not None:
            return calibration.advantage_at_most(self.rho_alpha)
        if self.max_risk is not None:
            return calibration.success_at_most(self.max_risk, self.baseline)
        assert self.of_epsilon is not None
        name = accountant or self.accountant or ACCOUNTANT
        return calibration.epsilon_at_most(self.of_epsilon, delta, name)


@dataclass(frozen=True)
class ByHand:
    """A mechanism by its numbers; None stands for a default, or for the unknown number.

    Attributes:
        noise_multiplier: nominal.
    """

    noise_multiplier: float | None = None
    rounds: int | None = None
    sampling_rate: float | None = None
    local_steps: int | None = None
    neighbouring: str | None = None
    trust: str | None = None
    clients: int | None = None
    participants: int | None = None
    colluding: int | None = None

    def releases(self) -> Releases:
        assert self.noise_multiplier is not None
        assert self.rounds is not None
        alike = Rounds(
            self.noise_multiplier,
            self.rounds,
            1.0 if self.sampling_rate is None else self.sampling_rate,
            1 if self.local_steps is None else self.local_steps,
            self.participants,
        )
        return Releases(
            (alike,),
            chosen(Neighbouring, self.neighbouring, Neighbouring.ADD_REMOVE),
            chosen(Trust, self.trust, Trust.CENTRAL),
            2 if self.clients is None else self.clients,
            colluders=self.colluding or 0,
        )

    @property
    def unknown(self) -> Unknown:
        """The number that a limit decides. Raises InputError if none is left out."""
        if self.noise_multiplier is None and self.rounds is None:
            raise InputError(
                "give rounds to find the noise, or a noise multiplier to find the rounds"
            )
        if self.noise_multiplier is not None and self.rounds is not None:
            raise InputError(
                "noise multiplier and rounds are both given beside a limit; leave one out to "
                "compute it, or leave out the limit to state what they guarantee"
            )
        return "rounds" if self.rounds is None else "noise_multiplier"

    def solved(self, requirement: Requirement, vantage: Vantage) -> Releases:
        """Return the releases in which the unknown number just meets a requirement.

        Raises InputError if no number meets it.
        """

        def releases(number: float) -> Releases:
            known: dict[str, Any] = {self.unknown: number}
            return replace(self, **known).releases()

        def mechanism(number: float) -> Mechanism:
            return releases(number).towards(vantage)

        if self.unknown == "rounds":
            return releases(calibration.most_rounds(requirement, mechanism))
        return releases(calibration.least_multiplier(requirement, mechanism))

    def named(self) -> list[str]:
        """Return the names of the given numbers, without those that may be supposed of a source."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return [name.replace("_", " ") for name in given if name not in ("trust", "colluding")]
