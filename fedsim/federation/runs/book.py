"""The rows of a run's ledger, and what they add up to for each client. Each release counts once.

New noise makes a new release. The seed's noise repeats one, which counts once, at the fewest shares
that it had: such noise protects no record from a party that knows the seed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from fedsim.configuration.training import TrainingConfig
from fedsim.game.mechanisms.privacy import Counts
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.releases import Rounds

Place = tuple[int, int, int]
"""Batch of trials, attempt (0 with noise from the seed) and round."""


@dataclass(frozen=True)
class LedgerRow:
    """One round of one batch of trials.

    Attributes:
        noise_multiplier: nominal, with the actual noise; 0 without clipping, which has no bound.
        participants: charged clients; `ALL_CLIENTS` where the participants are secret.
        shares: number of clients whose shares the noise has; None: of all that received a message.
        provisional: whether a row with the actual number of shares follows.
        present: clients that answered; None: all that received a message, or a row follows.
        colluders: clients that disclose their noise to the adversary.
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
    def place(self) -> Place:
        """The identity of the round; equal for a round that the seed repeats."""
        return self.batch, 0 if self.noise_source == "seed" else self.attempt, self.round

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Return a row of the file. Raises KeyError, TypeError or ValueError if it is malformed."""
        if missing := {each.name for each in fields(cls)} - entry.keys():
            raise KeyError(min(missing))
        lists = {
            name: tuple(map(int, entry[name]))
            for name in ("participants", "present", "colluders")
            if entry[name] is not None
        }
        return cls(**{**entry, **lists})


def planned_kind(
    training: TrainingConfig, participation: Participation, nominal: float, round: int = 1
) -> Rounds:
    """Return one planned round, with as many clients missing as are tolerated."""
    multiplier = nominal if training.clipping else 0.0
    shares = participation.shares(round)
    return Rounds(multiplier, 1, participation.rate, training.local_steps, shares)


@dataclass
class Book:
    """What rows add up to: all trainings together, or each batch as one training.

    Attributes:
        counted: the row that counts at each place.
        attempts: number of the last attempt.
    """

    all_trials: bool = False
    counted: dict[Place, LedgerRow] = field(default_factory=dict)
    attempts: int = 0
    _counts: dict[int, Counts] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[LedgerRow], all_trials: bool = False) -> Self:
        book = cls(all_trials)
        for row in rows:
            book.add(row)
        return book

    def add(self, row: LedgerRow) -> None:
        self.attempts = max(self.attempts, row.attempt)
        for changed, count in self._changes(row):
            for client in changed.participants:
                counts = self._counts.setdefault(client, Counter())
                counts[changed.kind] += count
                if not counts[changed.kind]:
                    del counts[changed.kind]
        self.counted[row.place] = self._at_its_place(row)

    def spent(self, client: int, more: LedgerRow | None = None) -> Counts:
        """Return the rounds of a client so far, or with one more row."""
        counts = Counter(self._counts.get(client, Counter()))
        for changed, count in () if more is None else self._changes(more):
            counts[changed.kind] += count * (client in changed.participants)
        return +counts

    @property
    def most(self) -> int:
        """The largest number of rounds of a client."""
        return max((counts.total() for counts in self._counts.values()), default=0)

    def _at_its_place(self, row: LedgerRow) -> LedgerRow:
        """Return which row counts at the place of another once that is added."""
        old = self.counted.get(row.place)
        if old is None or (old.provisional and not row.provisional):
            return row
        fewer = (row.kind.participants or 0) < (old.kind.participants or 0)
        return row if fewer and not row.provisional else old

    def _changes(self, row: LedgerRow) -> list[tuple[LedgerRow, int]]:
        """Return the rows that count from now on, or no more, each with how often."""
        old, new = self.counted.get(row.place), self._at_its_place(row)
        trials = row.trials if self.all_trials else 1
        if old is new:
            return []
        return [(new, trials)] if old is None else [(old, -trials), (new, trials)]


def by_batch(rows: Iterable[LedgerRow]) -> dict[int, Book]:
    """Return the book of every batch of trials by its first trial."""
    books: dict[int, Book] = {}
    for row in rows:
        books.setdefault(row.batch, Book()).add(row)
    return books
