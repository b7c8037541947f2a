"""One round in a run's ledger: who was asked, under which noise, and what it came to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from fedsim.config.training import TrainingConfig
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.releases import Rounds

Place = tuple[int, int, int]
"""Batch of trials, attempt (0 where the noise is the seed's) and round."""

Release = tuple[Place, Rounds, tuple[int, ...], tuple[int, ...] | None]
"""What is one release: place, kind, who was asked, who was present."""

Spent = Mapping[int, Mapping[str, float]]
"""Client -> vantage -> epsilon."""


@dataclass(frozen=True)
class Row:
    """One round of one batch of trials.

    Attributes:
        batch: its first trial.
        trials: how many it has.
        attempt: counts from 1.
        round: counts from 1.
        noise_multiplier: nominal, as realised, and 0 where no clipping gives it a meaning.
        sampling_rate: q.
        local_steps: of a client within the round.
        participants: the clients that are charged, `ALL_CLIENTS` where it is secret who joined.
        noise_source: "seed" or "system".
        delta: at which epsilons are.
        epsilon: what one training has spent after this round, inf without noise, by counts that
            `rounded_up` may have rounded.
        released: the same of all trainings of the run so far, empty where the noise is the seed's.
        shares: of how many clients the noise is, None for that of all who were asked.
        provisional: whether a row with the true number of shares is to follow.
        present: the clients that came, None where those who were asked did, or a row is to follow.
        colluders: the clients that disclosed their noise.
    """

    batch: int
    trials: int
    attempt: int
    round: int
    noise_multiplier: float
    sampling_rate: float
    local_steps: int
    participants: tuple[int, ...]
    noise_source: str
    delta: float
    epsilon: Spent
    released: Spent
    shares: int | None = None
    provisional: bool = False
    present: tuple[int, ...] | None = None
    colluders: tuple[int, ...] = ()

    @property
    def kind(self) -> Rounds:
        """What the round adds to the account of a client that takes part."""
        shares = len(self.participants) if self.shares is None else self.shares
        return Rounds(self.noise_multiplier, 1, self.sampling_rate, self.local_steps, shares)

    @property
    def release(self) -> Release:
        """What was released; equal for a round that is repeated with the same noise."""
        present = self.present
        if present is None and self.kind.participants == len(self.participants):
            present = self.participants
        return self.place, self.kind, self.participants, present

    @property
    def place(self) -> Place:
        """Which round it is; equal for one that the seed repeats."""
        return self.batch, 0 if self.noise_source == "seed" else self.attempt, self.round

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Return a row of the file.

        Raises KeyError if a value is missing.
        Raises TypeError if a value is of another kind.
        Raises ValueError if a value is no number.
        """
        spent = {
            name: {
                int(client): {
                    place: math.inf if e is None else float(e) for place, e in row.items()
                }
                for client, row in entry[name].items()
            }
            for name in ("epsilon", "released")
        }
        clients = {
            name: tuple(map(int, entry[name]))
            for name in ("participants", "present", "colluders")
            if entry[name] is not None
        }
        if missing := {each.name for each in fields(cls)} - entry.keys():
            raise KeyError(min(missing))
        return cls(**{**entry, **clients, **spent})


def planned_kind(
    training: TrainingConfig, participation: Participation, nominal: float, round: int = 1
) -> Rounds:
    """Return one round as the configuration plans it, with as many clients missing as may be.

    round: counts from 1; all are alike but where it is public who joins them.
    """
    return Rounds(
        nominal if training.clipping else 0.0,
        1,
        participation.rate,
        training.local_steps,
        participation.shares(round),
    )


def planned_course(
    training: TrainingConfig, participation: Participation, nominal: float, rounds: int
) -> list[tuple[Rounds, frozenset[int]]]:
    """Return the first planned rounds: the kind of each, and the accounts that it is charged to."""
    return [
        (
            planned_kind(training, participation, nominal, round),
            frozenset(participation.charged(round)),
        )
        for round in range(1, rounds + 1)
    ]
