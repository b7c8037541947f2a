"""A client's own ledger: every message with something of its records that it ever answered.

`ledger.jsonl` in the folder that the node's config names (`state-path`), written and forced to disk
before an answer leaves (`fedsim.common.journal`). It does two things. It is the register by which a
run is answered once: within a run every trial's rounds only ever grow. And it is the budget over
all runs: what they released of the same people adds up, whichever directory or server they came
from, and is refused beyond the node's own `epsilon-limit` at its `delta-limit`: a run that would
pass it by all that it plans before its first answer, and any round that does.

An interrupted run that is continued is another run to a client, with noise of its own: its answers
are charged besides those of the first attempt.

There is one budget for a folder, whichever records a run's configuration picked from the client's
files, and however these changed since: what two selections have in common would otherwise be
charged to neither. Every entry says of which records it was, as a digest, for its owner to look at.

Entries add up where they speak of the same thing: the same unit (a record, or all of a client) and
the same neighbouring relation. Others are refused; deltas and accountants are nobody's business but
the client's, since what is entered is the mechanism.
"""

import fcntl
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
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
from fedsim.game.mechanisms.composition import ROUNDING
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps

FILE = "ledger.jsonl"


@dataclass(frozen=True)
class Answer:
    """One message that was answered.

    Attributes:
        time: when, in ISO 8601, UTC.
        run: Flower's number of it.
        name: the run's own.
        node: Flower's number of this client.
        experiment: digest of the run's configuration.
        records: digest of the client's records in it.
        first_trial: of the trainings that the message was of.
        trials: how many these are.
        round: counts from 1.
        noise_multiplier: nominal, as the client worked it out.
        charged: what it released to whoever learns most of it, None where nothing is charged.
        unit: what that protects, a "record" or a "client".
        neighbouring: the relation in which it does.
        accountant: the run's.
        measured: the epsilon, without a delta, of a noisy confusion matrix of records held back.
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
    measured: float = 0.0

    @property
    def trial_numbers(self) -> range:
        """The trials that shared the message."""
        return range(self.first_trial, self.first_trial + self.trials)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return an entry of the file.

        Raises KeyError if a value is missing.
        Raises TypeError if there are other values.
        Raises ValueError if a value is not one of those that there are.
        """
        charged = values["charged"]
        return cls(
            **{
                **values,
                "charged": None if charged is None else Steps(**charged),
                "neighbouring": Neighbouring(values["neighbouring"]),
            }
        )


def read(folder: Path) -> list[Answer]:
    """Return what a client answered, in order.

    Raises InputError if it is damaged or cannot be read.
    """
    return _read(folder).entries


def epsilon(answers: Sequence[Answer], delta: float) -> float:
    """Return what some answers cost any one record together, by the accountant of the last one.

    Measures add up with the rounds, although a training's own are of other records: which records
    another training took part with, its server may know better than this ledger.
    """
    measured = math.fsum(answer.measured for answer in answers)
    charged = [answer for answer in answers if answer.charged is not None]
    if not charged:
        return measured
    steps = tuple(answer.charged for answer in charged if answer.charged is not None)
    last = charged[-1]
    rounds = accountant(last.accountant).epsilon(Mechanism(steps, last.neighbouring), delta)
    return rounds + measured


def enter(
    terms: Terms, answer: Answer, planned: Steps | None = None, measures: float = 0.0
) -> None:
    """Enter an answer, before it leaves.

    terms: what the client's owner agreed to.
    planned: for the first answer of a run, what all that are still to come release with it, so that
    nothing is spent on a training that cannot end; None for later ones.
    measures: the epsilon of measures that are asked for after the rounds that are planned.
    Raises RefusedError if the round was answered before or comes too late, or it, or the run, is
    beyond the budget; nothing is entered.
    Raises InputError if the ledger is damaged or cannot be written.
    """
    folder = terms.state.resolve()  # a link that the client named is the client's
    with locked(folder):
        written = _read(folder)
        _check_order(written.entries, answer)
        if answer.charged is not None or answer.measured:
            plan = None if planned is None else replace(answer, charged=planned, measured=measures)
            _check_budget(terms, written.entries, answer, plan)
        journal.drop_unfinished(folder / FILE, written)
        journal.append(folder / FILE, strict_json(asdict(answer)), written.check)


def agreed_multiplier(terms: Terms, run: str, experiment: str) -> float | None:
    """Return the noise multiplier that the client worked out for a run.

    It is a function of the run's configuration, but takes seconds where records are sampled.

    terms: name the ledger's folder.
    run: Flower's number of it.
    Returns: none where the client has answered nothing of it.
    """
    found = (each for each in read(terms.state) if (each.run, each.experiment) == (run, experiment))
    first = next(found, None)
    return None if first is None else first.noise_multiplier


def attempted(terms: Terms, experiment: str) -> int:
    """Return how many rounds of a run's configuration were charged, of all trials and attempts.

    terms: name the ledger's folder.
    """
    answers = read(terms.state)
    return sum(each.trials for each in answers if each.charged and each.experiment == experiment)


def _check_order(answers: Sequence[Answer], new: Answer) -> None:
    """Raise RefusedError for a round of a trial that was answered in this run, or one before it."""
    for old in reversed(answers):
        same = (old.run, old.node) == (new.run, new.node)
        common = set(old.trial_numbers).intersection(new.trial_numbers)
        if same and common and old.round >= new.round:
            raise RefusedError(
                f"round {new.round} of trial {min(common)} is asked for, but round {old.round} of "
                "it was answered in this run already, and each is answered once and in order; an "
                "interrupted run is continued as another one"
            )


def _check_budget(
    terms: Terms, answers: Sequence[Answer], new: Answer, planned: Answer | None
) -> None:
    for old in answers:
        if (old.charged or old.measured) and (old.unit, old.neighbouring) != (
            new.unit,
            new.neighbouring,
        ):
            raise RefusedError(
                f"privacy.unit is '{new.unit}' and privacy.neighbouring '{new.neighbouring}', but "
                f"what these records were charged for is of '{old.unit}' and '{old.neighbouring}', "
                "with which it does not add up; ask for the same again, or, where the records are "
                f"other people's by now, set another {STATE} in the node's config"
            )
    what = f"round {new.round} of '{new.name}'"
    if new.measured:
        what = f"the confusion matrix after '{new.name}'"
    if planned is not None:
        what = f"'{new.name}', with all rounds and trials that it plans,"
        new = planned
    after = epsilon([*answers, new], terms.delta_limit)
    if after > terms.epsilon_limit * (1 + ROUNDING):
        before = epsilon(answers, terms.delta_limit)
        raise RefusedError(
            f"{what} would bring this client's records to epsilon "
            f"{after:.4g} at delta {terms.delta_limit:g} over all runs ({before:.4g} "
            f"before), above its {EPSILON_LIMIT} = {terms.epsilon_limit:g}; who agrees to more "
            f"raises {EPSILON_LIMIT} (or {DELTA_LIMIT}) in the node's config"
        )


def _read(folder: Path) -> Journal[Answer]:
    return journal.read(
        folder / FILE,
        Answer.of,
        "nobody knows what was released of this client's records; restore it from a copy",
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only process that enters something; nodes of one machine may share a folder."""
    try:
        private_files.make_directory(folder)
        with os.fdopen(private_files.opened_own(folder / "ledger.lock"), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise InputError(
            f"cannot write {FILE} in '{folder}': {error.strerror}; what cannot be entered is not "
            f"answered: set {STATE} in the node's config to a folder of this user's"
        ) from None
