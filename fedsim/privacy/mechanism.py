"""The mechanism between one person's record and an observer: k steps of clipped sums with noise.

A noise multiplier is the standard deviation of the noise divided by the sensitivity of the sum, so
it means the same under every clipping norm and neighbouring relation.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from adversaries.errors import InputError
from fedsim.privacy.trust import Trust, Vantage

MOST_STEPS = 10**9
LEAST_NOISE = 1e-6
"""Least noise multiplier above 0 for which double precision suffices."""


class Neighbouring(StrEnum):
    """How D and D' differ: one record is missing, or is replaced by another."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"


@dataclass(frozen=True)
class Steps:
    """Gaussian steps of the same kind, each on a Poisson sample if sampling_rate is below 1.

    Raises InputError for values outside these ranges.

    Attributes:
        noise_multiplier: noise standard deviation over the sensitivity; 0 for no noise, else
            between 1e-6 and 1e100, where double precision suffices.
        count: number of noisy sums that are released, 1 to 1e9.
        sampling_rate: probability that a record takes part in a step, in (0, 1]; 1 is a full batch.
    """

    noise_multiplier: float
    count: int = 1
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        if self.noise_multiplier and not LEAST_NOISE <= self.noise_multiplier <= 1e100:
            raise InputError(
                f"the noise multiplier is {self.noise_multiplier:g}; give a number between "
                f"{LEAST_NOISE:g}, which hides nothing, and 1e100"
            )
        if not 1 <= self.count <= MOST_STEPS:
            raise InputError(f"the number of steps is {self.count}; give 1 to {MOST_STEPS}")
        if not 0 < self.sampling_rate <= 1:
            raise InputError(
                f"the sampling rate is {self.sampling_rate}; give the share of records in a step, "
                "above 0 and at most 1 (1: all records in every step)"
            )


@dataclass(frozen=True)
class Mechanism:
    """Gaussian steps one after the other, as one vantage point faces them.

    Attributes:
        groups: steps by kind, merged and sorted so that equal mechanisms compare equal.
    """

    groups: tuple[Steps, ...]
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE

    def __post_init__(self) -> None:
        # Equal kinds of steps are merged and sorted, so that equal mechanisms are equal keys of the
        # caches.
        counts: dict[tuple[float, float], int] = {}
        for group in self.groups:
            kind = group.noise_multiplier, group.sampling_rate
            counts[kind] = counts.get(kind, 0) + group.count
        if not counts:
            raise InputError("a mechanism of no steps releases nothing; give at least one step")
        if sum(counts.values()) > MOST_STEPS:
            raise InputError(f"there are {sum(counts.values())} steps; give at most {MOST_STEPS}")
        merged = tuple(Steps(z, count, q) for (z, q), count in sorted(counts.items()))
        object.__setattr__(self, "groups", merged)
        object.__setattr__(self, "_hash", hash((merged, self.neighbouring)))

    def __hash__(self) -> int:
        """Return the hash, which is computed once: thousands of groups take a while."""
        return getattr(self, "_hash")  # noqa: B009  (set past the frozen dataclass)

    @classmethod
    def alike(
        cls,
        noise_multiplier: float,
        steps: int,
        sampling_rate: float = 1.0,
        neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    ) -> Self:
        """Return the mechanism whose steps are all alike."""
        return cls((Steps(noise_multiplier, steps, sampling_rate),), neighbouring)

    @property
    def steps(self) -> int:
        """The number of noisy sums that are released."""
        return sum(group.count for group in self.groups)

    @property
    def noiseless(self) -> bool:
        return any(group.noise_multiplier == 0 for group in self.groups)

    @property
    def sampled(self) -> bool:
        """Whether any step takes a sample of the records."""
        return any(group.sampling_rate < 1 for group in self.groups)

    @property
    def mu(self) -> float:
        """The composed signal-to-noise ratio sqrt(sum 1/z^2) of the steps without sampling."""
        if self.noiseless:
            return math.inf
        return math.sqrt(sum(group.count * group.noise_multiplier**-2 for group in self.groups))

    @property
    def participation(self) -> float:
        """The probability that the record takes part in any step at all."""
        if any(group.sampling_rate == 1 for group in self.groups):
            return 1.0
        # 1 - prod (1 - q)^count, in logs so that tiny rates keep their digits.
        return -math.expm1(
            sum(group.count * math.log1p(-group.sampling_rate) for group in self.groups)
        )

    def unsampled(self) -> "Mechanism":
        groups = (Steps(group.noise_multiplier, group.count) for group in self.groups)
        return Mechanism(tuple(groups), self.neighbouring)


def sensitivity(neighbouring: Neighbouring, clipping_norm: float) -> float:
    """Return how far one record can move a clipped sum: C, or 2C under replace; else InputError."""
    if not 0 < clipping_norm < math.inf:
        raise InputError(f"the clipping norm is {clipping_norm}; give a positive number")
    return 2 * clipping_norm if neighbouring is Neighbouring.REPLACE else clipping_norm


def changes_of_record(unit: str, neighbouring: Neighbouring) -> int:
    """Return how many sensitivities one record can move a client's message.

    Any change of a client's records moves its clipped update by at most 2C. That is one sensitivity
    under replace, and two under add-remove, where the sensitivity C is for all records together.

    unit: "record" or "client".
    """
    return 2 if unit == "client" and neighbouring is Neighbouring.ADD_REMOVE else 1


def effective_noise_multiplier(
    noise_multiplier: float,
    trust: Trust,
    vantage: Vantage,
    clients: int,
    local_steps: int = 1,
    participants: int | None = None,
    colluders: int = 0,
    joining_rate: float = 1.0,
) -> float:
    """Return the noise multiplier that this vantage point faces; 0.0 where it sees clean sums.

    A participant subtracts its own contribution, its own noise and the colluders' noise. The server
    under distributed trust sees the sum only and subtracts the colluders' noise. Under local trust
    it sees the client's message by itself, which holds that client's noise only. The released model
    gets the participant's multiplier, an upper bound on its risk, because it shows less. The
    record's client never discloses its noise, so one share of it always remains.

    With several local steps every vantage point faces only the noise of one client. A client takes
    its next step at its own noisy iterate, which other clients' noise does not hide, so the bound
    assumes that all iterates are released.

    noise_multiplier: nominal: of the server's noise (central), of one client's noise (local), or of
    all clients' shares together (distributed, which needs secure aggregation).
    clients: number of clients, at least 2.
    local_steps: noisy steps of a client within a round; more than one only under local trust.
    participants: number of clients that take part, the record's among them; None for all. Each
    missing client takes its noise away, except under central trust.
    colluders: number of clients besides the adversary that disclose their noise, at most
    clients - 2. They are assumed to take part, which leaves the least noise.
    joining_rate: probability that a client joins a round. The expected number of clients together
    adds the nominal noise (distributed).
    Raises InputError for a number out of range, or several local steps without local trust.
    """
    check_noise_multiplier(noise_multiplier)
    if clients < 2:
        raise InputError(f"the federation has {clients} clients; give at least 2")
    check_colluders(colluders, clients)
    present = clients if participants is None else participants
    if not 1 <= present <= clients:
        raise InputError(f"{present} of {clients} clients take part; give 1 to {clients}")
    if local_steps < 1:
        raise InputError(f"the number of local steps is {local_steps}; give at least 1")
    if local_steps > 1:
        if not trust.model.local_steps:
            raise InputError(
                f"{local_steps} local steps under {trust.value} trust: each client must add the "
                "noise itself before its next step; choose trust local, or 1 local step"
            )
        return noise_multiplier
    sources = trust.model.unknown_sources(vantage, present, colluders)
    return aggregate_noise_multiplier(noise_multiplier, trust, joining_rate * clients, sources)


def aggregate_noise_multiplier(
    noise_multiplier: float, trust: Trust, clients: float, sources: int
) -> float:
    """Return the noise multiplier of a sum for an observer that knows part of its noise.

    This is the general rule behind `effective_noise_multiplier`. Where clients add noise, at least
    one source counts: the record's client, without which there is nothing to hide.

    sources: number of clients whose noise is unknown; under central trust 1 if the server's noise
    is unknown, else 0.
    Raises InputError for a multiplier that is negative or not finite.
    """
    check_noise_multiplier(noise_multiplier)
    return noise_multiplier * trust.model.noise_share(clients, sources)


def check_noise_multiplier(noise_multiplier: float) -> None:
    if not 0 <= noise_multiplier < math.inf:
        raise InputError(
            f"the noise multiplier is {noise_multiplier}; give a finite number of at least 0"
        )


def check_colluders(colluders: int, clients: int) -> None:
    """Raise InputError unless 0 <= colluders <= clients - 2."""
    if not 0 <= colluders <= clients - 2:
        raise InputError(
            f"{colluders} of {clients} clients collude with the adversary; give 0 to "
            f"{clients - 2}, because neither the adversary nor the record's client counts as one"
        )
