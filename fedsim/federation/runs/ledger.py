"""The privacy ledger of a run (`ledger.jsonl`): a row for each round, before it leaves.

The epsilons follow from the rows (`spending`): of one training, which the trials of a batch repeat,
and of all trainings so far, for a guarantee and for `privacy.stop-at`.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace

from adversaries.errors import InputError
from fedsim.common import journal
from fedsim.common.journal import Journal
from fedsim.common.strict_json import strict_json
from fedsim.configuration.objects import Scheme
from fedsim.federation.runs import book, run_transcript
from fedsim.federation.runs.batches import Batches, rounds_of
from fedsim.federation.runs.book import Book, LedgerRow, planned_kind
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms.privacy import (
    Counts,
    adds_up,
    epsilon_of,
    running_epsilon,
    within,
)

FILE = "ledger.jsonl"


class BudgetExceededError(RuntimeError):
    """A round would exceed `privacy.stop-at`, so it was refused before anything of it left."""


class OtherClientsError(RuntimeError):
    """A round repeats the noise of an earlier attempt over other clients; its sum is withheld."""


class Ledger:
    """The ledger of a running experiment. Raises InputError if the file is damaged.

    Attributes:
        done: what `kept` takes, for a training that repeats answers; None: an attempt draws new
            noise, and adds to the earlier ones.
    """

    def __init__(
        self,
        scheme: Scheme,
        directory: RunDirectory,
        colluders: Iterable[int] = (),
        done: tuple[int, float] | None = None,
    ) -> None:
        self.scheme = scheme
        # Under central trust, colluders have no noise to disclose.
        silent = scheme.federation.trust.model.server_draws
        self.colluders = () if silent else tuple(sorted(colluders))
        self.path = directory.path / FILE
        written = _read(directory)
        self.rows = written.entries if done is None else kept(written.entries, *done)
        # Rows of rounds that are not repeated stay beside those of the new attempt.
        self._new_noise = done is None or any(row.round > done[0] for row in self.rows)
        self.books = book.by_batch(self.rows)
        self.everything = Book.of(self.rows, all_trials=True)
        self._check = written.check
        journal.drop_unfinished(self.path, written)

    def begin(
        self, trials: range, rounds: int, noise_multiplier: float, first: int = 1
    ) -> "Attempt":
        """Return a new attempt at a batch of trials."""
        own = self.books.setdefault(trials.start, Book())
        own.attempts = max(1, own.attempts + self._new_noise)
        return Attempt(self, trials, rounds, noise_multiplier, first)

    def append(self, row: LedgerRow) -> None:
        """Write a row; it is on disk when the function returns."""
        self._check = journal.append(self.path, strict_json(asdict(row)), self._check)
        self.rows.append(row)
        self.books[row.batch].add(row)
        self.everything.add(row)


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
        self, ledger: Ledger, trials: range, rounds: int, noise_multiplier: float, first: int
    ) -> None:
        self._ledger, scheme = ledger, ledger.scheme
        self._scheme, own = scheme, ledger.books[trials.start]
        self._own, self._adds_up = own, adds_up(scheme.privacy.noise_source)
        self._limited = ledger.everything if self._adds_up else own
        self._provisional = scheme.federation.tolerated_dropouts > 0
        accounts = tuple(scheme.participation.accounts)
        kind = planned_kind(scheme.training, scheme.participation, noise_multiplier)
        self._template = LedgerRow(
            batch=trials.start,
            trials=len(trials),
            attempt=own.attempts,
            round=0,
            noise_multiplier=kind.noise_multiplier,
            sampling_rate=kind.sampling_rate,
            local_steps=kind.local_steps,
            participants=accounts,
            noise_source=scheme.privacy.noise_source,
            colluders=ledger.colluders,
        )
        self._honest = [client for client in accounts if client not in ledger.colluders]
        earlier = (own.most, ledger.everything.most) if self._adds_up else (0, 0)
        self.before = (*earlier, first)
        planned = (
            self._asked(round, scheme.participation.charged(round))
            for round in range(first, rounds + 1)
        )
        mine = [row for row in ledger.rows if self._adds_up or row.batch == trials.start]
        final = Book.of([*mine, *planned], all_trials=self._adds_up)
        self._total = {client: final.spent(client) for client in self._honest}
        self._known: dict[tuple[frozenset[object], frozenset[object]], float] = {}
        spent = (self._limited.spent(client) for client in self._honest)
        self.epsilon = max(epsilon_of(scheme, each, scheme.federation.vantage) for each in spent)

    def charge(self, round: int, participants: Iterable[int]) -> None:
        """Enter a round before it leaves. Raises BudgetExceededError, with nothing entered."""
        self._enter(self._asked(round, tuple(sorted(participants))))

    def settle(self, round: int, present: Iterable[int]) -> None:
        """Enter the actual noise of a round. Raises OtherClientsError, with nothing entered."""
        if not self._provisional:
            return
        answered = tuple(sorted(present))
        row = replace(
            self._template,
            round=round,
            participants=self._scheme.participation.charged(round),
            # A round without clients releases nothing, but a row needs a share.
            shares=max(1, len(answered)),
            present=answered,
        )
        if self._own.clashes(row):
            raise OtherClientsError(
                f"round {round} of the trials from {row.batch} on would repeat the seed's noise "
                "over other clients than an earlier attempt. The difference of the two sums has no "
                "noise, so this sum is not released. Begin another run (run.out), or use "
                'privacy.noise-source = "system".'
            )
        self._enter(row)

    def _asked(self, round: int, participants: tuple[int, ...]) -> LedgerRow:
        every = not self._provisional and self._scheme.participation.complete
        return replace(
            self._template,
            round=round,
            participants=participants,
            provisional=self._provisional,
            shares=None if every else self._scheme.participation.shares(round),
        )

    def _enter(self, row: LedgerRow) -> None:
        epsilons = []
        for client in self._honest:
            counts = self._limited.spent(client, row)
            epsilons.append(self._running(counts, self._total[client]))
            self._check(row, client, counts, epsilons[-1])
        self._ledger.append(row)
        self.epsilon = max(epsilons)

    def _running(self, counts: Counts, total: Counts) -> float:
        history = frozenset(counts.items()), frozenset(total.items())
        if history not in self._known:
            vantage = self._scheme.federation.vantage
            self._known[history] = running_epsilon(self._scheme, counts, total, vantage)
        return self._known[history]

    def _check(self, row: LedgerRow, client: int, counts: Counts, epsilon: float) -> None:
        scheme, limit = self._scheme, self._scheme.privacy.stop_at or math.inf
        # A rounded value may exceed a budget that the exact value keeps.
        if epsilon > limit and not within(scheme, counts, limit):
            vantage = scheme.federation.vantage
            reached = epsilon_of(scheme, counts, vantage)
            raise BudgetExceededError(
                f"round {row.round} would bring client {client} to epsilon {reached:.4g} at "
                f"delta {scheme.privacy.delta:g} towards the {vantage.value}, above "
                f"privacy.stop-at = {limit:g}; the earlier rounds stay released"
            )


def kept(rows: Iterable[LedgerRow], done: int, noise_multiplier: float) -> list[LedgerRow]:
    """Return the rows that stay when a training continues after `done` rounds.

    Of later rounds nothing left but messages to clients, who give the same answers again, unless
    the noise is another since then.
    """
    return [row for row in rows if row.round <= done or row.noise_multiplier != noise_multiplier]


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
    books = book.by_batch(rows)
    lengths = Counter((row.batch, row.attempt) for row in rows)
    complete = all(
        lengths[batch, books.get(batch, Book()).attempts] == rounds_of(directory, batch)
        for batch in Batches(directory.config, directory).finished()
    )
    released = rows or not directory.has(run_transcript.FILE)
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
