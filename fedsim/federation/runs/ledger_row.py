"""One round in a run's ledger: its clients, its noise and the epsilons after it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from fedsim.configuration.training import TrainingConfig
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.releases import Rounds

Place = tuple[int, int, int]
"""Batch of trials, attempt (0 with noise from the seed) and round."""

Release = tuple[Place, Rounds, tuple[int, ...], tuple[int, ...] | None]
"""The identity of a release: place, kind, charged clients, clients that answered."""

Spent = Mapping[int, Mapping[str, float]]
"""Client -> vantage -> epsilon."""


@dataclass(frozen=True)
class LedgerRow:
    """One round of one batch of trials.

    Attributes:
        noise_multiplier: nominal, with the actual noise; 0 without clipping, which has no bound.
        participants: charged clients; `ALL_CLIENTS` where the participants are secret.
        epsilon: of one training after this round, by counts that `rounded_up` may have rounded.
        released: the epsilon of all trainings of the run so far; empty with noise from the seed.
        shares: number of clients whose shares the noise has; None: of all that received a message.
        provisional: whether a row with the actual number of shares follows.
        present: clients that answered; None: all that received a message, or a row follows.
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
        """The rounds that this row adds to the account of a client that takes part."""
        shares = len(self.participants) if self.shares is None else self.shares
        return Rounds(self.noise_multiplier, 1, self.sampling_rate, self.local_steps, shares)

    @property
    def release(self) -> Release:
        """The identity of the release; equal for a round that is repeated with the same noise."""
        present = self.present
        if present is None and self.kind.participants == len(self.participants):
            present = self.participants
        return self.place, self.kind, self.participants, present

    @property
    def withdrawn(self) -> bool:
        """Whether it takes the charge of its round back, since no client sent anything."""
        return not self.participants and self.present == ()

    @property
    def place(self) -> Place:
        """The identity of the round; equal for a round that the seed repeats."""
        return self.batch, 0 if self.noise_source == "seed" else self.attempt, self.round

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Return a row of the file. Raises KeyError, TypeError or ValueError if it is malformed."""
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
    """Return one planned round, with as many clients missing as are tolerated."""
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
