"""The privacy accounts of the clients, by the rows of a ledger. Each release counts once.

New noise makes a new release; the seed's noise repeats one, which counts once, unless the clients
differ: then the difference of the two sums bares the clients of one of them. Such a round is
refused before its sum is released; one in a ledger counts as without noise.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fedsim.federation.runs.ledger_row import LedgerRow, Place, Release
from fedsim.game.mechanisms.privacy import Counts
from fedsim.privacy.releases import Rounds
from fedsim.privacy.trust.model import Vantage

HELPED = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that colluders help."""


@dataclass
class Account:
    """The releases of all trainings, or one batch, and their cost for every client, each once."""

    all_trials: bool = False
    attempts: int = 0
    releases: dict[Release, Rounds] = field(default_factory=dict)
    counts: dict[int, Counts] = field(default_factory=dict)
    settled: set[Place] = field(default_factory=set)
    pending: dict[Place, LedgerRow] = field(default_factory=dict)
    colluders: set[int] = field(default_factory=set)

    def add(self, row: LedgerRow) -> None:
        self.attempts = max(self.attempts, row.attempt)
        self.colluders.update(row.colluders)
        if row.withdrawn:
            self._withdraw(row)
            return
        if self.has(row):
            return
        kind = self.counts_as(row)
        if row.provisional:
            self.pending[row.place] = row
        else:
            if (superseded := self.pending.pop(row.place, None)) is not None:
                for client in superseded.participants:
                    self.counts[client] -= self._cost(superseded, superseded.kind)
            self.releases[row.release] = kind
            self.settled.add(row.place)
        cost = self._cost(row, kind)
        for client in row.participants:
            self.counts.setdefault(client, Counter()).update(cost)

    def _withdraw(self, row: LedgerRow) -> None:
        charged = {release: self.releases.pop(release) for release in self._at(row.place)}
        costs = [(release[2], kind) for release, kind in charged.items()]
        if (pending := self.pending.pop(row.place, None)) is not None:
            costs.append((pending.participants, pending.kind))
        for participants, kind in costs:
            for client in participants:
                self.counts[client] -= self._cost(row, kind)
        self.settled.discard(row.place)

    def _at(self, place: Place) -> list[Release]:
        return [release for release in self.releases if release[0] == place]

    def has(self, row: LedgerRow) -> bool:
        """Return whether a row repeats a release of the account, or a settled round."""
        if row.provisional:
            return row.place in self.pending or row.place in self.settled
        return row.release in self.releases and row.place not in self.pending

    def clashes(self, row: LedgerRow) -> bool:
        """Return whether a row repeats the noise of a settled round with another release."""
        repeats = row.noise_source == "seed" and not row.provisional and row.place in self.settled
        return repeats and row.release not in self.releases

    def counts_as(self, row: LedgerRow) -> Rounds:
        """Return the rounds that a row adds; without noise where it clashes."""
        return replace(row.kind, noise_multiplier=0.0) if self.clashes(row) else row.kind

    def after(self, row: LedgerRow, client: int) -> Counts:
        """Return the rounds of a client, with one more row among them."""
        counts = Counter(self.spent(client))
        if self.has(row):
            return counts
        if (superseded := self.pending.get(row.place)) is not None and not row.provisional:
            counts -= self._cost(superseded, superseded.kind)
        return counts + self._cost(row, self.counts_as(row))

    def spent(self, client: int) -> Counts:
        return self.counts.get(client, Counter())

    @property
    def most(self) -> int:
        return max((counts.total() for counts in self.counts.values()), default=0)

    def copy(self) -> "Account":
        counts = {client: Counter(spent) for client, spent in self.counts.items()}
        return replace(
            self,
            releases=dict(self.releases),
            counts=counts,
            settled=set(self.settled),
            pending=dict(self.pending),
            colluders=set(self.colluders),
        )

    def _cost(self, row: LedgerRow, kind: Rounds) -> Counts:
        return Counter({kind: row.trials if self.all_trials else 1})


def by_batch(rows: Iterable[LedgerRow]) -> dict[int, Account]:
    """Return the account of every batch of trials by its first trial."""
    accounts: dict[int, Account] = {}
    for row in rows:
        accounts.setdefault(row.batch, Account()).add(row)
    return accounts


def together(rows: Iterable[LedgerRow]) -> Account:
    account = Account(all_trials=True)
    for row in rows:
        account.add(row)
    return account
