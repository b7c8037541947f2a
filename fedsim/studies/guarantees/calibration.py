"""How much noise, how many rounds or how large a sample a target allows."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from adversaries.errors import InputError
from fedsim.privacy import calibration, identifiability, pac
from fedsim.privacy.accounting import ACCOUNTANTS
from fedsim.privacy.accounting import accountant as find_accountant
from fedsim.privacy.calibration import Requirement
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.identifiability import Bounds
from fedsim.privacy.mechanism import (
    Neighbouring,
    effective_noise_multiplier,
    nominal_noise_multiplier,
)
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.guarantees import statements
from fedsim.studies.guarantees.statements import Guarantee, Row, chosen

Unknown = Literal["noise_multiplier", "rounds", "sampling_rate"]

DEFAULT_ACCOUNTANT = "pld"

BASELINE_RISK = 0.001
"""Success of an attack without the release, if none is given: naming one of 1,000 people."""

REPEATED = (
    *("noise_multiplier", "rounds", "sampling_rate"),
    *("effective_noise_multiplier", "rho_alpha"),
)
"""What the answer by every accountant repeats of the mechanism that it finds."""


@dataclass(frozen=True)
class Sought:
    """What is known of the mechanism, and which number is sought.

    Attributes:
        noise_multiplier: nominal; None where it is sought.
        rounds: k; None where they are sought.
        sampling_rate: probability that a record joins a step; 1 where it is sought.
        local_steps: noisy steps of a client within a round.
        colluding: other clients that disclose their noise.
    """

    unknown: Unknown
    noise_multiplier: float | None
    rounds: int | None
    sampling_rate: float
    local_steps: int
    neighbouring: Neighbouring
    trust: Trust
    clients: int
    colluding: int
    vantage: Vantage

    @classmethod
    def of(
        cls,
        noise_multiplier: float | None,
        rounds: int | None,
        sampling_rate: float | None,
        local_steps: int | None,
        neighbouring: str | None,
        trust: str | None,
        clients: int | None,
        colluding: int | None,
        vantage: str | None,
    ) -> "Sought":
        """Return what is known, None standing for the default of `calibrate` or what is sought.

        Raises:
            InputError: nothing is left to find, or too much; an unknown word.
        """
        return cls(
            _unknown(noise_multiplier, rounds, sampling_rate),
            noise_multiplier,
            rounds,
            1.0 if sampling_rate is None else sampling_rate,
            1 if local_steps is None else local_steps,
            chosen(Neighbouring, neighbouring, Neighbouring.ADD_REMOVE),
            chosen(Trust, trust, Trust.CENTRAL),
            2 if clients is None else clients,
            colluding or 0,
            chosen(Vantage, vantage, Vantage.PARTICIPANT),
        )

    def answer(self, requirement: Requirement) -> Releases:
        """Return the releases in which the unknown just meets the requirement."""
        # Refuse what makes no sense before the search, whose answer it would not use.
        self.nominal(1.0)
        setting = (self.trust, self.vantage, self.clients, self.local_steps)
        rounds = Rounds(
            self.noise_multiplier or 0.0, self.rounds or 1, self.sampling_rate, self.local_steps
        )
        if self.unknown == "noise_multiplier":
            assert self.rounds is not None
            found = calibration.noise_multiplier(
                requirement,
                self.rounds * self.local_steps,
                self.sampling_rate,
                self.neighbouring,
            )
            return self._describe(replace(rounds, noise_multiplier=self.nominal(found)))
        assert self.noise_multiplier is not None
        effective = effective_noise_multiplier(
            self.noise_multiplier, *setting, colluders=self.colluding
        )
        if self.unknown == "rounds":
            count = calibration.steps(
                requirement, effective, self.sampling_rate, self.neighbouring, self.local_steps
            )
            return self._describe(replace(rounds, count=count // self.local_steps))
        assert self.rounds is not None
        rate = calibration.sampling_rate(
            requirement, effective, self.rounds * self.local_steps, self.neighbouring
        )
        return self._describe(replace(rounds, sampling_rate=rate))

    def nominal(self, effective: float) -> float:
        """Return the multiplier to add for an effective one.

        Raises:
            InputError: no noise helps.
        """
        return nominal_noise_multiplier(
            effective,
            self.trust,
            self.vantage,
            self.clients,
            self.local_steps,
            colluders=self.colluding,
        )

    def _describe(self, rounds: Rounds) -> Releases:
        return Releases(
            (rounds,), self.neighbouring, self.trust, self.clients, colluders=self.colluding
        )


@dataclass(frozen=True)
class Calibrated(Guarantee):
    """What a target allows, and what it guarantees.

    Attributes:
        unknown: which number was sought.
    """

    unknown: Unknown = "noise_multiplier"

    @property
    def value(self) -> float:
        """The number that was sought: the least noise multiplier, or the most of the others."""
        return float(self.document[self.unknown])


def calibrate(
    *,
    rho_beta: float | None = None,
    rho_alpha: float | None = None,
    epsilon: float | None = None,
    mutual_information: float | None = None,
    max_risk: float | None = None,
    baseline_risk: float | None = None,
    delta: float | None = None,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    local_steps: int | None = None,
    sampling_rate: float | None = None,
    neighbouring: str | None = None,
    trust: str | None = None,
    clients: int | None = None,
    colluding: int | None = None,
    vantage: str | None = None,
    accountant: str = DEFAULT_ACCOUNTANT,
) -> Calibrated:
    """Return the least noise, the most rounds or the highest sampling rate that meets one target.

    What is sought is what is left out: the noise multiplier, or, beside it, the rounds, or, beside
    both, the sampling rate.

    Args:
        rho_beta: how sure the adversary may become of one person, 0.5 to 1.
        rho_alpha: by how much it may do better than guessing, 0 to 1.
        epsilon: the bound on belief as epsilon, instead of rho_beta.
        mutual_information: nats that all rounds may tell of which world it is (PAC privacy).
        max_risk: largest success of any attack whose success without the release is
            `baseline_risk`, 0 to 1; also the largest true-positive rate at that rate of false
            positives.
        baseline_risk: such as 1/n for naming one of n people; None for 0.001.
        delta: probability with which the guarantee may fail; None for 1e-5.
        rounds: k, noisy sums that leave a client or the server.
        noise_multiplier: noise standard deviation over the sensitivity of a sum.
        local_steps: noisy steps of a client within a round; None for 1.
        sampling_rate: probability that a record joins a step; None for 1, unless it is sought.
        neighbouring: "add-remove" (None) or "replace".
        trust: who adds the noise: "central" (None), "local" or "distributed".
        clients: m; None for 2.
        colluding: other clients that disclose their noise; None for 0.
        vantage: where the adversary sits: "participant" (None), "server" or "released-model".

    Returns:
        The mechanism that just meets the target, and what `fedsim calibrate --json` prints.

    Raises:
        InputError: no target or several; values out of range; what no mechanism reaches.
    """
    sought = Sought.of(
        noise_multiplier,
        rounds,
        sampling_rate,
        local_steps,
        neighbouring,
        trust,
        clients,
        colluding,
        vantage,
    )
    targets = {
        "rho-beta": rho_beta,
        "rho-alpha": rho_alpha,
        "epsilon": epsilon,
        "mutual-information": mutual_information,
        "max-risk": max_risk,
    }
    check_targets(targets, accountant)
    if baseline_risk is not None and max_risk is None:
        raise InputError("baseline-risk belongs to max-risk; give both, or leave it out")
    at = ASSUMED if delta is None else delta
    if rho_alpha is not None:
        return _met(sought, calibration.advantage_at_most(rho_alpha), at)
    if max_risk is not None:
        baseline = BASELINE_RISK if baseline_risk is None else baseline_risk
        return _met(sought, calibration.success_at_most(max_risk, baseline), at)
    if mutual_information is not None:
        required = calibration.information_at_most(mutual_information)
        return _met(sought, required, at, by_pac=True)
    if rho_beta is not None:
        epsilon = identifiability.epsilon_of_rho_beta(rho_beta)
    assert epsilon is not None
    return _met_epsilon(sought, epsilon, at, accountant)


def check_targets(targets: Mapping[str, object], accountant: str) -> None:
    """Raise an error unless one target is given, with what it needs and no more.

    Args:
        targets: by name; None for one that is not given.

    Raises:
        InputError: no target or several; an accountant that has no say.
    """
    given = [name for name, value in targets.items() if value is not None]
    if len(given) != 1:
        raise InputError(
            "give exactly one of rho-beta, rho-alpha, epsilon, max-risk and mutual-information, "
            "for example rho-beta 0.9"
        )
    find_accountant(accountant)
    if given[0] in ("rho-alpha", "mutual-information", "max-risk"):
        refuse_accountant(accountant, f"it has no say in {given[0]}")


def refuse_accountant(name: str, reason: str) -> None:
    """Raise an error for an accountant that was asked for where it decides nothing.

    Raises:
        InputError: another than the default.
    """
    if name != DEFAULT_ACCOUNTANT:
        raise InputError(f"the accountant is '{name}', but {reason}; leave it out")


def _met(
    sought: Sought, requirement: Requirement, delta: float, *, by_pac: bool = False
) -> Calibrated:
    """Find what meets a requirement in which no accountant has a say, then let each judge it.

    by_pac: say what PAC privacy says of the answer.
    """
    found = sought.answer(requirement)
    mechanism = found.towards(sought.vantage)
    bounds = identifiability.bounds(mechanism, delta)
    rows = statements.accounted(mechanism, delta)
    allowed = {"pac": asdict(pac.guarantee(pac.mutual_information(mechanism), delta))}
    return _calibrated(sought, found, bounds, rows, allowed if by_pac else {})


def _met_epsilon(sought: Sought, target: float, delta: float, accountant: str) -> Calibrated:
    """Find what meets (epsilon, delta) by the accountant asked for, and by every other."""

    def answer(name: str) -> Releases:
        return sought.answer(calibration.epsilon_at_most(target, delta, name))

    def row(name: str) -> Row:
        described = found if name == accountant else answer(name)
        mechanism = described.towards(sought.vantage)
        asked = statements.asked(described, sought.vantage)
        return {
            **{key: asked[key] for key in REPEATED if key in asked},
            "rho_alpha": identifiability.rho_alpha(mechanism),
            "covers": find_accountant(name).covers,
            "note": find_accountant(name).note(mechanism, delta),
        }

    found = answer(accountant)
    bounds = identifiability.bounds(found.towards(sought.vantage), delta, accountant)
    # As asked, where what the noise gives differs in the last digits only.
    if math.isclose(bounds.epsilon, target, rel_tol=1e-6):
        rho_beta = identifiability.rho_beta_of_epsilon(target)
        bounds = replace(bounds, epsilon=target, rho_beta=rho_beta)
    names = dict.fromkeys([*ACCOUNTANTS, accountant])
    rows = {name: statements.or_refusal(row, name) for name in names}
    return _calibrated(sought, found, bounds, rows, {})


def _calibrated(
    sought: Sought, found: Releases, bounds: Bounds, rows: dict[str, Row], allowed: Row
) -> Calibrated:
    document: Row = {
        "found": sought.unknown,
        **statements.asked(found, sought.vantage),
        **asdict(bounds),
        "tail_limit": statements.tail_limit(found.towards(sought.vantage), bounds.epsilon),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
        "risks": statements.risks_of(found.towards(sought.vantage)),
        **allowed,
    }
    return Calibrated(found, sought.vantage, bounds, document, unknown=sought.unknown)


def _unknown(
    noise_multiplier: float | None, rounds: int | None, sampling_rate: float | None
) -> Unknown:
    if noise_multiplier is None:
        if rounds is None:
            raise InputError(
                "give rounds to find the noise, a noise multiplier to find the rounds, or both to "
                "find the sampling rate"
            )
        return "noise_multiplier"
    if rounds is None:
        return "rounds"
    if sampling_rate is None:
        return "sampling_rate"
    raise InputError(
        "noise, rounds and sampling rate are all given, so that nothing is left to find; leave one "
        "out, or ask fedsim account what they guarantee"
    )
