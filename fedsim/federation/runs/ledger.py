"""The privacy ledger of a run: what every client's records were exposed to, and what is left.

`ledger.jsonl` in the run directory holds one JSON object for each round, appended and forced to
disk before the round's messages leave: once they are out the round may be seen
(`fedsim.common.journal`). A last line without its end never let a message out and is dropped; any
other damage is an error.

A row states two numbers (`fedsim.game.mechanisms.composition`). `epsilon` is that of one training:
trials are repetitions of it, so that those of a batch of trials count once and batches of trials do
not add up, but attempts do. `released` is that of everything so far, and what a guarantee and
`privacy.stop-at` speak of: with noise from the operating system every trial of every batch of
trials left something of the same people. From the seed it is empty: nothing is protected, and the
budget is that of one training.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

from adversaries.errors import InputError
from fedsim.common import journal
from fedsim.common.journal import Journal
from fedsim.common.strict_json import strict_json
from fedsim.config.objects import Scheme
from fedsim.federation.runs import accounts, batches, run_transcript
from fedsim.federation.runs.accounts import Account
from fedsim.federation.runs.attempt import Attempt
from fedsim.federation.runs.ledger_row import Row
from fedsim.federation.runs.run_directory import RunDirectory

FILE = "ledger.jsonl"


class Ledger:
    """The ledger of a run that is under way. Opening it drops an unfinished last line.

    Raises InputError if the file is damaged.
    """

    def __init__(
        self, scheme: Scheme, directory: RunDirectory, colluders: Iterable[int] = ()
    ) -> None:
        self.scheme = scheme
        # Under central trust they have no noise to tell.
        silent = scheme.federation.trust.model.server_draws
        self.colluders = () if silent else tuple(sorted(colluders))
        self.path = directory.path / FILE
        written = _read(directory)
        self._accounts = accounts.by_batch(written.entries)
        self._everything = accounts.together(written.entries)
        self._check = written.check
        journal.drop_unfinished(self.path, written)

    def begin(self, trials: range, rounds: int, noise_multiplier: float, first: int = 1) -> Attempt:
        """Return another attempt at a batch of trials."""
        account = self._accounts.setdefault(trials.start, Account())
        account.attempts += 1
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

    def append(self, row: Row) -> None:
        """Write a row, and return when it is on disk."""
        self._check = journal.append(self.path, strict_json(asdict(row)), self._check)
        self._accounts[row.batch].add(row)
        self._everything.add(row)


def read(directory: RunDirectory) -> list[Row]:
    """Return the rows of a run, one for each round of an attempt: the last.

    Returns: empty for a run that released nothing yet.
    Raises InputError if the file is damaged anywhere but in an unfinished last line.
    """
    rows = _read(directory).entries
    return list({(row.batch, row.attempt, row.round): row for row in rows}.values())


def verified(directory: RunDirectory) -> list[Row]:
    """Return the rows of a run, all that the run shows.

    The last attempt of every finished batch of trials has its number of rounds, and a batch of
    trials at least one row for every round that events.jsonl says was run: the row is written
    first.

    Raises InputError if some are not there, or as of `read`.
    """
    rows = read(directory)
    books = accounts.by_batch(rows)
    lengths = Counter((row.batch, row.attempt) for row in rows)
    finished = {
        batch: batches.rounds_of(directory, batch)
        for batch in batches.finished(directory.config, directory)
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
    """Return how many rounds of each batch events.jsonl says were run, over all attempts.

    One that a kill tore is missing.

    Raises InputError if that file is damaged.
    """
    rounds = (event for event, _ in directory.events() if event.get("round", 0) >= 1)
    return Counter(event["trials"][0] for event in rounds if "trials" in event)


def lacking(directory: RunDirectory) -> InputError:
    """Return the error that says that rounds which were released are missing."""
    return InputError(
        f"{FILE} in '{directory.path}' lacks rounds that were released; restore it from a copy, or "
        "begin another run (run.out)"
    )


def _read(directory: RunDirectory) -> Journal[Row]:
    return journal.read(
        directory.path / FILE,
        Row.of,
        "nobody knows what was released; restore it from a copy, or begin another run (run.out)",
    )
