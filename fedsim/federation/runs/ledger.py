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
from fedsim.configuration import Config
from fedsim.federation.runs import run_transcript
from fedsim.federation.runs.batches import Batches, rounds_of
from fedsim.federation.runs.rows import Account, LedgerRow, by_batch, kept, planned_kind
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

        repeats: whether clients repeat their answers from the first round on, under the same noise,
            so that the rows of these rounds are replaced.
        """
        if repeats:
            self._count(kept(self.rows, first - 1, noise_multiplier))
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
        config, own = ledger.config, ledger.batches[trials.start]
        guaranteed = adds_up(config.privacy.noise_source)
        self._limited = ledger.everything if guaranteed else own
        self._provisional = config.federation.tolerated_dropouts > 0
        self._template = LedgerRow(
            trials.start,
            len(trials),
            number,
            0,
            planned_kind(config.training, config.participation, noise_multiplier),
            (),
            config.privacy.noise_source,
            colluders=ledger.colluders,
        )
        accounts = config.participation.accounts
        self._honest = [client for client in accounts if client not in ledger.colluders]
        earlier = (own.most, ledger.everything.most) if guaranteed else (0, 0)
        self.before = (*earlier, rounds.start)
        planned = (self._asked(each, config.participation.charged(each)) for each in rounds)
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
        if not self._provisional:
            return
        answered = tuple(sorted(present))
        # A round without clients releases nothing, but a row needs a share.
        row = self._row(
            round, self._config.participation.charged(round), shares=max(1, len(answered))
        )
        self._enter(replace(row, present=answered))

    def _asked(self, round: int, clients: tuple[int, ...]) -> LedgerRow:
        participation = self._config.participation
        every = not self._provisional and participation.complete
        return self._row(round, clients, len(clients) if every else participation.shares(round))

    def _row(self, round: int, clients: tuple[int, ...], shares: int) -> LedgerRow:
        kind = replace(self._template.kind, participants=shares)
        return replace(self._template, round=round, clients=clients, kind=kind)

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
            vantage = self._config.federation.vantage
            self._known[history] = running_epsilon(self._config, counts, total, vantage)
        return self._known[history]

    def _check(self, row: LedgerRow, client: int, counts: Counts, epsilon: float) -> None:
        config, limit = self._config, self._config.privacy.stop_at or math.inf
        # A rounded value may exceed a budget that the exact value keeps.
        if epsilon > limit and not within(config, counts, limit):
            vantage = config.federation.vantage
            reached = epsilon_of(config, counts, vantage)
            raise BudgetExceededError(
                f"round {row.round} would bring client {client} to epsilon {reached:.4g} at "
                f"delta {config.privacy.delta:g} towards the {vantage.value}, above "
                f"privacy.stop-at = {limit:g}; the earlier rounds stay released"
            )


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
