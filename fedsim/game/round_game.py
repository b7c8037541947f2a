"""The question of a round of the game: did these trials train on D or on D'?"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RoundGame:
    """One round, its trials and the target, of which None is hidden or missing."""

    round: int
    trials: range
    noise_multiplier: float
    target_client: int
    record: int | None
    replacement: int | None

    @classmethod
    def of_message(
        cls,
        round: int,
        trials: range,
        noise_multiplier: float,
        target_client: int,
        record: int,
        replacement: int,
    ) -> "RoundGame":
        """Return the game of a message, in which record and replacement are -1 for None."""
        positions = (None if position < 0 else position for position in (record, replacement))
        return cls(round, trials, noise_multiplier, target_client, *positions)

    def at(self, round: int) -> "RoundGame":
        """Return the same game in another round."""
        return replace(self, round=round)

    @property
    def unit(self) -> int:
        """Index of the target among the units that a step samples: its record, or the client."""
        return self.target_client if self.record is None else self.record

    @property
    def the_record(self) -> int:
        """Position of the target record. Raises ValueError if it is a client, or unknown."""
        if self.record is None:
            raise ValueError("no single record is the target")
        return self.record
