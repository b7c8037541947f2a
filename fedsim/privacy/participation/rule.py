"""Who joins a round, with which coins, and the rate that is charged."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Bools, Ints

ALL_CLIENTS = -1
"""The account of all clients together, where a ledger must not disclose who joined."""

Coins = Bools

History = tuple[tuple[int, int], ...]
"""A client's rounds: pairs of the number of noise shares in a round, and of such rounds."""


@dataclass(frozen=True)
class Participation:
    """Which clients and records take part in which round, and how that is charged.

    Without rates below 1 every client and record takes part. A secret coin amplifies a unit's
    privacy: of a record that its client samples, or of a client (`hidden`) that a server samples
    which adds the noise. Other clients join rounds in public (`varying`): an adversary that knows a
    client's other records sees whether they are in the sum, so a client's coin protects nothing. It
    only saves the rounds that the client does not join.

    Attributes:
        clients: number of clients.
        units: number of records of D, or of clients where privacy protects clients.
        missing: number of clients that may be missing from a round.
        client_rate: probability that a client is sampled in a round, in (0, 1].
        record_rate: probability that a record is sampled in a step, in (0, 1].
        local_steps: number of steps of a client in a round.
        by_client: whether privacy protects clients; else records.
        server_draws: whether the server adds the noise; else each client.
        seed: of the coins; None draws them from the operating system's entropy.
    """

    clients: int
    units: int
    missing: int = 0
    client_rate: float = 1.0
    record_rate: float = 1.0
    local_steps: int = 1
    by_client: bool = False
    server_draws: bool = True
    seed: int | None = None

    @property
    def complete(self) -> bool:
        """Whether every client joins every round."""
        return self.client_rate == 1

    @property
    def hidden(self) -> bool:
        """Whether the adversary may not know which clients join a round."""
        return self.by_client and self.server_draws and not self.complete

    @property
    def varying(self) -> bool:
        """Whether rounds have different clients, in public."""
        return not (self.complete or self.hidden)

    @property
    def rate(self) -> float:
        """The rate at which a step is charged to a unit: the probability of its secret coin."""
        if self.by_client:
            return self.client_rate if self.hidden else 1.0
        return self.record_rate

    @property
    def secret(self) -> bool:
        """Whether a secret coin decides if the target takes part in a step."""
        return self.rate < 1

    @property
    def joining_rate(self) -> float:
        """The probability that a client joins a round in public."""
        return self.client_rate if self.varying else 1.0

    @property
    def expected_clients(self) -> float:
        """Expected number of clients in a round, which together add the nominal noise."""
        return self.joining_rate * self.clients

    @property
    def divisor(self) -> float:
        """The public constant that divides a sum: the expected number of units in a step."""
        return self.joining_rate * self.rate * self.units

    @property
    def accounts(self) -> Sequence[int]:
        """The clients for which a ledger has accounts, or `ALL_CLIENTS` only."""
        # A round costs every hidden client the same, whether it joined or not.
        return (ALL_CLIENTS,) if self.hidden else range(self.clients)

    def account_of(self, client: int) -> int:
        """Return the account that a client is charged to: its own number or `ALL_CLIENTS`."""
        return client if client in self.accounts else ALL_CLIENTS

    def participants(self, round: int) -> Sequence[int]:
        """Return the clients whose messages a round (from 1) sums if no client is missing."""
        if not self.varying:
            return range(self.clients)
        from fedsim.privacy.participation import sampling  # noqa: PLC0415  (sampling only)

        joined = sampling.joined(self.seed, round, self.clients, self.client_rate)
        return tuple(joined.nonzero()[0].tolist())

    def charged(self, round: int) -> tuple[int, ...]:
        """Return the accounts that a round, counted from 1, is charged to."""
        return tuple(self.participants(round) if self.varying else self.accounts)

    def shares(self, round: int) -> int:
        """Return the least number of noise shares in a round, with as many missing as allowed."""
        if self.server_draws or not self.varying:
            return self.clients - self.missing
        # Even in a round that no client joins, the target's client is charged for one share.
        return max(1, len(self.participants(round)) - self.missing)

    def step_number(self, round: int, step: int) -> int:
        """Return the number of a local step in the seed tree, for its noise and its coins.

        Args:
            round: counts from 1.
            step: within the round, counts from 1.
        """
        return (round - 1) * self.local_steps + step

    def coins(
        self, trials: Sequence[int], round: int, step: int, target_client: int, client_of: Ints
    ) -> Coins | None:
        """Return which records of D, or which clients, take part in a step of a round.

        Args:
            trials: numbers of the T trials.
            round: counts from 1.
            step: local step within the round, counts from 1.
            target_client: the client that holds the target, or is the target.
            client_of: the client of each of the n records of D.

        Returns: bool [T, n], or [T, clients] where privacy protects clients; None if all take part.
        """
        if self.complete and not self.secret:
            return None
        from fedsim.privacy.participation import sampling  # noqa: PLC0415  (sampling only)

        if self.hidden:
            draw = sampling.clients if self.seed is None else sampling.remembered
            return draw(
                self.seed, tuple(trials), round, self.clients, self.client_rate, target_client
            )
        joined = None
        if self.varying:
            joining = np.zeros(self.clients, dtype=np.bool_)
            joining[list(self.participants(round))] = True
            units = joining if self.by_client else joining[client_of]
            joined = np.tile(units, (len(trials), 1))
        if not self.secret:
            return joined
        # A record takes part by its own coin, where its client joined.
        number, records = self.step_number(round, step), len(client_of)
        own = sampling.participation(self.seed, trials, number, records, self.rate)
        return own if joined is None or own is None else joined & own

    def asked(
        self, trials: Sequence[int], round: int, target_client: int, adversary: int
    ) -> list[int]:
        """Return the clients that get a message in a round that not all clients join.

        Args:
            trials: numbers of the T trials.
            round: counts from 1.
            target_client: the client that holds the target, or is the target.
            adversary: the curious client.
        """
        # The adversary also sees rounds that it does not join.
        if not self.hidden:
            return sorted({*self.participants(round), adversary})
        # The target gets a message in every trial, since no other client knows its coins.
        coins = self.coins(trials, round, 1, target_client, np.empty(0, np.int64))
        assert coins is not None
        joined = set(np.flatnonzero(coins.any(axis=0)).tolist())
        return sorted(joined | {target_client, adversary})
