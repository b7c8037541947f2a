"""What a run has spent of every client's privacy, by the rows of its ledger; or is to spend.

Colluders disclosed their noise, by way of the server and unencrypted: under local and distributed
trust their own records count as unprotected towards the server and the participant that they help,
also in rounds where their noise did not hide others'. They are left out of the budget and of what
is worst, which are those of the clients that a guarantee is meant for.

The column of the server is, under distributed trust, that of a server which learns the sum alone.
Where aggregation was simulated (`federation.secure-aggregation`) it is as if aggregated securely:
the server received every message under one share of the noise.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.config.objects import Scheme
from fedsim.federation.runs import accounts, ledger
from fedsim.federation.runs.accounts import HELPED, Account
from fedsim.federation.runs.ledger_row import Row, planned_course
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.game.mechanisms.composition import Counts, adds_up, at_vantages, described, epsilon_of
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust.model import Vantage

EPSILON = "epsilon_spent"
"""The array of a transcript that `curve` returns."""


def describe(
    scheme: Scheme,
    nominal: float,
    rows: Sequence[Row],
    client: int | None = None,
    vantage: Vantage | None = None,
) -> Releases:
    """Return what one training of a run released, at worst over its batches of trials.

    nominal: the noise multiplier, for a run without rows.
    rows: of its ledger; without any it is what the configuration plans.
    client: whose records; None for those of the client who is worst off.
    vantage: towards whom it is worst off; None for the configured one.
    """
    if not rows:
        return privacy.describe(scheme, nominal, vantage)
    books = accounts.by_batch(rows)
    _, counts = _worst(scheme, list(books.values()), client, vantage)
    return described(scheme, counts)


def describe_everything(scheme: Scheme, nominal: float, rows: Sequence[Row]) -> Releases | None:
    """Return what all trainings of a run released together, of the client who is worst off.

    nominal: the noise multiplier, for a run without rows.
    rows: of its ledger; without any it is all that the configuration plans.
    Returns: what a guarantee may speak of; None where the noise is the seed's, which is none.
    """
    if not adds_up(scheme.privacy.noise_source):
        return None
    if not rows:
        return privacy.describe(scheme, nominal).repeated(scheme.trial_count)
    _, counts = _worst(scheme, [accounts.together(rows)])
    return described(scheme, counts)


def describe_run(directory: RunDirectory) -> tuple[Releases, Releases | None]:
    """Return what one training of a run released, and all of them together."""
    config, rows = directory.config, ledger.verified(directory)
    nominal = 0.0 if rows else privacy.noise_multiplier(config.scheme)  # rows state their own
    return describe(config.scheme, nominal, rows), describe_everything(config.scheme, nominal, rows)


def curve(scheme: Scheme, nominal: float, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
    """Return epsilon after every round of one trial.

    Of the batch of trials that is worst off at the configured vantage, over the rounds of its last
    attempt; what earlier attempts released besides is spent before the first. Exact after the last
    round, before it as `running_epsilon`.

    nominal: the noise multiplier, for a run without rows.
    rows: of its ledger; without any it is of all rounds that are planned.
    Returns: float64 [accounts, vantages, k], of each client or of all that are sampled; infinite
    without noise; the vantages are in the order of `Vantage`.
    """
    clients = scheme.participation.accounts
    if rows:
        last, earlier = _last_attempt(scheme, rows)
    else:
        last, earlier = (
            planned_course(scheme.training, scheme.participation, nominal, scheme.training.rounds),
            Account(),
        )
    found: dict[Any, list[list[float]]] = {}
    curves = []
    for client in clients:
        kinds = tuple(kind if client in taking_part else None for kind, taking_part in last)
        before = earlier.spent(client)
        history = frozenset(before.items()), kinds
        if history not in found:
            found[history] = _history(scheme, before, kinds)
        curves.append(found[history])
    spent = np.array(curves, dtype=np.float64)
    for vantage in HELPED:
        spent[sorted(colluders(rows)), list(Vantage).index(vantage)] = math.inf
    return spent


def trainings(rows: Iterable[Row]) -> int:
    """Return how many trainings were begun, all attempts at one counted once."""
    return sum({row.batch: row.trials for row in rows}.values())


def colluders(rows: Iterable[Row]) -> frozenset[int]:
    """Return the clients whose records are no secret: they disclosed their noise."""
    return frozenset(client for row in rows for client in row.colluders)


def earlier_rounds(scheme: Scheme, rows: Sequence[Row]) -> int:
    """Return how many rounds of interrupted attempts count beside those of the last attempt.

    rows: of the run's ledger.
    """
    if not rows:
        return 0
    _, earlier = _last_attempt(scheme, rows)
    return max((counts.total() for counts in earlier.counts.values()), default=0)


def _history(scheme: Scheme, before: Counts, kinds: Sequence[Rounds | None]) -> list[list[float]]:
    """Return one client's epsilon by vantage and round; None: a round without the client."""
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
    """Return which account has the largest epsilon towards a vantage, and its rounds.

    client: whose; None for the one who is worst off. vantage: None for the configured one.
    """
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

    def badness(found: tuple[int, Counts]) -> tuple[float, int]:
        return epsilon_of(scheme, found[1], seen_by), found[1].total()

    return max(spent, key=badness)


def _last_attempt(
    scheme: Scheme, rows: Sequence[Row]
) -> tuple[list[tuple[Rounds, frozenset[int]]], Account]:
    """Return kind and participants of the worst batch's last attempt, and what was before it."""
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
        # A provisional row of the same noise released nothing that the last attempt did not.
        if row.release not in repeated and not (row.provisional and row.place in places):
            noise = counted.get(row.release, row.kind).noise_multiplier
            earlier.add(replace(row, noise_multiplier=noise))
    kinds = [counted.get(row.release, row.kind) for row in last]
    return [
        (kind, frozenset(row.participants)) for kind, row in zip(kinds, last, strict=True)
    ], earlier
