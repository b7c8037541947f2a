"""The rows of a run's ledger, and what they add up to for each client. Each release counts once.

New noise makes a new release; the seed's noise repeats one, which counts once, unless the clients
or the multiplier differ: then two sums together tell what no noise covers. Such a sum of other
clients is refused before its release; one in a ledger counts as without noise.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
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

    @property
    def release(self) -> tuple[object, ...]:
        """The identity of the release; equal for a round that is repeated with the same noise."""
        present = self.present
        if present is None and self.kind.participants == len(self.participants):
            present = self.participants
        return self.place, self.kind, self.participants, present

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


Entries = tuple[tuple[LedgerRow, Rounds], ...]
"""The rows of one place that count, and the rounds that each adds."""


@dataclass
class Book:
    """What rows add up to: all trainings together, or each batch as one training.

    Attributes:
        counted: what counts at each place.
        attempts: number of the last attempt.
    """

    all_trials: bool = False
    counted: dict[Place, Entries] = field(default_factory=dict)
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
        for clients, kind, count in self._changes(row):
            for client in clients:
                counts = self._counts.setdefault(client, Counter())
                counts[kind] += count
                if not counts[kind]:
                    del counts[kind]
        self.counted[row.place] = self._after(row)

    def spent(self, client: int, more: LedgerRow | None = None) -> Counts:
        """Return the rounds of a client so far, or with one more row."""
        counts = Counter(self._counts.get(client, Counter()))
        for clients, kind, count in () if more is None else self._changes(more):
            counts[kind] += count * (client in clients)
        return +counts

    def clashes(self, row: LedgerRow) -> bool:
        """Return whether a row repeats the noise of a settled round with another release."""
        settled = [old.release for old, _ in self.counted.get(row.place, ()) if not old.provisional]
        repeats = row.noise_source == "seed" and not row.provisional and bool(settled)
        return repeats and row.release not in settled

    @property
    def most(self) -> int:
        """The largest number of rounds of a client."""
        return max((counts.total() for counts in self._counts.values()), default=0)

    def _after(self, row: LedgerRow) -> Entries:
        """Return what counts at the place of a row once the row is added."""
        entries = self.counted.get(row.place, ())
        if row.provisional:
            return entries or ((row, row.kind),)
        settled = tuple(each for each in entries if not each[0].provisional)
        if row.release in [old.release for old, _ in settled]:
            return settled
        clear = replace(row.kind, noise_multiplier=0.0)
        return (*settled, (row, clear if self.clashes(row) else row.kind))

    def _changes(self, row: LedgerRow) -> list[tuple[tuple[int, ...], Rounds, int]]:
        """Return clients, kind and number of the rounds that a row adds, or takes back."""
        before, after = self.counted.get(row.place, ()), self._after(row)
        if before == after:
            return []
        trials = row.trials if self.all_trials else 1
        return [(old.participants, kind, -trials) for old, kind in before] + [
            (new.participants, kind, trials) for new, kind in after
        ]


def by_batch(rows: Iterable[LedgerRow]) -> dict[int, Book]:
    """Return the book of every batch of trials by its first trial."""
    books: dict[int, Book] = {}
    for row in rows:
        books.setdefault(row.batch, Book()).add(row)
    return books
