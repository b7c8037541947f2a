"""The rows of a run's ledger, and what they add up to for each client.

Noise of the system is new in each attempt at a batch of trials, so all attempts add up. The seed
repeats its noise, so the last row of a round counts alone: it is for experiments, and no guarantee.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from fedsim.configuration.training import TrainingConfig
from fedsim.game.mechanisms.privacy import Counts, adds_up
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.releases import Rounds

Place = tuple[int, int, int]
"""Batch of trials, attempt (0 with noise from the seed) and round."""


@dataclass(frozen=True)
class LedgerRow:
    """One round of one batch of trials.

    Attributes:
        kind: the round, with its noise; 0 as its noise multiplier without clipping.
        clients: charged clients; `ALL_CLIENTS` where the participants are secret.
        present: clients that answered; None before that, or where none may be missing.
        colluders: clients that disclose their noise to the adversary.
    """

    batch: int
    trials: int
    attempt: int
    round: int
    kind: Rounds
    clients: tuple[int, ...]
    noise_source: str
    present: tuple[int, ...] | None = None
    colluders: tuple[int, ...] = ()

    @property
    def place(self) -> Place:
        """The identity of the release. The last row of a place counts."""
        return self.batch, self.attempt if adds_up(self.noise_source) else 0, self.round

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Return a row of the file. Raises KeyError, TypeError or ValueError if it is malformed."""
        if missing := {each.name for each in fields(cls)} - entry.keys():
            raise KeyError(min(missing))
        lists = {
            name: tuple(map(int, entry[name]))
            for name in ("clients", "present", "colluders")
            if entry[name] is not None
        }
        return cls(**{**entry, **lists, "kind": Rounds(**entry["kind"])})


def planned_kind(
    training: TrainingConfig, participation: Participation, nominal: float, round: int = 1
) -> Rounds:
    """Return one planned round, with as many clients missing as are tolerated."""
    multiplier = nominal if training.clipping else 0.0
    shares = participation.shares(round)
    return Rounds(multiplier, 1, participation.rate, training.local_steps, shares)


class Account:
    """The rounds of each client: of all trainings together, or of each batch as one training.

    Attributes:
        rows: the row that counts at each place.
    """

    def __init__(self, rows: Iterable[LedgerRow] = (), all_trials: bool = False) -> None:
        self.rows: dict[Place, LedgerRow] = {}
        self._all_trials = all_trials
        self._spent: dict[int, Counts] = {}
        for row in rows:
            self.add(row)

    def add(self, row: LedgerRow) -> None:
        for changed, count in self._changes(row):
            for client in changed.clients:
                counts = self._spent.setdefault(client, Counter())
                counts[changed.kind] += count
                if not counts[changed.kind]:
                    del counts[changed.kind]
        self.rows[row.place] = row

    def spent(self, client: int, more: LedgerRow | None = None) -> Counts:
        """Return the rounds of a client so far, or with one more row."""
        counts = Counter(self._spent.get(client, Counter()))
        for changed, count in () if more is None else self._changes(more):
            counts[changed.kind] += count * (client in changed.clients)
        return +counts

    @property
    def attempts(self) -> int:
        """The number of the last attempt; 0 before the first."""
        return max((row.attempt for row in self.rows.values()), default=0)

    @property
    def most(self) -> int:
        """The largest number of rounds of a client."""
        return max((counts.total() for counts in self._spent.values()), default=0)

    def _changes(self, row: LedgerRow) -> list[tuple[LedgerRow, int]]:
        """Return the row that a row replaces, and itself, with the number of rounds of each."""
        old = self.rows.get(row.place)
        count = row.trials if self._all_trials else 1
        return [(row, count)] if old is None else [(old, -count), (row, count)]


def by_batch(rows: Iterable[LedgerRow]) -> dict[int, Account]:
    """Return the account of every batch of trials by its first trial."""
    accounts: dict[int, Account] = {}
    for row in rows:
        accounts.setdefault(row.batch, Account()).add(row)
    return accounts


def kept(rows: Iterable[LedgerRow], done: int, noise_multiplier: float) -> list[LedgerRow]:
    """Return the rows that stay when a training continues after `done` rounds.

    Of later rounds nothing left but messages to clients, who give the same answers again, unless
    the noise is another since then.
    """
    return [
        row for row in rows if row.round <= done or row.kind.noise_multiplier != noise_multiplier
    ]
