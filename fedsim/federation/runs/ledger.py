"""The privacy ledger of a run (`ledger.jsonl`): a row for each round, before it leaves.

The epsilons follow from the rows (`spending`): of one training, which the trials of a batch repeat,
and of all trainings so far, for a guarantee and for `privacy.stop-at`. Noise of the system is new
in each attempt at a batch of trials, so all attempts add up. The seed repeats its noise, so the
last row of a round counts alone: it is for experiments, and no guarantee.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from adversaries.errors import InputError
from fedsim.common import journal
from fedsim.common.journal import Journal
from fedsim.common.strict_json import strict_json
from fedsim.configuration import Config
from fedsim.configuration.training import TrainingConfig
from fedsim.federation.runs.batches import Batches, rounds_of
from fedsim.federation.runs.run_directory import TRANSCRIPT, RunDirectory
from fedsim.game.mechanisms.privacy import Counts, adds_up, epsilon_of, running_epsilon, within
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.releases import Rounds

FILE = "ledger.jsonl"


class BudgetExceededError(RuntimeError):
    """A round would exceed `privacy.stop-at`, so it was refused before anything of it left."""


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
    present: tuple[int, ...] | None
    colluders: tuple[int, ...]

    @property
    def place(self) -> tuple[int, int, int]:
        """The identity of the release. The last row of a place counts."""
        return self.batch, self.attempt if adds_up(self.noise_source) else 0, self.round

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Return a row of the file. Raises KeyError, TypeError or ValueError if it is malformed."""
        lists = {
            name: tuple(map(int, entry[name]))
            for name in ("clients", "present", "colluders")
            if entry[name] is not None
        }
        return cls(**{**entry, **lists, "kind": Rounds(**entry["kind"])})


class Account:
    """The rounds of each client: of all trainings together, or of each batch as one training.

    Attributes:
        rows: the row that counts at each place.
    """

    def __init__(self, rows: Iterable[LedgerRow] = (), all_trials: bool = False) -> None:
        self.rows: dict[tuple[int, int, int], LedgerRow] = {}
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

    def _changes(self, row: LedgerRow) -> list[tuple[LedgerRow, int]]:
        """Return the row that a row replaces, and itself, with the number of rounds of each."""
        old = self.rows.get(row.place)
        count = row.trials if self._all_trials else 1
        return [(row, count)] if old is None else [(old, -count), (row, count)]

    @property
    def attempts(self) -> int:
        """The number of the last attempt; 0 before the first."""
        return max((row.attempt for row in self.rows.values()), default=0)

    @property
    def most(self) -> int:
        """The largest number of rounds of a client."""
        return max((counts.total() for counts in self._spent.values()), default=0)


class Ledger:
    """The ledger of a running experiment. Raises InputError if the file is damaged."""

    def __init__(
        self, config: Config, directory: RunDirectory, colluders: Iterable[int] = ()
    ) -> None:
        self.config = config
        # Under central trust, colluders have no noise to disclose.
        silent = config.federation.trust.model.server_draws
        self.colluders = () if silent else tuple(sorted(colluders))
        self.path = directory.path / FILE
        written = _read(directory)
        self._count(written.entries)
        self._check = written.check
        journal.drop_unfinished(self.path, written)

    def begin(
        self,
        trials: range,
        rounds: int,
        noise_multiplier: float,
        first: int = 1,
        repeats: bool = False,
    ) -> "Attempt":
        """Return a new attempt at a batch of trials.

        repeats: whether clients may repeat their answers from the first round on, so that `kept`
            decides which rows of these rounds stay.
        """
        if repeats:
            self._count(kept(self.config, self.rows, first - 1, noise_multiplier))
        # Rows of rounds that are not repeated stay beside those of the new attempt.
        anew = not repeats or any(row.round >= first for row in self.rows)
        own = self.batches.setdefault(trials.start, Account())
        number = max(1, own.attempts + anew)
        return Attempt(self, trials, range(first, rounds + 1), noise_multiplier, number)

    def append(self, row: LedgerRow) -> None:
        """Write a row; it is on disk when the function returns."""
        self._check = journal.append(self.path, strict_json(asdict(row)), self._check)
        self.rows.append(row)
        self.batches[row.batch].add(row)
        self.everything.add(row)

    def _count(self, rows: list[LedgerRow]) -> None:
        self.rows, self.batches = [*rows], by_batch(rows)
        self.everything = Account(rows, all_trials=True)


class Attempt:
    """One attempt to train a batch of trials: a round is charged before anything of it leaves.

    Attributes:
        epsilon: the worst client's so far: of all releases, or of one training with noise from the
            seed.
        before: rounds of these trials in earlier attempts, whose noise it does not draw again;
            rounds of all trials together before it; and its first round, which is above 1 where it
            continues from a checkpoint.
    """

    def __init__(
        self, ledger: Ledger, trials: range, rounds: range, noise_multiplier: float, number: int
    ) -> None:
        self._ledger, self._config = ledger, ledger.config
        self._trials, self._number = trials, number
        config, own = ledger.config, ledger.batches[trials.start]
        rule, guaranteed = config.participation, adds_up(config.privacy.noise_source)
        self._limited = ledger.everything if guaranteed else own
        self._kind = planned_kind(config.training, rule, noise_multiplier)
        self._honest = [client for client in rule.accounts if client not in ledger.colluders]
        earlier = (own.most, ledger.everything.most) if guaranteed else (0, 0)
        self.before = (*earlier, rounds.start)
        planned = (self._asked(each, rule.charged(each)) for each in rounds)
        final = Account([*self._limited.rows.values(), *planned], all_trials=guaranteed)
        self._total = {client: final.spent(client) for client in self._honest}
        self._known: dict[tuple[frozenset[object], frozenset[object]], float] = {}
        spent = (self._limited.spent(client) for client in self._honest)
        self.epsilon = max(epsilon_of(config, each, config.federation.vantage) for each in spent)

    def charge(self, round: int, clients: Iterable[int]) -> None:
        """Enter a round before it leaves. Raises BudgetExceededError, with nothing entered."""
        self._enter(self._asked(round, tuple(sorted(clients))))

    def settle(self, round: int, present: Iterable[int]) -> None:
        """Enter the actual noise of a round, where clients may be missing."""
        if self._config.federation.tolerated_dropouts:
            answered, charged = tuple(sorted(present)), self._config.participation.charged(round)
            # A round without clients releases nothing, but a row needs a share.
            self._enter(self._row(round, charged, max(1, len(answered)), answered))

    def _asked(self, round: int, clients: tuple[int, ...]) -> LedgerRow:
        rule = self._config.participation
        every = not self._config.federation.tolerated_dropouts and rule.complete
        return self._row(round, clients, len(clients) if every else rule.shares(round))

    def _row(
        self,
        round: int,
        clients: tuple[int, ...],
        shares: int,
        present: tuple[int, ...] | None = None,
    ) -> LedgerRow:
        batch, trials = self._trials.start, len(self._trials)
        kind, source = replace(self._kind, participants=shares), self._config.privacy.noise_source
        place = batch, trials, self._number, round
        return LedgerRow(*place, kind, clients, source, present, self._ledger.colluders)

    def _enter(self, row: LedgerRow) -> None:
        """Write a row, unless a client's budget does not allow it: then BudgetExceededError."""
        config, limit = self._config, self._config.privacy.stop_at or math.inf
        vantage, epsilons = config.federation.vantage, []
        for client in self._honest:
            counts = self._limited.spent(client, row)
            epsilons.append(self._running(counts, self._total[client]))
            # A rounded value may exceed a budget that the exact value keeps.
            if epsilons[-1] > limit and not within(config, counts, limit):
                raise BudgetExceededError(
                    f"round {row.round} would bring client {client} to epsilon "
                    f"{epsilon_of(config, counts, vantage):.4g} at delta {config.privacy.delta:g} "
                    f"towards the {vantage.value}, above privacy.stop-at = {limit:g}; the earlier "
                    "rounds stay released"
                )
        self._ledger.append(row)
        self.epsilon = max(epsilons)

    def _running(self, counts: Counts, total: Counts) -> float:
        history = frozenset(counts.items()), frozenset(total.items())
        if history not in self._known:
            vantage = self._config.federation.vantage
            self._known[history] = running_epsilon(self._config, counts, total, vantage)
        return self._known[history]


def planned_kind(
    training: TrainingConfig, participation: Participation, nominal: float, round: int = 1
) -> Rounds:
    """Return one planned round, with as many clients missing as are tolerated."""
    multiplier = nominal if training.clipping else 0.0
    shares = participation.shares(round)
    return Rounds(multiplier, 1, participation.rate, training.local_steps, shares)


def by_batch(rows: Iterable[LedgerRow]) -> dict[int, Account]:
    """Return the account of every batch of trials by its first trial."""
    accounts: dict[int, Account] = {}
    for row in rows:
        accounts.setdefault(row.batch, Account()).add(row)
    return accounts


def kept(
    config: Config, rows: Iterable[LedgerRow], done: int, noise_multiplier: float
) -> list[LedgerRow]:
    """Return the rows that stay when a training continues after `done` rounds.

    Of later rounds nothing left but messages to clients, who give the same answers again, unless
    the noise is another since then, or the answers are summed securely.
    """
    if config.federation.masked:
        return [*rows]
    return [
        row for row in rows if row.round <= done or row.kind.noise_multiplier != noise_multiplier
    ]


def read(directory: RunDirectory) -> list[LedgerRow]:
    """Return the rows of a run, of each attempt's round the last. Raises InputError if damaged."""
    rows = _read(directory).entries
    return list({(row.batch, row.attempt, row.round): row for row in rows}.values())


def verified(directory: RunDirectory) -> list[LedgerRow]:
    """Return the rows of a run, after a check by batches and events.jsonl that none is missing.

    Raises InputError also if rounds had noise of another source than the configuration's.
    """
    rows, source = read(directory), directory.config.privacy.noise_source
    if others := {row.noise_source for row in rows} - {source}:
        raise InputError(
            f"privacy.noise-source is '{source}', but rounds of this run had noise from "
            f"'{min(others)}', and the two do not add up. Restore it in config.toml of the run "
            "directory, or begin another run (run.out)."
        )
    accounts, lengths = by_batch(rows), Counter((row.batch, row.attempt) for row in rows)
    complete = all(
        batch in accounts
        and lengths[batch, accounts[batch].attempts] == rounds_of(directory, batch)
        for batch in Batches(directory.config, directory).finished()
    )
    released = rows or not directory.has(TRANSCRIPT)
    seen = rounds_seen(directory) <= Counter(row.batch for row in rows)
    if not (complete and released and seen):
        raise InputError(
            f"{FILE} in '{directory.path}' lacks rounds that were released; restore it from a "
            "copy, or begin another run (run.out)"
        )
    return rows


def rounds_seen(directory: RunDirectory) -> Counter[int]:
    """Return the number of rounds of each batch in events.jsonl, over all attempts.

    An event that a kill tore is not counted.

    Raises InputError if events.jsonl is damaged.
    """
    rounds = (event for event, _ in directory.events() if event.get("round", 0) >= 1)
    return Counter(event["trials"][0] for event in rounds if "trials" in event)


def _read(directory: RunDirectory) -> Journal[LedgerRow]:
    return journal.read(
        directory.path / FILE,
        LedgerRow.of,
        "the released rounds are unknown; restore it from a copy, or begin another run (run.out)",
    )
