"""The comparison of a run's files: its configuration, facts, transcript and ledger."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsim.federation.runs import accounts, ledger
from fedsim.federation.runs.batches import Batches
from fedsim.federation.runs.ledger_row import LedgerRow, planned_kind
from fedsim.federation.runs.run_directory import Arrays, RunDirectory


def check_agreement(
    directory: RunDirectory, facts: Mapping[str, Any], transcript: Arrays, rows: Sequence[LedgerRow]
) -> None:
    """Raise InputError for the first fact that contradicts another file of the run."""
    for name, fact, other, where in _statements(directory, facts, transcript, rows):
        if fact != other:
            raise directory.damaged("facts.json", f"{name} is {fact}, but {where} {other}")


def _statements(
    directory: RunDirectory, facts: Mapping[str, Any], transcript: Arrays, rows: Sequence[LedgerRow]
) -> Iterator[tuple[str, object, object, str]]:
    """Yield (name, value in facts.json, value in another file, "FILE says") of each fact."""
    config = directory.config
    trials, rounds = transcript["log_odds"].shape
    sizes, challenge = facts["client_sizes"], facts["challenge"]
    yield "the dataset", facts["dataset"], config.data.name, "config.toml says"
    yield "the precision", facts["precision"], config.run.precision, "config.toml says"
    yield "the number of records", sum(sizes), config.data.records, "config.toml says"
    yield "the number of clients", len(sizes), config.federation.clients, "config.toml says"
    for who in ("client", "adversary"):
        number = challenge[who]
        among = number if number < len(sizes) else f"clients 0 to {len(sizes) - 1} only"
        yield f"the challenge's {who}", number, among, "there are"
    other = challenge["adversary"] if challenge["client"] != challenge["adversary"] else "another"
    yield "the adversary", challenge["adversary"], other, "the client of the target must be"
    done = [each for each in Batches(config, directory).ranges() if each.stop <= trials]
    yield "the number of batches of trials", facts["batches"], len(done), "transcript.npz has"
    yield "the number of trials", facts["planned_trials"], trials, "transcript.npz has"
    multiplier = facts["noise_multiplier"]
    nominal = planned_kind(config.training, config.participation, multiplier).noise_multiplier
    for row in rows:
        yield "the noise multiplier", nominal, row.noise_multiplier, f"{ledger.FILE} says"
    if rows:
        books = accounts.by_batch(rows)
        for each in done:
            last = each.start, books[each.start].attempts
            entered = sum((row.batch, row.attempt) == last for row in rows)
            yield "the number of rounds of transcript.npz", rounds, entered, f"{ledger.FILE} has"
