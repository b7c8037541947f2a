"""What the rows of a ledger come to at every client's cost, each release counted once.

A restart draws fresh noise from the operating system, and what the interrupted attempt released
stays spent. From the seed it releases the same values again, which count once. A client is charged
for the rounds that it was asked in.

The same noise under other data hides nothing: two sums of one round with noise from the seed differ
by what the clients sent that are in one of them alone, under no noise but their own, and the models
after them by sums without any. So a restart from the seed whose round has other clients present
than an attempt before is refused before its sum is released. Where a ledger holds such a pair all
the same, the later round counts as one without noise: epsilon is infinite from then on.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fedsim.federation.runs.ledger_row import Place, Release, Row
from fedsim.game.mechanisms.composition import Counts
from fedsim.privacy.releases import Rounds
from fedsim.privacy.trust.model import Vantage

HELPED = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that colluders help."""


@dataclass
class Account:
    """What was released, each release once, and at every client's cost.

    Attributes:
        all_trials: whether it is of all trainings, of all rows; else of one training, of the rows
            of its batch of trials.
        attempts: the number of the last one.
        releases: what each counted as.
        counts: the rounds of every client.
        settled: the places of the rows that are not provisional.
        pending: the provisional rows that no other has followed so far, by their place.
        colluders: the clients that disclosed their noise.
    """

    all_trials: bool = False
    attempts: int = 0
    releases: dict[Release, Rounds] = field(default_factory=dict)
    counts: dict[int, Counts] = field(default_factory=dict)
    settled: set[Place] = field(default_factory=set)
    pending: dict[Place, Row] = field(default_factory=dict)
    colluders: set[int] = field(default_factory=set)

    def add(self, row: Row) -> None:
        """Enter a round."""
        self.attempts = max(self.attempts, row.attempt)
        self.colluders.update(row.colluders)
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

    def has(self, row: Row) -> bool:
        """Return whether a row is about what is there: the same release, or a settled round."""
        if row.provisional:
            return row.place in self.pending or row.place in self.settled
        return row.release in self.releases and row.place not in self.pending

    def clashes(self, row: Row) -> bool:
        """Return whether a row is of the noise of a settled round, but was not the same release."""
        repeats = row.noise_source == "seed" and not row.provisional and row.place in self.settled
        return repeats and row.release not in self.releases

    def counts_as(self, row: Row) -> Rounds:
        """Return what a row adds to an account: a round without noise where it `clashes`."""
        return replace(row.kind, noise_multiplier=0.0) if self.clashes(row) else row.kind

    def after(self, row: Row, client: int) -> Counts:
        """Return the rounds of a client with one more row among them."""
        counts = Counter(self.spent(client))
        if self.has(row):
            return counts
        if (superseded := self.pending.get(row.place)) is not None and not row.provisional:
            counts -= self._cost(superseded, superseded.kind)
        return counts + self._cost(row, self.counts_as(row))

    def spent(self, client: int) -> Counts:
        """Return the rounds of a client."""
        return self.counts.get(client, Counter())

    @property
    def most(self) -> int:
        """How many rounds the client with the most of them has."""
        return max((counts.total() for counts in self.counts.values()), default=0)

    def copy(self) -> "Account":
        """Return another account of the same releases."""
        counts = {client: Counter(spent) for client, spent in self.counts.items()}
        return replace(
            self,
            releases=dict(self.releases),
            counts=counts,
            settled=set(self.settled),
            pending=dict(self.pending),
            colluders=set(self.colluders),
        )

    def _cost(self, row: Row, kind: Rounds) -> Counts:
        return Counter({kind: row.trials if self.all_trials else 1})


def by_batch(rows: Iterable[Row]) -> dict[int, Account]:
    """Return the account of every batch of trials by its first trial."""
    found: dict[int, Account] = {}
    for row in rows:
        found.setdefault(row.batch, Account()).add(row)
    return found


def together(rows: Iterable[Row]) -> Account:
    """Return the account of all trainings together."""
    account = Account(all_trials=True)
    for row in rows:
        account.add(row)
    return account
