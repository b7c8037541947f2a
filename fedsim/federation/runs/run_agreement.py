"""Whether the files of one run agree: its configuration, facts, transcript and ledger.

Each is whole by itself; one that was edited, or is of another moment, contradicts the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsim.config import Config
from fedsim.federation.runs import accounts, batches, ledger
from fedsim.federation.runs.ledger_row import Row, planned_kind
from fedsim.federation.runs.run_directory import Arrays, RunDirectory


def check(
    directory: RunDirectory,
    config: Config,
    facts: Mapping[str, Any],
    transcript: Arrays,
    rows: Sequence[Row],
) -> None:
    """Check that the facts of a run agree with its other files.

    Raises InputError for the first fact that contradicts another file.
    """
    for name, told, found, where in _statements(directory, config, facts, transcript, rows):
        if told != found:
            raise directory.damaged("facts.json", f"{name} is {told}, but {where} {found}")


def _statements(
    directory: RunDirectory,
    config: Config,
    facts: Mapping[str, Any],
    transcript: Arrays,
    rows: Sequence[Row],
) -> Iterator[tuple[str, object, object, str]]:
    """Yield what facts.json says, what another file does, and which."""
    trials, rounds = transcript["log_odds"].shape
    sizes, challenge = facts["client_sizes"], facts["challenge"]
    yield "the dataset", facts["dataset"], config.data.name, "config.toml says"
    yield "the precision", facts["precision"], config.run.precision, "config.toml says"
    yield "the number of records", sum(sizes), config.data.records, "config.toml says"
    yield "the number of clients", len(sizes), config.federation.clients, "config.toml says"
    for who in ("client", "adversary"):
        number = challenge[who]
        among = number if number < len(sizes) else f"numbers to {len(sizes) - 1}"
        yield f"the challenge's {who}", number, among, "there are"
    other = challenge["adversary"] if challenge["client"] != challenge["adversary"] else "another"
    yield "the adversary", challenge["adversary"], other, "the challenge's client has to be"
    done = [each for each in batches.ranges(config, directory) if each.stop <= trials]
    yield "the number of batches of trials", facts["batches"], len(done), "transcript.npz has"
    if not config.trials.until_halfwidth:  # nothing else ends the trials early
        yield "the number of trials", facts["planned_trials"], trials, "transcript.npz has"
    nominal = planned_kind(
        config.training, config.participation, facts["noise_multiplier"]
    ).noise_multiplier
    for row in rows:
        yield "the noise multiplier", nominal, row.noise_multiplier, f"{ledger.FILE} says"
    if rows:
        books = accounts.by_batch(rows)
        for each in done:
            last = each.start, books[each.start].attempts
            entered = sum((row.batch, row.attempt) == last for row in rows)
            yield "the number of rounds of transcript.npz", rounds, entered, f"{ledger.FILE} has"
