"""The participation rules, of which the last that applies to a setting decides."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from adversaries.arrays import Ints
from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.rule import (
    ALL_CLIENTS,
    Coins,
    Participation,
    ParticipationSetting,
)


class Full(Participation):
    """Every client and every record takes part."""

    @classmethod
    def applies(cls, setting: ParticipationSetting) -> bool:
        rates = setting.client_rate, 1.0 if setting.by_client else setting.record_rate
        return rates == (1, 1)


class SampledRecords(Participation):
    """Every client samples its records, and does not disclose which."""

    @classmethod
    def applies(cls, setting: ParticipationSetting) -> bool:
        return not setting.by_client and setting.client_rate == 1 and setting.record_rate < 1

    @property
    def rate(self) -> float:
        return self.setting.record_rate

    @property
    def secret(self) -> bool:
        return True

    def coins(
        self, trials: Sequence[int], round: int, step: int, target_client: int, client_of: Ints
    ) -> Coins | None:
        number, records = self.step_number(round, step), len(client_of)
        return sampling.participation(self.setting.seed, trials, number, records, self.rate)


_remembered = lru_cache(maxsize=4)(sampling.clients)
"""All clients that one process plays need the same coins."""


class HiddenClients(Participation):
    """The server samples clients; their secret coins amplify their privacy."""

    public = False
    complete = False

    @classmethod
    def applies(cls, setting: ParticipationSetting) -> bool:
        return setting.by_client and setting.server_draws and setting.client_rate < 1

    @property
    def rate(self) -> float:
        return self.setting.client_rate

    @property
    def secret(self) -> bool:
        return True

    @property
    def accounts(self) -> Sequence[int]:
        # A round costs every client the same, whether it joined or not.
        return (ALL_CLIENTS,)

    def coins(
        self, trials: Sequence[int], round: int, step: int, target_client: int, client_of: Ints
    ) -> Coins:
        seed, clients = self.setting.seed, self.setting.clients
        draw = sampling.clients if seed is None else _remembered
        coins = draw(seed, tuple(trials), round, clients, self.rate, target_client)
        assert coins is not None  # the rate is below 1
        return coins

    def asked(
        self, trials: Sequence[int], round: int, target_client: int, adversary: int
    ) -> list[int]:
        # The target gets a message in every trial, since no other client knows its coins. So does
        # the adversary, which also sees rounds that it does not join.
        coins = self.coins(trials, round, 1, target_client, np.empty(0, np.int64))
        joined = set(np.flatnonzero(coins.any(axis=0)).tolist())
        return sorted(joined | {target_client, adversary})


class JoiningClients(Participation):
    """Clients join rounds in public; the records of clients that join may be sampled in secret.

    An adversary that knows a client's other records sees whether they are in the sum, so a
    client's coin protects nothing. It only saves the rounds that the client does not join.
    """

    complete = False

    @classmethod
    def applies(cls, setting: ParticipationSetting) -> bool:
        hidden = setting.by_client and setting.server_draws
        return not hidden and setting.client_rate < 1

    @property
    def rate(self) -> float:
        return 1.0 if self.setting.by_client else self.setting.record_rate

    @property
    def secret(self) -> bool:
        return self.rate < 1

    @property
    def joining_rate(self) -> float:
        return self.setting.client_rate

    def participants(self, round: int) -> tuple[int, ...]:
        setting = self.setting
        joined = sampling.joined(setting.seed, round, setting.clients, setting.client_rate)
        return tuple(joined.nonzero()[0].tolist())

    def coins(
        self, trials: Sequence[int], round: int, step: int, target_client: int, client_of: Ints
    ) -> Coins | None:
        joined = super().coins(trials, round, step, target_client, client_of)
        if joined is None or not self.secret:
            return joined
        # A record takes part by its own coin, where its client joined.
        number, records = self.step_number(round, step), len(client_of)
        own = sampling.participation(self.setting.seed, trials, number, records, self.rate)
        return joined if own is None else joined & own
