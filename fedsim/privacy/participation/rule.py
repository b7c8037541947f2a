"""The interface of participation rules, and the setting that a rule applies to."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adversaries.arrays import Bools, Ints

ALL_CLIENTS = -1
"""The account of all clients together, where a ledger must not disclose who joined."""

Coins = Bools


def unites(clients: int, threshold: int, colluding: int) -> bool:
    """Return whether no two halves of the honest clients can each reach the threshold.

    A server may tell each half something else, and has the shares of its colluders twice.

    Args:
        clients: number of clients of a sum in secure aggregation.
        threshold: number of clients whose shares unmask it.
        colluding: number of clients that help the server.
    """
    return 2 * (threshold - colluding) > clients - colluding


@dataclass(frozen=True)
class ParticipationSetting:
    """A federation's settings that decide about participation.

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
    """Which clients and records take part in which round, and how that is charged.

    Attributes:
        setting: the federation's settings.
        public: whether the adversary may know who joins a round.
        complete: whether every client joins every round.
    """

    setting: ParticipationSetting
    public: ClassVar[bool] = True
    complete: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def applies(cls, setting: ParticipationSetting) -> bool:
        """Return whether this rule describes a federation with this setting."""

    @property
    def rate(self) -> float:
        """The rate at which a step is charged to a unit: the probability of its secret coin."""
        return 1.0

    @property
    def secret(self) -> bool:
        """Whether a secret coin decides if the target takes part in a step."""
        return False

    @property
    def varying(self) -> bool:
        """Whether rounds have different clients, in public."""
        return self.public and not self.complete

    @property
    def joining_rate(self) -> float:
        """The probability that a client joins a round in public."""
        return 1.0

    @property
    def expected_clients(self) -> float:
        """Expected number of clients in a round, which together add the nominal noise."""
        return self.joining_rate * self.setting.clients

    @property
    def divisor(self) -> float:
        """The public constant that divides a sum: the expected number of units in a step."""
        return self.joining_rate * self.rate * self.setting.units

    @property
    def accounts(self) -> Sequence[int]:
        """The clients for which a ledger has accounts, or `ALL_CLIENTS` only."""
        return range(self.setting.clients)

    def account_of(self, client: int) -> int:
        """Return the account that a client is charged to: its own number or `ALL_CLIENTS`."""
        return client if client in self.accounts else ALL_CLIENTS

    def participants(self, round: int) -> Sequence[int]:
        """Return the clients whose messages a round (from 1) sums if no client is missing."""
        return range(self.setting.clients)

    def charged(self, round: int) -> tuple[int, ...]:
        """Return the accounts that a round, counted from 1, is charged to."""
        return tuple(self.participants(round) if self.varying else self.accounts)

    def shares(self, round: int) -> int:
        """Return the least number of noise shares in a round, with as many missing as allowed."""
        setting = self.setting
        if setting.server_draws or not self.varying:
            return setting.clients - setting.missing
        # Even in a round that no client joins, the target's client is charged for one share.
        return max(1, len(self.participants(round)) - setting.missing)

    def step_number(self, round: int, step: int) -> int:
        """Return the number of a local step in the seed tree, for its noise and its coins.

        Args:
            round: counts from 1.
            step: within the round, counts from 1.
        """
        return (round - 1) * self.setting.local_steps + step

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
        if self.complete:
            return None
        joined = np.zeros(self.setting.clients, dtype=np.bool_)
        joined[list(self.participants(round))] = True
        coins = joined if self.setting.by_client else joined[client_of]
        return np.tile(coins, (len(trials), 1))

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
        return sorted({*self.participants(round), adversary})
