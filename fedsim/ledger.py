"""The privacy ledger of a run: what every owner's records were exposed to, and what is left.

`ledger.jsonl` in the run directory holds one JSON object for each round, appended and forced to
disk before the round's messages leave: once they are out the round may be seen (`fedsim.journal`).
A last line without its end never let a message out and is dropped; any other damage is an error.

Trials are independent repetitions of one training, so epsilon is that of one trial, and the cohorts
do not add up. The attempts at one cohort do: a restart draws fresh noise from the operating system,
and what the interrupted attempt released stays spent. From the seed a restart releases the same
values again, which count once. An owner is charged for the rounds that it was asked in.

Where missing owners are tolerated, a round is entered twice: before its messages leave, for the
fewest shares of noise that it may have, provisionally; and, before its sum is released, with the
owners that came. A provisional row that no other followed counts for what it says.

The same noise under other data hides nothing: two sums of one round with noise from the seed differ
by what the owners sent that are in one of them alone, under no noise but their own, and the models
after them by sums without any. So a restart from the seed whose round has other owners present than
an attempt before is refused before its sum is released. Where a ledger holds such a pair all the
same, the later round counts as one without noise: epsilon is infinite from then on. Older ledgers
say how many came and not who: the same number is taken for the same owners.

Colluders told their noise, by way of the server and unencrypted: under local and distributed trust
their own records count as unprotected towards the server and the participant that they help, also
in rounds where their noise did not hide others'. They are left out of the budget and of what is
worst, which are those of the owners that a guarantee is meant for.

The column of the server is, under distributed trust, that of a server which learns the sum alone.
Where aggregation was simulated (`federation.secure-aggregation`) it is as if aggregated securely:
the server received every message under one share of the noise.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedsim import cohorts, journal, privacy, run_transcript
from fedsim.composition import Counts, at_vantages, described, epsilon_of, within
from fedsim.config import Config
from fedsim.description import Description, Rounds
from fedsim.errors import InputError
from fedsim.journal import DamagedError, Journal
from fedsim.mechanism import Trust, Vantage
from fedsim.run_directory import RunDirectory
from fedsim.strict_json import strict_json

FILE = "ledger.jsonl"

EPSILON = "epsilon_spent"
"""The array of a transcript that `curve` returns."""

Release = tuple[int, int, Rounds, tuple[int, ...], tuple[int, ...] | None]
"""What is one release: attempt (0 where the noise is the seed's), round, kind, asked, present."""

TOLD = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that colluders help."""


class BudgetExceededError(RuntimeError):
    """A round would exceed `privacy.stop-at`; it was refused before anything of it left."""


class OtherOwnersError(RuntimeError):
    """A round repeats the noise of an earlier attempt over other owners; its sum was held back."""


@dataclass(frozen=True)
class Row:
    """One round of one cohort of trials.

    cohort: its first trial; attempt, round: from 1; noise_multiplier: nominal, as realised, and 0
    where no clipping gives it a meaning;
    participants: the owners that were asked; epsilon: owner -> vantage -> what one trial has spent
    after this round at `delta`, inf without noise, by counts that `rounded_up` may have rounded;
    shares: of how many owners the noise is, None (as in older ledgers) for that of all who were
    asked; provisional: whether a row with the true number of shares is to follow; present: the
    owners that came, None where shares says it or (in older ledgers) nothing does; colluders: the
    owners that told the adversary their noise.
    """

    cohort: int
    attempt: int
    round: int
    noise_multiplier: float
    sampling_rate: float
    local_steps: int
    participants: tuple[int, ...]
    noise_source: str
    delta: float
    epsilon: Mapping[int, Mapping[str, float]]
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
        return *self.place, self.kind, self.participants, present

    @property
    def place(self) -> tuple[int, int]:
        """Attempt, 0 where the noise is the seed's, and round."""
        return 0 if self.noise_source == "seed" else self.attempt, self.round

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Read a row of the file. Raises KeyError, TypeError or ValueError if it is not one."""
        epsilon = {
            int(owner): {name: math.inf if e is None else float(e) for name, e in values.items()}
            for owner, values in entry["epsilon"].items()
        }
        owners = {
            name: tuple(map(int, entry[name]))
            for name in ("participants", "present", "colluders")
            if entry.get(name) is not None
        }
        return cls(**{**entry, **owners, "epsilon": epsilon})


@dataclass
class Account:
    """What the trials of one cohort have released, each release once, and to every owner's cost.

    releases: what each counted as; settled: the places of the rows that are not provisional;
    pending: the provisional rows that no other has followed so far, by their place; colluders: the
    owners that told their noise.
    """

    attempts: int = 0
    releases: dict[Release, Rounds] = field(default_factory=dict)
    counts: dict[int, Counts] = field(default_factory=dict)
    settled: set[tuple[int, int]] = field(default_factory=set)
    pending: dict[tuple[int, int], Row] = field(default_factory=dict)
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
                    self.counts[owner] -= Counter({superseded.kind: 1})
            self.releases[row.release] = kind
            self.settled.add(row.place)
        for owner in row.participants:
            self.counts.setdefault(owner, Counter())[kind] += 1

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
            counts -= Counter({superseded.kind: 1})
        return counts + Counter({self.counts_as(row): 1})

    def spent(self, owner: int) -> Counts:
        """Return the rounds of an owner."""
        return self.counts.get(owner, Counter())


def accounts(rows: Iterable[Row]) -> dict[int, Account]:
    """Return the account of every cohort by its first trial."""
    found: dict[int, Account] = {}
    for row in rows:
        found.setdefault(row.cohort, Account()).add(row)
    return found


def read(directory: RunDirectory) -> list[Row]:
    """Return the rows of a run, none for a run from before there were ledgers.

    One row for each round of an attempt: the last. Raises InputError where the file is damaged
    anywhere but in an unfinished last line.
    """
    return _current(_read(directory).entries)


def verified(directory: RunDirectory) -> list[Row]:
    """Return the rows of a run; raise InputError where some that the run shows are not there.

    The last attempt of every finished cohort has its number of rounds, and a cohort at least one
    row for every round that events.jsonl says was run: the row is written first. Nothing is missed
    in a run from before there were ledgers, whose transcript has no epsilon either.
    """
    rows = read(directory)
    if not directory.has(FILE):
        if directory.has(run_transcript.FILE) and EPSILON in run_transcript.read(directory):
            raise InputError(_lacking(directory))
        return rows
    books = accounts(rows)
    lengths = Counter((row.cohort, row.attempt) for row in rows)
    finished = {
        cohort: _rounds_of(directory, cohort) for cohort in _finished(directory.config, directory)
    }
    complete = all(
        lengths[cohort, books.get(cohort, Account()).attempts] == rounds
        for cohort, rounds in finished.items()
    )
    if not complete or not _rounds_seen(directory) <= Counter(row.cohort for row in rows):
        raise InputError(_lacking(directory))
    return rows


def describe(
    config: Config,
    nominal: float,
    rows: Sequence[Row],
    owner: int | None = None,
    rounds: int | None = None,
) -> Description:
    """Return what a run released of one trial's records, at worst over its cohorts.

    owner: whose records; None for those of the owner who is worst off at the configured vantage.
    Without rows it is what the configuration plans, with the nominal noise multiplier, or the first
    `rounds` of it where it is known that no more were run.
    """
    if not rows:
        planned = privacy.describe(config, nominal)
        return planned if rounds is None else planned.first(rounds)
    books = accounts(rows)
    cohort, worst = _worst(config, books, owner)
    return described(config, books[cohort].spent(worst))


def describe_run(directory: RunDirectory, owner: int | None = None) -> Description:
    """Return what the run in a directory released, as `describe`.

    Without a ledger the transcript tells how many rounds. Raises InputError, as `verified` too.
    """
    config, rows, rounds = directory.config, verified(directory), None
    if not rows and directory.has(run_transcript.FILE):
        rounds = run_transcript.read(directory)["log_odds"].shape[1]
    facts = directory.read_json("facts.json") if directory.has("facts.json") else {}
    nominal = facts.get("noise_multiplier") or privacy.noise_multiplier(config)
    return describe(config, nominal, rows, owner, rounds)


def curve(
    config: Config, nominal: float, rows: Sequence[Row], rounds: int | None = None
) -> npt.NDArray[np.float64]:
    """Return epsilon after every round of one trial, [owners, vantages, k], inf without noise.

    Of the cohort that is worst off at the configured vantage, over the rounds of its last attempt;
    what earlier attempts released besides is spent before the first. The vantages are in the order
    of `Vantage`. Exact after the last round, before it as `running_epsilon`. rounds: how many were
    run where there are no rows to tell; None for all that are planned.
    """
    owners = range(config.federation.owners)
    if rows:
        last, earlier = _last_attempt(config, rows)
    else:
        count = config.training.rounds if rounds is None else rounds
        last, earlier = [(planned_kind(config, nominal), frozenset(owners))] * count, Account()
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


def affordable(config: Config, kind: Rounds, most: int, spent: Iterable[Counts] = ()) -> int:
    """Return how many more rounds keep epsilon within privacy.stop-at, `most` of them at most.

    At the configured vantage, for the worst of the owners, whose rounds so far are `spent`. Exact:
    by bisection on accounted values, which grow with the rounds.
    """
    histories = list({frozenset(counts.items()): counts for counts in spent}.values()) or [
        Counter[Rounds]()
    ]

    def affords(count: int) -> bool:
        return all(_within(config, counts + Counter({kind: count})) for counts in histories)

    if not config.privacy.stop_at or affords(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affords(middle) else (low, middle)
    return low


def plan(config: Config, nominal: float, directory: RunDirectory | None = None) -> int:
    """Return how many rounds every cohort runs: training.rounds, or as many as stop-at allows.

    directory: that of a run to be continued, where finished cohorts fix the number. Raises
    InputError where not one round can be afforded, where an interrupted cohort cannot afford what
    the finished ones ran, for a ledger that is damaged or lacks rounds, and where an interrupted
    cohort released PAC noise that cannot be drawn again.
    """
    rows = [] if directory is None else verified(directory)
    if directory and not directory.has(FILE) and _rounds_seen(directory):
        raise InputError(_lacking(directory))
    wanted = config.training.rounds
    starts = _cohorts(config, directory)
    finished = _finished(config, directory) if directory else []
    fixed = None
    if directory and finished:
        fixed = wanted = _rounds_of(directory, finished[0])
    if config.privacy.noise == "pac" and config.privacy.noise_source == "system":
        for cohort in sorted({row.cohort for row in rows} - set(finished)):
            raise InputError(
                f"the trials from {cohort} on were interrupted, and their PAC noise can neither be "
                "drawn again nor be counted in the mutual information; start anew with --out, or "
                'use privacy.noise-source = "seed"'
            )
    if not config.privacy.stop_at:
        return wanted
    kind = planned_kind(config, nominal)
    everybody = range(config.federation.owners)
    # A new attempt repeats rounds of the seed's noise; any other was spent for good.
    kept = accounts(
        row
        for row in rows
        if not (
            row.noise_source == "seed"
            and row.round <= wanted
            and row.participants == tuple(everybody)
            and replace(row.kind, participants=None) == replace(kind, participants=None)
        )
    )
    rounds = wanted
    for cohort in starts:
        if cohort in finished:
            continue
        spent = [kept.get(cohort, Account()).spent(owner) for owner in everybody]
        rounds = min(rounds, affordable(config, kind, wanted, spent))
        if rounds == 0 or (fixed is not None and rounds < fixed):
            raise InputError(_unaffordable(config, kind, fixed, cohort, spent))
    return rounds


class Ledger:
    """The ledger of a run that is under way. colluders: the owners that tell their noise.

    Opening it drops an unfinished last line. Raises InputError for a damaged file.
    """

    def __init__(
        self, config: Config, directory: RunDirectory, colluders: Iterable[int] = ()
    ) -> None:
        self.config = config
        # Under central trust they have no noise to tell.
        central = config.federation.trust is Trust.CENTRAL
        self.colluders = () if central else tuple(sorted(colluders))
        self.path = directory.path / FILE
        written = _read(directory)
        self._accounts, self._check = accounts(written.entries), written.check
        journal.drop_unfinished(self.path, written)

    def begin(self, cohort: int, rounds: int, noise_multiplier: float) -> "Attempt":
        """Begin another attempt at the cohort whose first trial this is, of so many rounds."""
        account = self._accounts.setdefault(cohort, Account())
        account.attempts += 1
        return Attempt(self, cohort, account, rounds, noise_multiplier)

    def append(self, row: Row) -> None:
        """Write a row, and return when it is on disk."""
        self._check = journal.append(self.path, strict_json(asdict(row)), self._check)
        self._accounts[row.cohort].add(row)


class Attempt:
    """One attempt to train a cohort; `epsilon` is what it has cost the worst owner so far."""

    def __init__(
        self, ledger: Ledger, cohort: int, account: Account, rounds: int, noise_multiplier: float
    ) -> None:
        self._ledger, self._config, self._account = ledger, ledger.config, account
        config = self._config
        everybody = tuple(range(config.federation.owners))
        kind = planned_kind(config, noise_multiplier)
        self._provisional = config.federation.tolerated_dropouts > 0
        self._template = Row(
            cohort,
            account.attempts,
            0,
            kind.noise_multiplier,
            kind.sampling_rate,
            kind.local_steps,
            everybody,
            config.privacy.noise_source,
            config.privacy.delta,
            {},
            kind.participants if self._provisional else None,
            colluders=ledger.colluders,
        )
        planned = Account(
            0, dict(account.releases), {o: Counter(account.spent(o)) for o in everybody}
        )
        for round in range(1, rounds + 1):
            row = replace(self._template, round=round)
            if not (self._provisional and row.place in account.settled):
                planned.add(row)
        self._total = planned.counts
        vantage = config.federation.vantage
        self.epsilon = max(
            epsilon_of(config, account.spent(owner), vantage)
            for owner in everybody
            if owner not in ledger.colluders
        )

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
        config, vantage = self._config, self._config.federation.vantage
        spent: dict[int, dict[str, float]] = {}
        found: dict[Any, dict[str, float]] = {}  # owners with one history share its values
        for owner, total in self._total.items():
            asked = owner in row.participants
            counts = self._account.after(row, owner) if asked else self._account.spent(owner)
            history = frozenset(counts.items()), frozenset(total.items())
            if history not in found:
                found[history] = at_vantages(config, counts, total)
            spent[owner] = found[history]
            if owner in row.colluders:
                spent[owner] = spent[owner] | {vantage.value: math.inf for vantage in TOLD}
                continue
            exceeds = spent[owner][vantage] > (config.privacy.stop_at or math.inf)
            # What is rounded up may exceed a budget that the exact value keeps.
            if exceeds and not _within(config, counts):
                raise BudgetExceededError(
                    f"round {row.round} would bring owner {owner} to epsilon "
                    f"{epsilon_of(config, counts, vantage):.4g} at delta {config.privacy.delta:g} "
                    f"towards the {vantage.value}, above privacy.stop-at = "
                    f"{config.privacy.stop_at:g}; the rounds before it stand"
                )
        self._ledger.append(replace(row, epsilon=spent))
        self.epsilon = max(
            values[vantage] for owner, values in spent.items() if owner not in row.colluders
        )


def _within(config: Config, counts: Counts) -> bool:
    return within(config, counts, config.privacy.stop_at or math.inf)


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
    config: Config, books: Mapping[int, Account], owner: int | None = None
) -> tuple[int, int]:
    """Return cohort and owner with the largest epsilon at the configured vantage."""
    told = {each for account in books.values() for each in account.colluders}
    owners = sorted(set(range(config.federation.owners)) - told) if owner is None else [owner]
    vantage = config.federation.vantage

    def badness(pair: tuple[int, int]) -> tuple[float, int]:
        counts = books[pair[0]].spent(pair[1])
        return epsilon_of(config, counts, vantage), counts.total()

    return max(((cohort, each) for cohort in books for each in owners), key=badness)


def _last_attempt(
    config: Config, rows: Sequence[Row]
) -> tuple[list[tuple[Rounds, frozenset[int]]], Account]:
    """Return kind and participants of the worst cohort's last attempt, and what was before it."""
    books = accounts(rows)
    cohort, _ = _worst(config, books)
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


def _unaffordable(
    config: Config, kind: Rounds, fixed: int | None, cohort: int, spent: Sequence[Counts]
) -> str:
    """Say what was spent, what a round or the rounds of the other cohorts cost, what to do."""
    vantage, stop_at = config.federation.vantage, config.privacy.stop_at
    needed = fixed or 1
    before = max(epsilon_of(config, counts, vantage) for counts in spent)
    after = max(epsilon_of(config, counts + Counter({kind: needed}), vantage) for counts in spent)
    where = f"at delta {config.privacy.delta:g} towards the {vantage.value}"
    if not any(spent):
        return (
            f"privacy.stop-at is {stop_at:g}, but one round costs epsilon {after:.4g} {where}; "
            f"raise privacy.stop-at, or add noise (the noise multiplier is "
            f"{kind.noise_multiplier:.4g})"
        )
    what = f"the {needed} rounds of the other cohorts" if fixed else "one more round"
    rounds = max(counts.total() for counts in spent)
    return (
        f"the trials from {cohort} on were interrupted after {rounds} rounds, whose noise cannot "
        f"be drawn again: they have spent epsilon {before:.4g} {where}, and {what} would bring "
        f"them to {after:.4g}, above privacy.stop-at = {stop_at:g}; to allow it, raise "
        "privacy.stop-at in config.toml of the run directory"
    )


def _cohorts(config: Config, directory: RunDirectory | None) -> list[int]:
    """Return the first trials of the cohorts."""
    return [trials.start for trials in cohorts.ranges(config, directory)]


def _finished(config: Config, directory: RunDirectory) -> list[int]:
    """Return the cohorts whose findings are there."""
    return [
        each for each in _cohorts(config, directory) if directory.has(directory.cohort_file(each))
    ]


def _rounds_of(directory: RunDirectory, cohort: int) -> int:
    """Return how many rounds a finished cohort ran."""
    findings = directory.read_arrays(directory.cohort_file(cohort))
    return int(findings["sensitivities"].shape[1])


def _rounds_seen(directory: RunDirectory) -> Counter[int]:
    """Return how many rounds of each cohort events.jsonl says were run, over all attempts."""
    path = directory.path / "events.jsonl"
    seen: Counter[int] = Counter()
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            event = json.loads(line)
        except ValueError:  # torn by a kill, or glued to the event after it: one round fewer
            continue
        if event.get("round", 0) >= 1 and "trials" in event:
            seen[int(event["trials"][0])] += 1
    return seen


def _lacking(directory: RunDirectory) -> str:
    return (
        f"{FILE} in '{directory.path}' lacks rounds that were released; restore it from a copy, or "
        "begin another run with --out"
    )


def _current(rows: Iterable[Row]) -> list[Row]:
    """Return the last row of every round of every attempt, in the order of the first ones."""
    return list({(row.cohort, row.attempt, row.round): row for row in rows}.values())


def _read(directory: RunDirectory) -> Journal[Row]:
    """Return the rows of a run. Raises InputError."""
    try:
        return journal.read(directory.path / FILE, Row.of)
    except OSError as error:
        raise InputError(f"cannot read {FILE} in '{directory.path}': {error.strerror}") from None
    except DamagedError as error:
        raise InputError(
            f"{FILE} in '{directory.path}' is damaged in line {error.line}, so that nobody knows "
            "what was released; restore it from a copy, or begin another run with --out"
        ) from None
