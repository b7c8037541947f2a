"""The privacy that a run has spent or will spend, by client and by the rows of its ledger.

A budget (`privacy.stop-at`) decides the number of rounds before the first one.

Colluders disclose their noise by way of the server, so under local and distributed trust their own
records count as unprotected. The budget and the worst case leave them out. Under distributed trust,
the server's column is for a server that learns only the sum.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from adversaries.errors import InputError
from fedsim.configuration import Config
from fedsim.federation.runs import ledger
from fedsim.federation.runs.batches import Batches, rounds_of
from fedsim.federation.runs.ledger import Account, LedgerRow, by_batch, kept, planned_kind
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.game.mechanisms.privacy import (
    Counts,
    adds_up,
    at_vantages,
    described,
    epsilon_of,
    times,
    within,
)
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Vantage

EPSILON = "epsilon_spent"
"""Array of a transcript with the result of `curve`."""

HELPED = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that colluders help."""

Course = Sequence[Rounds | None]
"""The planned rounds of a client; None for one that it does not join."""


def describe(
    config: Config,
    nominal: float,
    rows: Sequence[LedgerRow],
    client: int | None = None,
    vantage: Vantage | None = None,
) -> Releases:
    """Return the releases of one training of a run, for the worst of its batches.

    rows: empty: the plan of the configuration.
    client, vantage: None: the worst, the configured one.
    """
    if not rows:
        return privacy.describe(config, nominal, vantage)
    _, counts = _worst(config, rows, by_batch(rows), client, vantage)
    return described(config, counts)


def describe_everything(
    config: Config, nominal: float, rows: Sequence[LedgerRow]
) -> Releases | None:
    """Return the releases of all trainings for the worst client; None: there is no guarantee."""
    if not adds_up(config.privacy.noise_source):
        return None
    if not rows:
        return privacy.describe(config, nominal).repeated(config.trials.count)
    _, counts = _worst(config, rows, {0: Account(rows, all_trials=True)})
    return described(config, counts)


def describe_run(directory: RunDirectory) -> tuple[Releases, Releases | None]:
    """Return the releases of one training of a run, and of all its trainings together."""
    config, rows = directory.config, ledger.verified(directory)
    nominal = 0.0 if rows else privacy.noise_multiplier(config)  # rows have their own
    return describe(config, nominal, rows), describe_everything(config, nominal, rows)


def curve(config: Config, nominal: float, rows: Sequence[LedgerRow]) -> Floats:
    """Return epsilon after every round of one trial.

    It is for the worst batch and its last attempt; releases of earlier attempts are spent before
    the first round. The last round is exact; earlier rounds are as `running_epsilon`.

    Returns: float64 [accounts, vantages, k], with one account for each client, or one for all that
    are sampled, and vantages in the order of `Vantage`. Infinite without noise.
    """
    accounts = config.participation.accounts
    if rows:
        ahead, earlier = _last_attempt(config, rows)
    else:
        ahead, earlier = courses(config, nominal, config.training.rounds), {}
    histories: dict[Any, list[list[float]]] = {}
    curves = []
    for client, course in zip(accounts, ahead, strict=True):
        before = earlier.get(client, Counter())
        history = frozenset(before.items()), tuple(course)
        if history not in histories:
            histories[history] = _history(config, before, course)
        curves.append(histories[history])
    spent = np.array(curves, dtype=np.float64)
    for vantage in HELPED:
        spent[sorted(colluders(rows)), list(Vantage).index(vantage)] = math.inf
    return spent


def trainings(rows: Iterable[LedgerRow]) -> int:
    """Return the number of trainings that were begun. All attempts at a training count once."""
    return sum({row.batch: row.trials for row in rows}.values())


def colluders(rows: Iterable[LedgerRow]) -> frozenset[int]:
    """Return the clients that disclosed their noise, so that their records are not protected."""
    return frozenset(client for row in rows for client in row.colluders)


def earlier_rounds(config: Config, rows: Sequence[LedgerRow]) -> int:
    """Return the number of rounds of interrupted attempts that count beside the last attempt."""
    earlier = _last_attempt(config, rows)[1] if rows else {}
    return max((counts.total() for counts in earlier.values()), default=0)


def _history(config: Config, before: Counts, kinds: Course) -> list[list[float]]:
    """Return one client's epsilon by vantage and round; kind None: a round without the client."""
    counts = Counter(before)
    total = counts + Counter(filter(None, kinds))
    values = []
    for kind in kinds:
        if kind is not None:
            counts[kind] += 1
        values.append(list(at_vantages(config, counts, total).values()))
    return [list(row) for row in zip(*values, strict=True)]


def _worst(
    config: Config,
    rows: Sequence[LedgerRow],
    accounts: dict[int, Account],
    client: int | None = None,
    vantage: Vantage | None = None,
) -> tuple[int, Counts]:
    """Return the key of the account with the largest epsilon, and its client's rounds."""
    honest = sorted(set(config.participation.accounts) - colluders(rows))
    clients = honest if client is None else [config.participation.account_of(client)]
    seen_by = vantage or config.federation.vantage
    spent = [(key, account.spent(each)) for key, account in accounts.items() for each in clients]

    def badness(candidate: tuple[int, Counts]) -> tuple[float, int]:
        return epsilon_of(config, candidate[1], seen_by), candidate[1].total()

    return max(spent, key=badness)


def _last_attempt(
    config: Config, rows: Sequence[LedgerRow]
) -> tuple[list[Course], dict[int, Counts]]:
    """Return each account's last rounds in the worst batch, and its rounds before them."""
    accounts = by_batch(rows)
    batch, _ = _worst(config, rows, accounts)
    counted, last = accounts[batch].rows.values(), accounts[batch].attempts
    before = Account(row for row in counted if row.attempt < last)
    own = [row for row in counted if row.attempt == last]
    clients = config.participation.accounts
    lasts: list[Course] = [
        [row.kind if who in row.clients else None for row in own] for who in clients
    ]
    return lasts, {client: before.spent(client) for client in clients}


@dataclass(frozen=True)
class Ahead:
    """Trainings still to run, beside what each client has spent."""

    config: Config
    trainings: int
    clients: Sequence[tuple[Counts, Course]]

    def after(self, rounds: int) -> list[Counts]:
        """Return the final rounds of every client; equal accounts appear once."""
        alike = {(frozenset(each[0].items()), id(each[1])): each for each in self.clients}
        return [
            spent + times(Counter(filter(None, course[:rounds])), self.trainings)
            for spent, course in alike.values()
        ]

    def epsilon(self, rounds: int) -> float:
        """Return the final epsilon of the worst client, at the configured vantage."""
        vantage = self.config.federation.vantage
        return max(epsilon_of(self.config, counts, vantage) for counts in self.after(rounds))

    def affordable(self, most: int) -> int:
        """Return the number of rounds that keep epsilon within privacy.stop-at."""
        limit = self.config.privacy.stop_at

        def exceeds(rounds: int) -> bool:
            return not all(within(self.config, counts, limit) for counts in self.after(rounds))

        if not exceeds(most):
            return most
        return bisect_left(range(1, most), True, key=exceeds)


def courses(config: Config, nominal: float, rounds: int, done: int = 0) -> list[Course]:
    """Return the planned rounds after the first `done`; equal accounts have the same object."""
    training, participation = config.training, config.participation
    accounts, numbers = participation.accounts, range(done + 1, rounds + 1)
    if not participation.varying:
        return [[planned_kind(training, participation, nominal)] * len(numbers)] * len(accounts)
    kinds = [planned_kind(training, participation, nominal, number) for number in numbers]
    joining = [frozenset(participation.charged(number)) for number in numbers]
    return [
        [kind if client in who else None for kind, who in zip(kinds, joining, strict=True)]
        for client in accounts
    ]


def planned_rounds(campaign: Batches, nominal: float, done: int = 0) -> int:
    """Return the number of rounds of every batch: training.rounds, or as many as are affordable.

    campaign: its directory is that of a run to continue, whose finished batches fix the number.
    done: rounds of the continued training that need not be run again.
    Raises InputError if the budget does not allow that, if interrupted attempts make the run exceed
    its configured cost without privacy.stop-at, or if the ledger is damaged or of another source of
    noise.
    """
    config, directory = campaign.config, campaign.directory
    rows = [] if directory is None else ledger.verified(directory)
    if config.run.job == "training":
        rows = kept(config, rows, done, nominal)
    finished = campaign.finished()
    left = [trials for trials in campaign.ranges() if trials.start not in finished]
    fixed = rounds_of(directory, finished[0]) if directory and finished else None
    rounds = fixed or config.training.rounds
    if not left:
        return rounds
    ahead = courses(config, nominal, rounds, done)
    if adds_up(config.privacy.noise_source):
        account, trainings = Account(rows, all_trials=True), sum(map(len, left))
    else:
        account, trainings = Account(), 1  # a new attempt repeats what earlier ones released
    spent = [account.spent(client) for client in config.participation.accounts]
    work = Ahead(config, trainings, list(zip(spent, ahead, strict=True)))
    if config.privacy.stop_at:
        most = done + work.affordable(rounds - done)
        if most == 0 or (fixed is not None and most < fixed):
            raise InputError(_too_dear(work, nominal, fixed or 1))
        return most
    if directory and adds_up(config.privacy.noise_source):
        _check_planned(work, nominal, rounds - done)
    return rounds


def _check_planned(ahead: Ahead, nominal: float, rounds: int) -> None:
    """Raise InputError if a run would cost more than its configuration plans."""
    config, vantage = ahead.config, ahead.config.federation.vantage
    kind = planned_kind(config.training, config.participation, nominal)
    whole = times(Counter({kind: config.training.rounds}), config.trials.count)
    target, final = epsilon_of(config, whole, vantage), ahead.epsilon(rounds)
    if final > target * (1 + 1e-9):
        enough = f"{math.ceil(final * 1000) / 1000:g}"
        raise InputError(
            "the releases of interrupted attempts stay spent. In the end this run will have "
            f"released epsilon {final:.4g} at delta {config.privacy.delta:g} towards the "
            f"{vantage.value}, while its configuration plans {target:.4g}. To continue anyway, set "
            f"privacy.stop-at: add privacy.stop-at={enough} to the command that began the "
            f"run, or write stop-at = {enough} under [privacy] in its config.toml"
        )


def _too_dear(ahead: Ahead, nominal: float, needed: int) -> str:
    """Return a message with the spent epsilon, the least cost to continue, and the remedy."""
    privacy, vantage = ahead.config.privacy, ahead.config.federation.vantage
    before, after = ahead.epsilon(0), ahead.epsilon(needed)
    rounds = "one round" if needed == 1 else f"{needed} rounds (as in the finished trials)"
    trials = f" of each of the {ahead.trainings} trials to come" * (ahead.trainings > 1)
    return (
        f"privacy.stop-at is {privacy.stop_at:g}, but {rounds}{trials} would cost epsilon "
        f"{after:.4g} at delta {privacy.delta:g} towards the {vantage.value}, of which "
        f"{before:.4g} is spent; raise privacy.stop-at, add noise (the noise multiplier is "
        f"{nominal:.4g}), or begin with fewer trials"
    )
