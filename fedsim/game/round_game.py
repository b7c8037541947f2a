"""What a round of the game is about, for whoever is asked or tries to answer."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RoundGame:
    """One round: did these trials train on D or on D'?

    Attributes:
        round: counts from 1.
        trials: the numbers of the T trials.
        noise_multiplier: the federation's, sigma over the sensitivity.
        target_client: who holds the target record, or is the target.
        record: position of x^ in D, None where the target is a client, or for a client whom it does
            not concern.
        replacement: position of x^' in the pool, None where nothing replaces the record.
    """

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
        """Return the game as a message says it.

        noise_multiplier: sigma over the sensitivity.
        record: position of x^ in D, -1 for None.
        replacement: position of x^' in the pool, -1 for None.
        """
        there = (None if position < 0 else position for position in (record, replacement))
        return cls(round, trials, noise_multiplier, target_client, *there)

    def at(self, round: int) -> "RoundGame":
        """Return the same game in another round."""
        return replace(self, round=round)

    @property
    def unit(self) -> int:
        """The target among those that a step samples: its record, or the client itself."""
        return self.target_client if self.record is None else self.record

    @property
    def the_record(self) -> int:
        """The target record.

        Raises ValueError if the target is a client, or this client is not to know it.
        """
        if self.record is None:
            raise ValueError("no single record is the target")
        return self.record
