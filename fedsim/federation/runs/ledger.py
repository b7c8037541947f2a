"""The privacy ledger of a run: the epsilon of every client after each round (`ledger.jsonl`).

`epsilon` is of one training, which the trials of a batch repeat. `released` is of all trainings so
far, for a guarantee and for `privacy.stop-at`; empty with noise from the seed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

from adversaries.errors import InputError
from fedsim.common import journal
from fedsim.common.journal import Journal
from fedsim.common.strict_json import strict_json
from fedsim.configuration.objects import Scheme
from fedsim.federation.runs import accounts, run_transcript
from fedsim.federation.runs.accounts import Account
from fedsim.federation.runs.attempt import Attempt
from fedsim.federation.runs.batches import Batches, rounds_of
from fedsim.federation.runs.ledger_row import LedgerRow
from fedsim.federation.runs.run_directory import RunDirectory

FILE = "ledger.jsonl"


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
        rows = written.entries if done is None else kept(written.entries, *done)
        # Rows of rounds that are not repeated stay beside those of the new attempt.
        self._new_noise = done is None or any(row.round > done[0] for row in rows)
        self._accounts = accounts.by_batch(rows)
        self._everything = accounts.together(rows)
        self._check = written.check
        journal.drop_unfinished(self.path, written)

    def begin(self, trials: range, rounds: int, noise_multiplier: float, first: int = 1) -> Attempt:
        """Return a new attempt at a batch of trials."""
        account = self._accounts.setdefault(trials.start, Account())
        account.attempts = max(1, account.attempts + self._new_noise)
        return Attempt(
            self.scheme,
            self.append,
            trials,
            account,
            self._everything,
            rounds,
            noise_multiplier,
            self.colluders,
            first,
        )

    def append(self, row: LedgerRow) -> None:
        """Write a row; it is on disk when the function returns."""
        self._check = journal.append(self.path, strict_json(asdict(row)), self._check)
        self._accounts[row.batch].add(row)
        self._everything.add(row)


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
    """Return the rows of a run, after a check by batches and events.jsonl that none is missing."""
    rows = read(directory)
    books = accounts.by_batch(rows)
    lengths = Counter((row.batch, row.attempt) for row in rows)
    finished = {
        batch: rounds_of(directory, batch)
        for batch in Batches(directory.config, directory).finished()
    }
    complete = all(
        lengths[batch, books.get(batch, Account()).attempts] == rounds
        for batch, rounds in finished.items()
    )
    released = rows or not directory.has(run_transcript.FILE)
    seen = rounds_seen(directory) <= Counter(row.batch for row in rows)
    if not (complete and released and seen):
        raise lacking(directory)
    return rows


def rounds_seen(directory: RunDirectory) -> Counter[int]:
    """Return the number of rounds of each batch in events.jsonl, over all attempts.

    An event that a kill tore is not counted.

    Raises InputError if events.jsonl is damaged.
    """
    rounds = (event for event, _ in directory.events() if event.get("round", 0) >= 1)
    return Counter(event["trials"][0] for event in rounds if "trials" in event)


def lacking(directory: RunDirectory) -> InputError:
    return InputError(
        f"{FILE} in '{directory.path}' lacks rounds that were released; restore it from a copy, or "
        "begin another run (run.out)"
    )


def _read(directory: RunDirectory) -> Journal[LedgerRow]:
    return journal.read(
        directory.path / FILE,
        LedgerRow.of,
        "the released rounds are unknown; restore it from a copy, or begin another run (run.out)",
    )
