"""The base class of all accountants: from a `Mechanism` and a delta to epsilon, and back."""

import math
import sys
from abc import ABC, abstractmethod
from typing import ClassVar

from adversaries.errors import InputError
from adversaries.statistics.intervals import check_positive_delta
from fedsim.privacy.mechanism import Mechanism


class Accountant(ABC):
    """Bounds the privacy of a mechanism, if it `covers` the kind."""

    name: ClassVar[str]
    title: ClassVar[str]
    covers: ClassVar[str]

    def supports(self, mechanism: Mechanism) -> str | None:
        """Return None if this accountant covers the mechanism, else the reason why it does not."""
        return None

    def note(self, mechanism: Mechanism, delta: float) -> str | None:
        """Return what a reader must know about epsilon(mechanism, delta), or None."""
        if mechanism.noiseless:
            return "no noise, no guarantee: epsilon is infinite"
        return None

    def epsilon(self, mechanism: Mechanism, delta: float) -> float:
        """Return an epsilon >= 0 for a delta in (0, 1), or inf.

        Raises InputError if unsupported.
        """
        self._check(mechanism)
        check_positive_delta(delta)
        return math.inf if mechanism.noiseless else self._epsilon(mechanism, delta)

    def delta(self, mechanism: Mechanism, epsilon: float) -> float:
        """Return a delta in (0, 1] for a finite epsilon >= 0.

        Raises InputError if unsupported.
        """
        self._check(mechanism)
        if not 0 <= epsilon < math.inf:
            raise InputError(f"epsilon is {epsilon}; give a finite number of at least 0")
        if mechanism.noiseless:
            return 1.0
        # No finite noise reaches delta = 0; this is the smallest normal float above it.
        return max(self._delta(mechanism, epsilon), sys.float_info.min)

    def _check(self, mechanism: Mechanism) -> None:
        reason = self.supports(mechanism)
        if reason is not None:
            raise InputError(f"the accountant {self.name} does not apply: {reason}")

    @abstractmethod
    def _epsilon(self, mechanism: Mechanism, delta: float) -> float: ...

    @abstractmethod
    def _delta(self, mechanism: Mechanism, epsilon: float) -> float: ...
