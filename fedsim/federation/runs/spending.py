"""The privacy that a run has spent or will spend, by client and by the rows of its ledger.

Colluders disclose their noise by way of the server, so under local and distributed trust their own
records count as unprotected. The budget and the worst case leave them out. Under distributed trust,
the server's column is for a server that learns only the sum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from fedsim.configuration.objects import Scheme
from fedsim.federation.runs import accounts, ledger
from fedsim.federation.runs.accounts import HELPED, Account
from fedsim.federation.runs.ledger_row import LedgerRow, planned_course
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.game.mechanisms.privacy import Counts, adds_up, at_vantages, described, epsilon_of
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust.model import Vantage

EPSILON = "epsilon_spent"
"""Array of a transcript with the result of `curve`."""


def describe(
    scheme: Scheme,
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
        return privacy.describe(scheme, nominal, vantage)
    books = accounts.by_batch(rows)
    _, counts = _worst(scheme, list(books.values()), client, vantage)
    return described(scheme, counts)


def describe_everything(
    scheme: Scheme, nominal: float, rows: Sequence[LedgerRow]
) -> Releases | None:
    """Return the releases of all trainings for the worst client; None: there is no guarantee."""
    if not adds_up(scheme.privacy.noise_source):
        return None
    if not rows:
        return privacy.describe(scheme, nominal).repeated(scheme.trial_count)
    _, counts = _worst(scheme, [accounts.together(rows)])
    return described(scheme, counts)


def describe_run(directory: RunDirectory) -> tuple[Releases, Releases | None]:
    """Return the releases of one training of a run, and of all its trainings together."""
    config, rows = directory.config, ledger.verified(directory)
    nominal = 0.0 if rows else privacy.noise_multiplier(config.scheme)  # rows have their own
    return describe(config.scheme, nominal, rows), describe_everything(config.scheme, nominal, rows)


def curve(scheme: Scheme, nominal: float, rows: Sequence[LedgerRow]) -> Floats:
    """Return epsilon after every round of one trial.

    It is for the worst batch and its last attempt; releases of earlier attempts are spent before
    the first round. The last round is exact; earlier rounds are as `running_epsilon`.

    Returns: float64 [accounts, vantages, k], with one account for each client, or one for all that
    are sampled, and vantages in the order of `Vantage`. Infinite without noise.
    """
    clients = scheme.participation.accounts
    if rows:
        last, earlier = _last_attempt(scheme, rows)
    else:
        last, earlier = (
            planned_course(scheme.training, scheme.participation, nominal, scheme.training.rounds),
            Account(),
        )
    histories: dict[Any, list[list[float]]] = {}
    curves = []
    for client in clients:
        kinds = tuple(kind if client in taking_part else None for kind, taking_part in last)
        before = earlier.spent(client)
        history = frozenset(before.items()), kinds
        if history not in histories:
            histories[history] = _history(scheme, before, kinds)
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


def earlier_rounds(scheme: Scheme, rows: Sequence[LedgerRow]) -> int:
    """Return the number of rounds of interrupted attempts that count beside the last attempt."""
    if not rows:
        return 0
    _, earlier = _last_attempt(scheme, rows)
    return max((counts.total() for counts in earlier.counts.values()), default=0)


def _history(scheme: Scheme, before: Counts, kinds: Sequence[Rounds | None]) -> list[list[float]]:
    """Return one client's epsilon by vantage and round; kind None: a round without the client."""
    counts = Counter(before)
    total = counts + Counter(kind for kind in kinds if kind is not None)
    values = []
    for kind in kinds:
        if kind is not None:
            counts[kind] += 1
        values.append(list(at_vantages(scheme, counts, total).values()))
    return [list(row) for row in zip(*values, strict=True)]


def _worst(
    scheme: Scheme,
    books: Sequence[Account],
    client: int | None = None,
    vantage: Vantage | None = None,
) -> tuple[int, Counts]:
    """Return the account with the largest epsilon towards a vantage, and its rounds."""
    colluders = {each for account in books for each in account.colluders}
    clients = (
        sorted(set(scheme.participation.accounts) - colluders)
        if client is None
        else [scheme.participation.account_of(client)]
    )
    seen_by = vantage or scheme.federation.vantage
    spent = [
        (place, account.spent(each)) for place, account in enumerate(books) for each in clients
    ]

    def badness(candidate: tuple[int, Counts]) -> tuple[float, int]:
        return epsilon_of(scheme, candidate[1], seen_by), candidate[1].total()

    return max(spent, key=badness)


def _last_attempt(
    scheme: Scheme, rows: Sequence[LedgerRow]
) -> tuple[list[tuple[Rounds, frozenset[int]]], Account]:
    """Return kind and clients of the worst batch's last rounds, and the account before them."""
    books = accounts.by_batch(rows)
    place, _ = _worst(scheme, list(books.values()))
    batch = list(books)[place]
    mine = [row for row in rows if row.batch == batch]
    last = [row for row in mine if row.attempt == books[batch].attempts]
    repeated = {row.release for row in last}
    places = {row.place for row in last}
    counted = books[batch].releases
    earlier = Account()
    for row in mine:
        # A provisional row with the same noise released nothing beyond the last attempt.
        if row.release not in repeated and not (row.provisional and row.place in places):
            noise = counted.get(row.release, row.kind).noise_multiplier
            earlier.add(replace(row, noise_multiplier=noise))
    kinds = [counted.get(row.release, row.kind) for row in last]
    return [
        (kind, frozenset(row.participants)) for kind, row in zip(kinds, last, strict=True)
    ], earlier
