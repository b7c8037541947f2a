"""The privacy that a run has spent or will spend, by client and by the rows of its ledger.

Colluders disclose their noise by way of the server, so under local and distributed trust their own
records count as unprotected. The budget and the worst case leave them out. Under distributed trust,
the server's column is for a server that learns only the sum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from fedsim.configuration import Config
from fedsim.federation.runs import ledger
from fedsim.federation.runs.budget import Course, courses
from fedsim.federation.runs.rows import Account, LedgerRow, by_batch
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.game.mechanisms.privacy import Counts, adds_up, at_vantages, described, epsilon_of
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Vantage

EPSILON = "epsilon_spent"
"""Array of a transcript with the result of `curve`."""

HELPED = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that colluders help."""


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
    total = counts + Counter(kind for kind in kinds if kind is not None)
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
