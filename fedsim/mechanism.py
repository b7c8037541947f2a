"""The mechanism that stands between one person's record and an onlooker.

A mechanism is k steps of clipped sums with Gaussian noise. Its noise multiplier is the standard
deviation of the noise over the sensitivity of the sum, so it means the same under every clipping
norm and neighbouring relation. Who adds the noise (trust) and who looks (vantage) decide how much
of it hides the record.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from fedsim.errors import InputError


class Neighbouring(StrEnum):
    """How D and D' differ: one record is missing, or is replaced by another."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"


class Trust(StrEnum):
    """Who adds the noise: the server; every owner its own; every owner a share of it."""

    CENTRAL = "central"
    LOCAL = "local"
    DISTRIBUTED = "distributed"


class Vantage(StrEnum):
    """What the adversary sees: every message; the aggregate of each round; the last model."""

    SERVER = "server"
    PARTICIPANT = "participant"
    RELEASED_MODEL = "released-model"


@dataclass(frozen=True)
class Mechanism:
    """k Gaussian steps, each on a Poisson sample of the records if the sampling rate is below 1.

    noise_multiplier: noise standard deviation over the sensitivity; 0 for no noise, else between
        1e-6 and 1e100, outside of which double precision has no answer
    steps: number k of noisy sums that are released, at most 1e9
    sampling_rate: probability that a record takes part in a step, in (0, 1]
    neighbouring: the relation between the two worlds

    Raises InputError for values outside these ranges.
    """

    noise_multiplier: float
    steps: int
    sampling_rate: float = 1.0
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE

    def __post_init__(self) -> None:
        _check_noise_multiplier(self.noise_multiplier)
        if self.noise_multiplier and not 1e-6 <= self.noise_multiplier <= 1e100:
            raise InputError(
                f"the noise multiplier is {self.noise_multiplier:g}; give 0 for no noise, or a "
                "number between 1e-6 and 1e100"
            )
        if not 1 <= self.steps <= 10**9:
            raise InputError(f"the number of steps is {self.steps}; give 1 to 1000000000")
        if not 0 < self.sampling_rate <= 1:
            raise InputError(
                f"the sampling rate is {self.sampling_rate}; give the share of records in a step, "
                "above 0 and at most 1 (1: all records in every step)"
            )

    @property
    def mu(self) -> float:
        """The composed signal-to-noise ratio sqrt(k)/z of the steps were they not subsampled."""
        if self.noise_multiplier == 0:
            return math.inf
        return math.sqrt(self.steps) / self.noise_multiplier

    @property
    def participation(self) -> float:
        """The probability that the record takes part in any step at all."""
        if self.sampling_rate == 1:
            return 1.0
        return -math.expm1(self.steps * math.log1p(-self.sampling_rate))


def sensitivity(neighbouring: Neighbouring, clipping_norm: float) -> float:
    """Return how far one record can move a sum of vectors clipped to this norm: C, or 2C (replace).

    Raises InputError unless the clipping norm is positive and finite.
    """
    if not 0 < clipping_norm < math.inf:
        raise InputError(f"the clipping norm is {clipping_norm}; give a positive number")
    return 2 * clipping_norm if neighbouring is Neighbouring.REPLACE else clipping_norm


def effective_noise_multiplier(
    noise_multiplier: float, trust: Trust, vantage: Vantage, owners: int, local_steps: int = 1
) -> float:
    """Return the noise multiplier that this vantage point faces; 0.0 where it sees clean sums.

    noise_multiplier: nominal, that is of the server's noise (central), of one owner's own noise
        (local), or of all owners' shares together (distributed, which needs secure aggregation)
    local_steps: noisy steps that an owner takes on its own model within a round

    A participant subtracts its own contribution and its own noise. The released model gets the
    participant's multiplier, because less is seen: an upper bound on its risk.

    With several local steps every vantage point faces one owner's own noise and no more: an owner's
    next step is taken at its own noisy iterate, which other owners' noise does not hide, so the
    bound presumes that all iterates are released. Raises InputError for a negative multiplier,
    fewer than two owners, fewer than one local step, or several without local trust.
    """
    _check_noise_multiplier(noise_multiplier)
    return noise_multiplier * _share(trust, vantage, owners, local_steps)


def nominal_noise_multiplier(
    noise_multiplier: float, trust: Trust, vantage: Vantage, owners: int, local_steps: int = 1
) -> float:
    """Return the nominal multiplier under which this vantage point faces the given effective one.

    The inverse of `effective_noise_multiplier`. Raises InputError as it does, and where no noise
    helps: towards the server under central trust.
    """
    _check_noise_multiplier(noise_multiplier)
    share = _share(trust, vantage, owners, local_steps)
    if share == 0:
        raise InputError(
            "no noise helps: under central trust the server sees every owner's sum before it adds "
            "noise; choose trust local or distributed, or another vantage"
        )
    return noise_multiplier / share


def _check_noise_multiplier(noise_multiplier: float) -> None:
    """Raise InputError unless the noise multiplier is finite and not negative."""
    if not 0 <= noise_multiplier < math.inf:
        raise InputError(
            f"the noise multiplier is {noise_multiplier}; give a finite number of at least 0"
        )


def _share(trust: Trust, vantage: Vantage, owners: int, local_steps: int) -> float:
    if owners < 2:
        raise InputError(f"the federation has {owners} owners; give at least 2")
    if local_steps < 1:
        raise InputError(f"the number of local steps is {local_steps}; give at least 1")
    if local_steps > 1:
        if trust is not Trust.LOCAL:
            raise InputError(
                f"{local_steps} local steps under {trust.value} trust: each owner must add the "
                "noise itself before its next step; choose trust local, or 1 local step"
            )
        return 1.0
    if vantage is Vantage.SERVER:
        return 0.0 if trust is Trust.CENTRAL else 1.0
    match trust:
        case Trust.CENTRAL:
            return 1.0
        case Trust.LOCAL:
            return math.sqrt(owners - 1)
        case Trust.DISTRIBUTED:
            return math.sqrt((owners - 1) / owners)
