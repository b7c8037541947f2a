"""A client's own ledger: every answer that said something about its records.

A run is answered once: within it, the rounds of every trial only grow. All runs share one budget,
`epsilon-limit` at `delta-limit`, even with other records of the same files; else the records that
two selections share would be charged to neither. A continued run is a new run with new noise.

Before its first answer, what a run plans is compared with the budget, so that it is refused at its
start, not in its middle. Whatever a server says it plans, each answer is charged, and refused above
the limit.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from adversaries.errors import InputError
from fedsim.common import journal, private_files
from fedsim.common.journal import Journal
from fedsim.common.strict_json import strict_json
from fedsim.federation.protocol.consent import (
    DELTA_LIMIT,
    EPSILON_LIMIT,
    STATE,
    RefusedError,
    Terms,
)
from fedsim.game.mechanisms.privacy import ROUNDING
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, changes_of_record

FILE = "ledger.jsonl"


@dataclass(frozen=True)
class AnsweredMessage:
    """An answer to one message.

    Attributes:
        noise_multiplier: nominal, as the client computed it.
        charged: the release of one record towards the party that learns most, whatever `unit` is;
            None where nothing is charged.
    """

    time: str
    run: str
    name: str
    node: str
    experiment: str
    records: str
    first_trial: int
    trials: int
    round: int
    noise_multiplier: float
    charged: Steps | None
    unit: str
    neighbouring: Neighbouring
    accountant: str

    @property
    def trial_numbers(self) -> range:
        return range(self.first_trial, self.first_trial + self.trials)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return an entry of the file.

        Raises KeyError if a value is missing.
        Raises TypeError if there are other values.
        Raises ValueError if a value is not allowed.
        """
        charged = values["charged"]
        return cls(
            **{
                **values,
                "charged": None if charged is None else Steps(**charged),
                "neighbouring": Neighbouring(values["neighbouring"]),
            }
        )


def read_answers(folder: Path) -> list[AnsweredMessage]:
    """Return a client's answers, in order. Raises InputError if the ledger is unreadable."""
    return [*_read(folder).entries]


def epsilon(answers: Sequence[AnsweredMessage], delta: float) -> float:
    """Return the epsilon of some answers for any one record."""
    charged = [(answer, steps) for answer in answers if (steps := answer.charged) is not None]
    if not charged:
        return 0.0
    last, _ = charged[-1]
    mechanism = Mechanism(tuple(steps for _, steps in charged), last.neighbouring)
    return accountant(last.accountant).epsilon(mechanism, delta)


def epsilon_of_client(answers: Sequence[AnsweredMessage], delta: float) -> float | None:
    """Return the epsilon of some answers for all records of the client together.

    None if the noise of any answer was scaled to single records.
    """
    if not answers or any(answer.unit != "client" for answer in answers):
        return None
    together = []
    for answer in answers:
        charged = answer.charged
        if charged is not None:
            changes = changes_of_record(answer.unit, answer.neighbouring)
            charged = replace(charged, noise_multiplier=charged.noise_multiplier * changes)
        together.append(replace(answer, charged=charged))
    return epsilon(together, delta)


def enter(terms: Terms, answer: AnsweredMessage, planned: AnsweredMessage | None = None) -> None:
    """Enter an answer, before it leaves.

    planned: the release of all answers to come, for a run's first answer; else None.
    Raises RefusedError, and enters nothing, if the round comes too late or exceeds the budget.
    Raises InputError as `read_answers` does.
    """
    folder = terms.state.resolve()  # the client itself may have named a link
    with locked(folder):
        written = _read(folder)
        _check_order(written.entries, answer)
        if answer.charged is not None:
            check_budget(terms, written.entries, answer, planned)
        journal.drop_unfinished(folder / FILE, written)
        journal.append(folder / FILE, strict_json(asdict(answer)), written.check)


def agreed_multiplier(terms: Terms, run: str, experiment: str) -> float | None:
    """Return the noise multiplier that the client computed for a run; None before the first answer.

    It is a function of the run's configuration, but takes seconds where records are sampled.
    """
    matches = (
        answer.noise_multiplier
        for answer in read_answers(terms.state)
        if (answer.run, answer.experiment) == (run, experiment)
    )
    return next(matches, None)


def attempted(terms: Terms, experiment: str) -> int:
    """Return the number of charged rounds of a configuration, over all trials and attempts."""
    answers = read_answers(terms.state)
    return sum(each.trials for each in answers if each.charged and each.experiment == experiment)


def last_round(terms: Terms, experiment: str, node: str) -> int:
    """Return the round of a node's last charged answer in a configuration; 0 for none."""
    for answer in reversed(read_answers(terms.state)):
        if (answer.experiment, answer.node) == (experiment, node) and answer.charged:
            return answer.round
    return 0


def _check_order(answers: Sequence[AnsweredMessage], new: AnsweredMessage) -> None:
    for old in reversed(answers):
        same = (old.run, old.node) == (new.run, new.node)
        common = set(old.trial_numbers).intersection(new.trial_numbers)
        if same and common and old.round >= new.round:
            raise RefusedError(
                f"the server asks for round {new.round} of trial {min(common)}, but round "
                f"{old.round} of it was answered in this run already. Each round is answered once "
                "and in order. An interrupted run is continued as a new run."
            )


def check_budget(
    terms: Terms,
    answers: Sequence[AnsweredMessage],
    new: AnsweredMessage,
    planned: AnsweredMessage | None,
) -> None:
    """Raise RefusedError if an answer, or all that are planned, exceed the budget."""
    for old in answers:
        if old.charged is not None and (old.unit, old.neighbouring) != (new.unit, new.neighbouring):
            raise RefusedError(
                f"privacy.unit is '{new.unit}' and privacy.neighbouring '{new.neighbouring}', but "
                f"these records were charged for '{old.unit}' and '{old.neighbouring}', and the "
                "two do not add up. Use the same unit and neighbouring relation. If the folder now "
                f"holds other people's records, set another {STATE} in the node's config."
            )
    request = f"round {new.round} of '{new.name}'"
    if planned is not None:
        request = f"'{new.name}', with all rounds and trials that it plans,"
        new = planned
    after = epsilon([*answers, new], terms.delta_limit)
    if after > terms.epsilon_limit * (1 + ROUNDING):
        spent = epsilon(answers, terms.delta_limit)
        raise RefusedError(
            f"{request} would bring this client's records to epsilon {after:.4g} at delta "
            f"{terms.delta_limit:g} over all runs ({spent:.4g} before), above its {EPSILON_LIMIT} "
            f"= {terms.epsilon_limit:g}. To agree to more, raise {EPSILON_LIMIT} (or "
            f"{DELTA_LIMIT}) in the node's config."
        )


def _read(folder: Path) -> Journal[AnsweredMessage]:
    path = folder / FILE
    try:
        status = path.stat()
    except OSError:
        return _parsed.__wrapped__(path)
    return _parsed(path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)


@lru_cache(maxsize=4)
def _parsed(path: Path, *state: int) -> Journal[AnsweredMessage]:
    """Return the entries of the file as it is since a change: once for each message."""
    return journal.read(
        path,
        AnsweredMessage.of,
        "the releases of this client's records are unknown; restore it from a copy",
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the ledger's lock; the nodes of one machine may share a folder."""
    with writing(folder):
        private_files.make_directory(folder)
        with os.fdopen(private_files.opened_own(folder / "ledger.lock"), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise InputError in place of an OSError in the block, which writes to a client's folder."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {FILE} in '{folder}': {error.strerror}; the client answers only what "
            f"its ledger records, so set {STATE} in the node's config to a folder that this user "
            "can write"
        ) from None
