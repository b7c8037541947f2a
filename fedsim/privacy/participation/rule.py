"""What a participation rule answers, and the federation that it is asked about."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EVERYBODY = -1
"""The account of all clients together, where a ledger must not tell who joined."""

Coins = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Setting:
    """What a configuration says about participation.

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


@dataclass(frozen=True)
class Participation(ABC):
    """Who takes part in which round, and what that costs.

    A client can join a round in public, which costs it nothing but the rounds that it joins; or a
    secret coin decides whether a unit (a record, or a client) takes part, which amplifies privacy.

    Attributes:
        setting: the federation.
    """

    setting: Setting

    @classmethod
    @abstractmethod
    def applies(cls, setting: Setting) -> bool:
        """Return whether this rule is the one that a configuration describes."""

    @property
    def rate(self) -> float:
        """The rate at which a unit is charged for a step: the probability of its secret coin."""
        return 1.0

    @property
    def secret(self) -> bool:
        """Whether a secret coin decides if the target takes part in a step."""
        return False

    @property
    def public(self) -> bool:
        """Whether everybody may know who joins a round."""
        return True

    @property
    def complete(self) -> bool:
        """Whether every client joins every round."""
        return True

    @property
    def varying(self) -> bool:
        """Whether rounds have different clients, and everybody may know which."""
        return self.public and not self.complete

    @property
    def joining_rate(self) -> float:
        """The probability with which a client joins a round in public."""
        return 1.0

    @property
    def expected_clients(self) -> float:
        """Expected number of clients in a round: together they add the nominal noise."""
        return self.joining_rate * self.setting.clients

    @property
    def divisor(self) -> float:
        """The public constant that divides a sum: the expected number of units in a step."""
        return self.joining_rate * self.rate * self.setting.units

    @property
    def accounts(self) -> Sequence[int]:
        """The clients that a ledger has accounts of, or `EVERYBODY` alone."""
        return range(self.setting.clients)

    def account_of(self, client: int) -> int:
        """Return the account that a client is charged to: its own number or `EVERYBODY`."""
        return client if client in self.accounts else EVERYBODY

    def participants(self, round: int) -> tuple[int, ...]:
        """Return the clients whose messages a round sums, if none is missing.

        Args:
            round: counts from 1.
        """
        return tuple(range(self.setting.clients))

    def charged(self, round: int) -> tuple[int, ...]:
        """Return the accounts that a round is charged to.

        Args:
            round: counts from 1.
        """
        return self.participants(round) if self.varying else tuple(self.accounts)

    def shares(self, round: int) -> int:
        """Return how many clients' noise a round has at least, with as many missing as may be.

        Args:
            round: counts from 1.
        """
        setting = self.setting
        if setting.server_draws or not self.varying:
            return setting.clients - setting.missing
        # Also of a round of nobody the target's client is charged for one share.
        return max(1, len(self.participants(round)) - setting.missing)

    def step_number(self, round: int, step: int) -> int:
        """Return the number of a local step in the seed tree, for its noise and its coins.

        Args:
            round: counts from 1.
            step: within the round, counts from 1.
        """
        return (round - 1) * self.setting.local_steps + step

    def coins(
        self,
        streams: Sequence[int],
        round: int,
        step: int,
        target_client: int,
        client_of: npt.NDArray[np.int64],
    ) -> Coins | None:
        """Return which records of D, or which clients, take part in a step of a round.

        Args:
            streams: the streams of random numbers of the T trials.
            round: counts from 1.
            step: of the local steps within the round, counts from 1.
            target_client: the client that holds the target, or is the target.
            client_of: the client of each of the n records of D.

        Returns:
            bool [T, n], or [T, clients] where privacy protects clients; None if all take part.
        """
        if self.complete:
            return None
        there = np.zeros(self.setting.clients, dtype=np.bool_)
        there[list(self.participants(round))] = True
        return np.tile(there if self.setting.by_client else there[client_of], (len(streams), 1))

    def asked(
        self, streams: Sequence[int], round: int, target_client: int, adversary: int, every: bool
    ) -> list[int]:
        """Return the clients that the server sends a message to in a round that not all join.

        Args:
            streams: the streams of random numbers of the T trials.
            round: counts from 1.
            target_client: the client that holds the target, or is the target.
            adversary: the curious client.
            every: whether the adversary sees every round.
        """
        # The adversary looks on at rounds that it does not join.
        return sorted({*self.participants(round), adversary})
