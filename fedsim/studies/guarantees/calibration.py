"""`calibrate`: the noise, rounds or sampling rate for a target."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from adversaries.errors import InputError
from fedsim.privacy import calibration, identifiability, risks
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
from fedsim.studies.guarantees.statements import MechanismGuarantee, Row, chosen

Unknown = Literal["noise_multiplier", "rounds", "sampling_rate"]
DEFAULT_ACCOUNTANT = "pld"

REPEATED = (
    *("noise_multiplier", "rounds", "sampling_rate"),
    *("effective_noise_multiplier", "rho_alpha"),
)
"""Values of the mechanism that the row of every accountant repeats."""


@dataclass(frozen=True)
class Sought:
    """A mechanism without one number, the unknown; a nominal noise multiplier or rounds is None."""

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
        """Return the mechanism of `calibrate`'s arguments; one number has to be missing."""
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
        self.nominal(1.0)  # raises InputError if no noise helps, before the search
        steps = (1 if self.rounds is None else self.rounds) * self.local_steps
        rate, relation = self.sampling_rate, self.neighbouring
        rounds = Rounds(self.noise_multiplier or 0.0, self.rounds or 1, rate, self.local_steps)
        if self.noise_multiplier is None:
            effective = calibration.noise_multiplier(requirement, steps, rate, relation)
            rounds = replace(rounds, noise_multiplier=self.nominal(effective))
        else:
            setting = (self.trust, self.vantage, self.clients, self.local_steps)
            effective = effective_noise_multiplier(
                self.noise_multiplier, *setting, colluders=self.colluding
            )
            if self.rounds is None:
                count = calibration.steps(requirement, effective, rate, relation, self.local_steps)
                rounds = replace(rounds, count=count // self.local_steps)
            else:
                rate = calibration.sampling_rate(requirement, effective, steps, relation)
                rounds = replace(rounds, sampling_rate=rate)
        return Releases((rounds,), relation, self.trust, self.clients, colluders=self.colluding)

    def nominal(self, effective: float) -> float:
        """Return the nominal multiplier for an effective one. Raises InputError if none helps."""
        setting = (self.trust, self.vantage, self.clients, self.local_steps)
        return nominal_noise_multiplier(effective, *setting, colluders=self.colluding)


@dataclass(frozen=True)
class Calibrated(MechanismGuarantee):
    """The mechanism that meets a target, and its guarantees.

    Attributes:
        unknown: the number that was computed.
    """

    unknown: Unknown = "noise_multiplier"

    @property
    def value(self) -> float:
        """The computed number: the least noise multiplier, or the largest of the others."""
        return float(self.document[self.unknown])


def calibrate(
    *,
    rho_beta: float | None = None,
    rho_alpha: float | None = None,
    epsilon: float | None = None,
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

    It computes the number that is left out: the noise multiplier; or the rounds, if the noise
    multiplier is set; or the sampling rate, if both are set.

    Args:
        rho_beta: largest belief of the adversary about one person, 0.5 to 1.
        rho_alpha: largest advantage of the adversary over guessing, 0 to 1.
        epsilon: to reach, in place of rho_beta.
        max_risk: largest success of an attack that succeeds with `baseline_risk` without the
            release, 0 to 1; also the largest true positive rate at that false positive rate.
        baseline_risk: such as 1/n for naming one of n people; None for 0.001.
        delta: probability that the guarantee fails; None for 1e-5.
        rounds: k, noisy sums that a client or the server releases.
        noise_multiplier: standard deviation of the noise, divided by the sensitivity of a sum.
        local_steps: noisy local steps of each client in each round; None for 1.
        sampling_rate: probability that a record joins a step; None for 1, or if it is unknown.
        neighbouring: "add-remove" (None) or "replace".
        trust: party that adds the noise: "central" (None), "local" or "distributed".
        clients: m, number of clients; None for 2.
        colluding: number of other clients that disclose their noise; None for 0.
        vantage: vantage point of the adversary: "participant" (None), "server", "released-model".

    Returns:
        The mechanism that just meets the target, and the document of `fedsim calibrate --json`.

    Raises:
        InputError: there is no target or more than one, a value is out of range, or no mechanism
            meets the target.
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
        "max-risk": max_risk,
    }
    _check_targets(targets, accountant)
    if baseline_risk is not None and max_risk is None:
        raise InputError("baseline-risk needs max-risk; give both, or leave it out")
    at = ASSUMED if delta is None else delta
    if rho_alpha is not None:
        return _met(sought, calibration.advantage_at_most(rho_alpha), at)
    if max_risk is not None:
        baseline = risks.BASELINE if baseline_risk is None else baseline_risk
        return _met(sought, calibration.success_at_most(max_risk, baseline), at)
    if rho_beta is not None:
        epsilon = identifiability.epsilon_of_rho_beta(rho_beta)
    assert epsilon is not None
    return _met_epsilon(sought, epsilon, at, accountant)


def _check_targets(targets: Mapping[str, object], accountant: str) -> None:
    """Raise InputError unless exactly one target is set, which the accountant can solve."""
    names = [name for name, value in targets.items() if value is not None]
    if len(names) != 1:
        raise InputError(
            "give exactly one of rho-beta, rho-alpha, epsilon and max-risk, such as rho-beta 0.9"
        )
    find_accountant(accountant)
    if names[0] in ("rho-alpha", "max-risk") and accountant != DEFAULT_ACCOUNTANT:
        raise InputError(
            f"the accountant is '{accountant}', but it has no effect on {names[0]}; leave it out"
        )


def _met(sought: Sought, requirement: Requirement, delta: float) -> Calibrated:
    """Return the mechanism that meets a requirement, with the bounds of every accountant."""
    releases = sought.answer(requirement)
    mechanism = releases.towards(sought.vantage)
    bounds = identifiability.bounds(mechanism, delta)
    rows = statements.accounted(mechanism, delta)
    return _calibrated(sought, releases, bounds, rows)


def _met_epsilon(sought: Sought, target: float, delta: float, accountant: str) -> Calibrated:
    """Return the mechanism that meets (epsilon, delta), with a row for every accountant."""

    def answer(name: str) -> Releases:
        return sought.answer(calibration.epsilon_at_most(target, delta, name))

    def row(name: str) -> Row:
        described = releases if name == accountant else answer(name)
        mechanism = described.towards(sought.vantage)
        values = statements.described(described, sought.vantage)
        return {
            **{key: values[key] for key in REPEATED if key in values},
            "rho_alpha": identifiability.rho_alpha(mechanism),
            "covers": find_accountant(name).covers,
            "note": find_accountant(name).note(mechanism, delta),
        }

    releases = answer(accountant)
    bounds = identifiability.bounds(releases.towards(sought.vantage), delta, accountant)
    # State the target itself if the result of the search differs only in its last digits.
    if math.isclose(bounds.epsilon, target, rel_tol=1e-6):
        rho_beta = identifiability.rho_beta_of_epsilon(target)
        bounds = replace(bounds, epsilon=target, rho_beta=rho_beta)
    names = dict.fromkeys([*ACCOUNTANTS, accountant])
    rows = {name: statements.or_refusal(row, name) for name in names}
    return _calibrated(sought, releases, bounds, rows)


def _calibrated(
    sought: Sought, releases: Releases, bounds: Bounds, rows: dict[str, Row]
) -> Calibrated:
    mechanism = releases.towards(sought.vantage)
    document: Row = {
        "found": sought.unknown,
        **statements.described(releases, sought.vantage),
        **asdict(bounds),
        "tail_limit": statements.tail_limit(mechanism, bounds.epsilon),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
        "risks": statements.risks_of(mechanism),
    }
    return Calibrated(releases, sought.vantage, bounds, document, unknown=sought.unknown)


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
        "noise multiplier, rounds and sampling rate are all given; leave one out to compute it, or "
        "use fedsim account for their guarantees"
    )
