"""A claim of differential privacy, which every audit judges."""

import math
from dataclasses import dataclass
from enum import StrEnum

from adversaries.errors import InputError
from fedsim.privacy.trust.model import Vantage

ROUNDING = 1e-6
"""Relative excess of a computed epsilon over a claimed one that every audit takes as rounding."""


class Scope(StrEnum):
    """Scope of a claim: everything that the run releases, or each message or round of it."""

    RUN = "run"
    ROUND = "round"


@dataclass(frozen=True)
class Claim:
    """A statement that a run, or a round of it, is (epsilon, delta)-private.

    Attributes:
        epsilon: finite, at least 0.
        delta: strictly between 0 and 1.
        scope: the whole run, or each of its rounds or messages.
        source: author of the claim, as the report names it.
        vantage: observer that it protects against. None: the configuration decides.
        unit: protected unit. "client": a client's whole update, as its training returns it.
            "record": one record of a client's data. None: unstated.

    Raises:
        InputError: epsilon or delta is outside its range.
    """

    epsilon: float
    delta: float
    scope: Scope = Scope.RUN
    source: str = "given"
    vantage: Vantage | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise InputError(f"The claimed epsilon is {self.epsilon}; it must be at least 0.")
        if not 0 < self.delta < 1:
            raise InputError(f"The claimed delta is {self.delta}; it must be above 0 and below 1.")

    def allows(self, epsilon: float) -> bool:
        """Return whether a computed epsilon is at most the claimed one, up to rounding."""
        return epsilon <= self.epsilon * (1 + ROUNDING)


def claim_given(epsilon: float | None, delta: float | None, unit: str | None) -> Claim | None:
    """Return the claim that the user of an audit states; None for no claim.

    Args:
        epsilon: of the whole run, finite and at least 0.
        delta: strictly between 0 and 1; needed with epsilon.
        unit: "client" or "record"; None: unstated.

    Raises:
        InputError: epsilon or delta is missing.
    """
    if epsilon is None and delta is None and unit is None:
        return None
    if epsilon is None or delta is None:
        raise InputError("A claim needs both the claimed epsilon and the claimed delta.")
    return Claim(epsilon, delta, unit=unit)
