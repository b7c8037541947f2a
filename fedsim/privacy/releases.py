"""A federation's releases: one description from which each vantage point's mechanism follows."""

from dataclasses import dataclass, replace

from adversaries.errors import InputError
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, effective_noise_multiplier
from fedsim.privacy.trust import Trust, Vantage


@dataclass(frozen=True)
class Rounds:
    """Rounds of the same kind, with the nominal noise multiplier of their noise."""

    noise_multiplier: float
    count: int = 1
    sampling_rate: float = 1.0
    local_steps: int = 1
    participants: int | None = None


@dataclass(frozen=True)
class Releases:
    """All releases of a federation.

    The bounds hold for a record whose client takes part in all rounds.

    Attributes:
        clipping_norm: None where only the ratio of the noise to it is known.
        summed_in_the_clear: whether the server sees single messages under distributed trust.
    """

    rounds: tuple[Rounds, ...]
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE
    trust: Trust = Trust.CENTRAL
    clients: int = 2
    clipping_norm: float | None = None
    colluders: int = 0
    summed_in_the_clear: bool = False
    joining_rate: float = 1.0

    def towards(self, vantage: Vantage) -> Mechanism:
        """Return the mechanism that this vantage point faces."""
        steps = (
            Steps(
                effective_noise_multiplier(
                    alike.noise_multiplier,
                    self.trust,
                    vantage,
                    self.clients,
                    alike.local_steps,
                    alike.participants,
                    self.colluders,
                    self.joining_rate,
                ),
                alike.count * alike.local_steps,
                alike.sampling_rate,
            )
            for alike in self.rounds
        )
        return Mechanism(tuple(steps), self.neighbouring)

    def under(self, trust: Trust) -> "Releases":
        return replace(self, trust=trust)

    def first(self, count: int) -> "Releases":
        """Return the first `count` rounds, or all if there are fewer.

        Raises InputError for a count below 1.
        """
        # Take whole groups of equal rounds until the count is used up; the last group may be cut.
        kept, left = [], count
        for alike in self.rounds:
            if left > 0:
                kept.append(replace(alike, count=min(alike.count, left)))
                left -= alike.count
        if not kept:
            raise InputError(f"{count} rounds release nothing; give at least 1")
        return replace(self, rounds=tuple(kept))

    def repeated(self, times: int) -> "Releases":
        rounds = (replace(alike, count=alike.count * times) for alike in self.rounds)
        return replace(self, rounds=tuple(rounds))

    @property
    def count(self) -> int:
        return sum(alike.count for alike in self.rounds)
