"""The privacy ledger of a run: what every owner's records were exposed to, and what is left.

`ledger.jsonl` in the run directory holds one JSON object for each round, appended and forced to
disk before the round's messages leave: once they are out the round may be seen
(`fedsim.common.journal`). A last line without its end never let a message out and is dropped; any
other damage is an error.

A row states two numbers (`fedsim.mechanisms.composition`). `epsilon` is that of one training:
trials are repetitions of it, so that those of a cohort count once and cohorts do not add up, but
attempts do. `released` is that of everything so far, and what a guarantee and `privacy.stop-at`
speak of: with noise from the operating system every trial of every cohort left something of the
same people. From the seed it is empty: nothing is protected, and the budget is that of one
training.

A restart draws fresh noise from the operating system, and what the interrupted attempt released
stays spent. From the seed it releases the same values again, which count once. An owner is charged
for the rounds that it was asked in.

Where missing owners are tolerated, a round is entered twice: before its messages leave, for the
fewest shares of noise that it may have, provisionally; and, before its sum is released, with the
owners that came. A provisional row that no other followed counts for what it says.

The same noise under other data hides nothing: two sums of one round with noise from the seed differ
by what the owners sent that are in one of them alone, under no noise but their own, and the models
after them by sums without any. So a restart from the seed whose round has other owners present than
an attempt before is refused before its sum is released. Where a ledger holds such a pair all the
same, the later round counts as one without noise: epsilon is infinite from then on.

Colluders told their noise, by way of the server and unencrypted: under local and distributed trust
their own records count as unprotected towards the server and the participant that they help, also
in rounds where their noise did not hide others'. They are left out of the budget and of what is
worst, which are those of the owners that a guarantee is meant for.

The column of the server is, under distributed trust, that of a server which learns the sum alone.
Where aggregation was simulated (`federation.secure-aggregation`) it is as if aggregated securely:
the server received every message under one share of the noise.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.campaign import cohorts, run_transcript
from fedsim.campaign.run_directory import RunDirectory
from fedsim.common import journal
from fedsim.common.journal import Journal
from fedsim.common.strict_json import strict_json
from fedsim.config import Config
from fedsim.mechanisms import privacy
from fedsim.mechanisms.composition import (
    Counts,
    adds_up,
    at_vantages,
    described,
    epsilon_of,
    within,
)
from fedsim.privacy.description import Description, Rounds
from fedsim.trust.model import Vantage

FILE = "ledger.jsonl"

EPSILON = "epsilon_spent"
"""The array of a transcript that `curve` returns."""

Place = tuple[int, int, int]
"""Cohort, attempt (0 where the noise is the seed's) and round."""

Release = tuple[Place, Rounds, tuple[int, ...], tuple[int, ...] | None]
"""What is one release: place, kind, who was asked, who was present."""

Spent = Mapping[int, Mapping[str, float]]
"""Owner -> vantage -> epsilon."""

TOLD = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that colluders help."""


class BudgetExceededError(RuntimeError):
    """A round would exceed `privacy.stop-at`; it was refused before anything of it left."""


class OtherOwnersError(RuntimeError):
    """A round repeats the noise of an earlier attempt over other owners; its sum was held back."""


@dataclass(frozen=True)
class Row:
    """One round of one cohort of trials.

    cohort: its first trial; trials: how many it has; attempt, round: from 1; noise_multiplier:
    nominal, as realised, and 0 where no clipping gives it a meaning; participants: the owners that
    were asked; epsilon: what one training has spent after this round at `delta`, inf without noise,
    by counts that `rounded_up` may have rounded; released: the same of all trainings of the run so
    far, empty where the noise is the seed's; shares: of how many owners the noise is, None for that
    of all who were asked; provisional: whether a row with the true number of shares is to follow;
    present: the owners that came, None where those who were asked did, or a row is to follow;
    colluders: the owners that told the adversary their noise.
    """

    cohort: int
    trials: int
    attempt: int
    round: int
    noise_multiplier: float
    sampling_rate: float
    local_steps: int
    participants: tuple[int, ...]
    noise_source: str
    delta: float
    epsilon: Spent
    released: Spent
    shares: int | None = None
    provisional: bool = False
    present: tuple[int, ...] | None = None
    colluders: tuple[int, ...] = ()

    @property
    def kind(self) -> Rounds:
        """What the round adds to the account of an owner that takes part."""
        shares = len(self.participants) if self.shares is None else self.shares
        return Rounds(self.noise_multiplier, 1, self.sampling_rate, self.local_steps, shares)

    @property
    def release(self) -> Release:
        """What was released; equal for a round that is repeated with the same noise."""
        present = self.present
        if present is None and self.kind.participants == len(self.participants):
            present = self.participants
        return self.place, self.kind, self.participants, present

    @property
    def place(self) -> Place:
        """Which round it is; equal for one that the seed repeats."""
        return self.cohort, 0 if self.noise_source == "seed" else self.attempt, self.round

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Read a row of the file. Raises KeyError, TypeError or ValueError if it is not one."""
        spent = {
            name: {
                int(owner): {place: math.inf if e is None else float(e) for place, e in row.items()}
                for owner, row in entry[name].items()
            }
            for name in ("epsilon", "released")
        }
        owners = {
            name: tuple(map(int, entry[name]))
            for name in ("participants", "present", "colluders")
            if entry[name] is not None
        }
        if missing := {each.name for each in fields(cls)} - entry.keys():
            raise KeyError(min(missing))
        return cls(**{**entry, **owners, **spent})


@dataclass
class Account:
    """What was released, each release once, and at every owner's cost.

    By one training, of the rows of its cohort; or, with all_trials, by all trainings, of all rows.
    releases: what each counted as; settled: the places of the rows that are not provisional;
    pending: the provisional rows that no other has followed so far, by their place; colluders: the
    owners that told their noise.
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
                for owner in superseded.participants:
                    self.counts[owner] -= self._cost(superseded, superseded.kind)
            self.releases[row.release] = kind
            self.settled.add(row.place)
        for owner in row.participants:
            self.counts.setdefault(owner, Counter()).update(self._cost(row, kind))

    def has(self, row: Row) -> bool:
        """Whether a row is about what is there: the same release, or a round that is settled."""
        if row.provisional:
            return row.place in self.pending or row.place in self.settled
        return row.release in self.releases and row.place not in self.pending

    def clashes(self, row: Row) -> bool:
        """Whether a row is of the noise of a settled round, but was not the same release."""
        repeats = row.noise_source == "seed" and not row.provisional and row.place in self.settled
        return repeats and row.release not in self.releases

    def counts_as(self, row: Row) -> Rounds:
        """Return what a row adds to an account: a round without noise where it `clashes`."""
        return replace(row.kind, noise_multiplier=0.0) if self.clashes(row) else row.kind

    def after(self, row: Row, owner: int) -> Counts:
        """Return the rounds of an owner with this row among them."""
        counts = Counter(self.spent(owner))
        if self.has(row):
            return counts
        if (superseded := self.pending.get(row.place)) is not None and not row.provisional:
            counts -= self._cost(superseded, superseded.kind)
        return counts + self._cost(row, self.counts_as(row))

    def spent(self, owner: int) -> Counts:
        """Return the rounds of an owner."""
        return self.counts.get(owner, Counter())

    @property
    def most(self) -> int:
        """How many rounds the owner with the most of them has."""
        return max((counts.total() for counts in self.counts.values()), default=0)

    def copy(self) -> "Account":
        """Return another account of the same releases."""
        counts = {owner: Counter(spent) for owner, spent in self.counts.items()}
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


def accounts(rows: Iterable[Row]) -> dict[int, Account]:
    """Return the account of every cohort by its first trial."""
    found: dict[int, Account] = {}
    for row in rows:
        found.setdefault(row.cohort, Account()).add(row)
    return found


def everything(rows: Iterable[Row]) -> Account:
    """Return the account of all trainings together."""
    account = Account(all_trials=True)
    for row in rows:
        account.add(row)
    return account


def read(directory: RunDirectory) -> list[Row]:
    """Return the rows of a run, none for a run that released nothing yet.

    One row for each round of an attempt: the last. Raises InputError where the file is damaged
    anywhere but in an unfinished last line.
    """
    return _current(_read(directory).entries)


def verified(directory: RunDirectory) -> list[Row]:
    """Return the rows of a run; raise InputError where some that the run shows are not there.

    The last attempt of every finished cohort has its number of rounds, and a cohort at least one
    row for every round that events.jsonl says was run: the row is written first.
    """
    rows = read(directory)
    books = accounts(rows)
    lengths = Counter((row.cohort, row.attempt) for row in rows)
    finished = {
        cohort: cohorts.rounds_of(directory, cohort)
        for cohort in cohorts.finished(directory.config, directory)
    }
    complete = all(
        lengths[cohort, books.get(cohort, Account()).attempts] == rounds
        for cohort, rounds in finished.items()
    )
    released = rows or not directory.has(run_transcript.FILE)
    seen = rounds_seen(directory) <= Counter(row.cohort for row in rows)
    if not (complete and released and seen):
        raise lacking(directory)
    return rows


def describe(
    config: Config,
    nominal: float,
    rows: Sequence[Row],
    owner: int | None = None,
) -> Description:
    """Return what one training of a run released, at worst over its cohorts.

    owner: whose records; None for those of the owner who is worst off at the configured vantage.
    Without rows it is what the configuration plans, with the nominal noise multiplier.
    """
    if not rows:
        return privacy.describe(config, nominal)
    books = accounts(rows)
    _, counts = _worst(config, list(books.values()), owner)
    return described(config, counts)


def describe_everything(config: Config, nominal: float, rows: Sequence[Row]) -> Description | None:
    """Return what all trainings of a run released together, of the owner who is worst off.

    What a guarantee may speak of; None where the noise is the seed's, which is none. Without rows,
    all that the configuration plans.
    """
    if not adds_up(config):
        return None
    if not rows:
        return privacy.describe(config, nominal).repeated(config.trials.count)
    _, counts = _worst(config, [everything(rows)])
    return described(config, counts)


def describe_run(directory: RunDirectory) -> tuple[Description, Description | None]:
    """Return what one training of the run in a directory released, and all of them together.

    As `describe` and `describe_everything`. Raises InputError, as `verified` too.
    """
    config, rows = directory.config, verified(directory)
    nominal = 0.0 if rows else privacy.noise_multiplier(config)  # rows state their own
    return describe(config, nominal, rows), describe_everything(config, nominal, rows)


def curve(config: Config, nominal: float, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    """Return epsilon after every round of one trial, [owners, vantages, k], inf without noise.

    Of the cohort that is worst off at the configured vantage, over the rounds of its last attempt;
    what earlier attempts released besides is spent before the first. The vantages are in the order
    of `Vantage`. Exact after the last round, before it as `running_epsilon`. Without rows, of all
    rounds that are planned.
    """
    owners = range(config.federation.owners)
    if rows:
        last, earlier = _last_attempt(config, rows)
    else:
        kind = planned_kind(config, nominal), frozenset(owners)
        last, earlier = [kind] * config.training.rounds, Account()
    found: dict[Any, list[list[float]]] = {}
    curves = []
    for owner in owners:
        kinds = tuple(kind if owner in taking_part else None for kind, taking_part in last)
        before = earlier.spent(owner)
        history = frozenset(before.items()), kinds
        if history not in found:
            found[history] = _history(config, before, kinds)
        curves.append(found[history])
    spent = np.array(curves, dtype=np.float64)
    for vantage in TOLD:
        spent[sorted(colluders(rows)), list(Vantage).index(vantage)] = math.inf
    return spent


def trainings(rows: Iterable[Row]) -> int:
    """Return how many trainings were begun, all attempts at one counted once."""
    return sum({row.cohort: row.trials for row in rows}.values())


def colluders(rows: Iterable[Row]) -> frozenset[int]:
    """Return the owners whose records are no secret: they told the adversary their noise."""
    return frozenset(owner for row in rows for owner in row.colluders)


def earlier_rounds(config: Config, rows: Sequence[Row]) -> int:
    """Return how many rounds of interrupted attempts count beside those of the last attempt."""
    if not rows:
        return 0
    _, earlier = _last_attempt(config, rows)
    return max((counts.total() for counts in earlier.counts.values()), default=0)


def planned_kind(config: Config, nominal: float) -> Rounds:
    """Return one round as the configuration plans it, with as many owners missing as may be."""
    (rounds,) = privacy.describe(config, nominal).rounds
    return replace(rounds, count=1, participants=config.federation.fewest_participants)


class Ledger:
    """The ledger of a run that is under way. colluders: the owners that tell their noise.

    Opening it drops an unfinished last line. Raises InputError for a damaged file.
    """

    def __init__(
        self, config: Config, directory: RunDirectory, colluders: Iterable[int] = ()
    ) -> None:
        self.config = config
        # Under central trust they have no noise to tell.
        silent = config.federation.trust.model.server_draws
        self.colluders = () if silent else tuple(sorted(colluders))
        self.path = directory.path / FILE
        written = _read(directory)
        self._accounts, self._everything = accounts(written.entries), everything(written.entries)
        self._check = written.check
        journal.drop_unfinished(self.path, written)

    def begin(self, trials: range, rounds: int, noise_multiplier: float) -> "Attempt":
        """Begin another attempt at the cohort of these trials, of so many rounds."""
        account = self._accounts.setdefault(trials.start, Account())
        account.attempts += 1
        return Attempt(self, trials, account, self._everything, rounds, noise_multiplier)

    def append(self, row: Row) -> None:
        """Write a row, and return when it is on disk."""
        self._check = journal.append(self.path, strict_json(asdict(row)), self._check)
        self._accounts[row.cohort].add(row)
        self._everything.add(row)


class Attempt:
    """One attempt to train a cohort.

    `epsilon` is what it has cost the worst owner so far: with noise from the operating system of
    everything that the run released, else of one training. It is what privacy.stop-at limits.
    `earlier` and `released` are how many rounds, of these trials and of all trials together, went
    before it with noise that it does not draw again.
    """

    def __init__(
        self,
        ledger: Ledger,
        trials: range,
        account: Account,
        everything: Account,
        rounds: int,
        noise_multiplier: float,
    ) -> None:
        self._ledger, self._config, self._account = ledger, ledger.config, account
        config = self._config
        kind = planned_kind(config, noise_multiplier)
        self._provisional = config.federation.tolerated_dropouts > 0
        self._template = Row(
            trials.start,
            len(trials),
            account.attempts,
            0,
            kind.noise_multiplier,
            kind.sampling_rate,
            kind.local_steps,
            tuple(range(config.federation.owners)),
            config.privacy.noise_source,
            config.privacy.delta,
            {},
            {},
            kind.participants if self._provisional else None,
            colluders=ledger.colluders,
        )
        planned = [
            replace(self._template, round=round, provisional=self._provisional)
            for round in range(1, rounds + 1)
        ]
        self._training = _Course.of(config, account, planned)
        self._everything = _Course.of(config, everything, planned) if adds_up(config) else None
        self.earlier = account.most if adds_up(config) else 0
        self.released = everything.most if adds_up(config) else 0
        vantage = config.federation.vantage
        self.epsilon = max(
            epsilon_of(config, self._limited.account.spent(owner), vantage)
            for owner in self._template.participants
            if owner not in ledger.colluders
        )

    @property
    def _limited(self) -> "_Course":
        """What privacy.stop-at limits."""
        return self._everything or self._training

    def charge(self, round: int, participants: Iterable[int]) -> None:
        """Enter a round before anything of it leaves.

        Raises BudgetExceededError, and enters nothing, if it would exceed privacy.stop-at for an
        owner at the configured vantage.
        """
        asked = tuple(sorted(participants))
        self._enter(
            replace(self._template, round=round, participants=asked, provisional=self._provisional)
        )

    def settle(self, round: int, present: Iterable[int]) -> None:
        """Enter what a round was, with the noise of the owners that came, before it is released.

        Nothing to do where no owner may be missing. Raises OtherOwnersError, and enters nothing,
        where noise from the seed hid the sum of others in an earlier attempt; BudgetExceededError
        as `charge` does.
        """
        if not self._provisional:
            return
        came = tuple(sorted(present))
        row = replace(self._template, round=round, shares=len(came), present=came)
        if self._account.clashes(row):
            raise OtherOwnersError(
                f"round {round} of the trials from {row.cohort} on would repeat the seed's noise "
                "over other owners than an attempt before, and the difference of the two sums has "
                "none; nothing of it is released: begin another run with --out, or use "
                'privacy.noise-source = "system"'
            )
        self._enter(row)

    def _enter(self, row: Row) -> None:
        training = self._training.after(row)
        released = {} if self._everything is None else self._everything.after(row)
        spent, vantage = released or training, self._config.federation.vantage
        honest = [owner for owner in spent if owner not in row.colluders]
        for owner in honest:
            self._check(row, owner, spent[owner][vantage])
        self._ledger.append(replace(row, epsilon=training, released=released))
        self.epsilon = max(spent[owner][vantage] for owner in honest)

    def _check(self, row: Row, owner: int, epsilon: float) -> None:
        """Raise BudgetExceededError where a row takes an owner beyond the budget."""
        config, limit = self._config, self._config.privacy.stop_at or math.inf
        if epsilon <= limit:
            return
        # What is rounded up may exceed a budget that the exact value keeps.
        counts = self._limited.counts(row, owner)
        if not within(config, counts, limit):
            vantage = config.federation.vantage
            raise BudgetExceededError(
                f"round {row.round} would bring owner {owner} to epsilon "
                f"{epsilon_of(config, counts, vantage):.4g} at delta {config.privacy.delta:g} "
                f"towards the {vantage.value}, above privacy.stop-at = {limit:g}; the rounds "
                "before it stand"
            )


@dataclass(frozen=True)
class _Course:
    """An account, and what every owner is to have spent when the attempt has run to its end."""

    config: Config
    account: Account
    total: Mapping[int, Counts]

    @classmethod
    def of(cls, config: Config, account: Account, planned: Iterable[Row]) -> Self:
        final = account.copy()
        for row in planned:
            final.add(row)
        owners = range(config.federation.owners)
        return cls(config, account, {owner: final.spent(owner) for owner in owners})

    def counts(self, row: Row, owner: int) -> Counts:
        """Return the rounds of an owner with this row among them."""
        asked = owner in row.participants
        return self.account.after(row, owner) if asked else self.account.spent(owner)

    def after(self, row: Row) -> Spent:
        """Return what every owner has spent with this row."""
        spent: dict[int, Mapping[str, float]] = {}
        found: dict[Any, dict[str, float]] = {}  # owners with one history share its values
        for owner, total in self.total.items():
            counts = self.counts(row, owner)
            history = frozenset(counts.items()), frozenset(total.items())
            if history not in found:
                found[history] = at_vantages(self.config, counts, total)
            spent[owner] = found[history]
            if owner in row.colluders:
                spent[owner] = found[history] | {vantage.value: math.inf for vantage in TOLD}
        return spent


def _history(config: Config, before: Counts, kinds: Sequence[Rounds | None]) -> list[list[float]]:
    """Return one owner's epsilon by vantage and round; None: a round without the owner."""
    counts = Counter(before)
    total = counts + Counter(kind for kind in kinds if kind is not None)
    values = []
    for kind in kinds:
        if kind is not None:
            counts[kind] += 1
        values.append(list(at_vantages(config, counts, total).values()))
    return [list(row) for row in zip(*values, strict=True)]


def _worst(
    config: Config, books: Sequence[Account], owner: int | None = None
) -> tuple[int, Counts]:
    """Return which account has the largest epsilon at the configured vantage, and its rounds.

    owner: whose; None for the one who is worst off.
    """
    told = {each for account in books for each in account.colluders}
    owners = sorted(set(range(config.federation.owners)) - told) if owner is None else [owner]
    vantage = config.federation.vantage
    spent = [(place, account.spent(each)) for place, account in enumerate(books) for each in owners]

    def badness(found: tuple[int, Counts]) -> tuple[float, int]:
        return epsilon_of(config, found[1], vantage), found[1].total()

    return max(spent, key=badness)


def _last_attempt(
    config: Config, rows: Sequence[Row]
) -> tuple[list[tuple[Rounds, frozenset[int]]], Account]:
    """Return kind and participants of the worst cohort's last attempt, and what was before it."""
    books = accounts(rows)
    place, _ = _worst(config, list(books.values()))
    cohort = list(books)[place]
    mine = [row for row in rows if row.cohort == cohort]
    last = [row for row in mine if row.attempt == books[cohort].attempts]
    repeated = {row.release for row in last}
    places = {row.place for row in last}
    counted = books[cohort].releases
    earlier = Account()
    for row in mine:
        # A provisional row of the same noise released nothing that the last attempt did not.
        if row.release not in repeated and not (row.provisional and row.place in places):
            noise = counted.get(row.release, row.kind).noise_multiplier
            earlier.add(replace(row, noise_multiplier=noise))
    kinds = [counted.get(row.release, row.kind) for row in last]
    return [
        (kind, frozenset(row.participants)) for kind, row in zip(kinds, last, strict=True)
    ], earlier


def rounds_seen(directory: RunDirectory) -> Counter[int]:
    """Return how many rounds of each cohort events.jsonl says were run, over all attempts.

    One that a kill tore is missing. Raises InputError where that file is damaged.
    """
    rounds = (event for event, _ in directory.events() if event.get("round", 0) >= 1)
    return Counter(event["trials"][0] for event in rounds if "trials" in event)


def lacking(directory: RunDirectory) -> InputError:
    """Return the error that says that rounds which were released are missing."""
    return InputError(
        f"{FILE} in '{directory.path}' lacks rounds that were released; restore it from a copy, or "
        "begin another run with --out"
    )


def _current(rows: Iterable[Row]) -> list[Row]:
    """Return the last row of every round of every attempt, in the order of the first ones."""
    return list({(row.cohort, row.attempt, row.round): row for row in rows}.values())


def _read(directory: RunDirectory) -> Journal[Row]:
    """Return the rows of a run. Raises InputError."""
    return journal.read(
        directory.path / FILE,
        Row.of,
        "nobody knows what was released; restore it from a copy, or begin another run with --out",
    )
