"""Poisson-sampled clients with hidden joining: a secret coin for each client and round."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.rule import ALL_CLIENTS, Coins, Participation, Setting

_remembered = lru_cache(maxsize=4)(sampling.clients)
"""All clients that one process plays need the same coins."""


class HiddenClients(Participation):
    """The server samples clients; their secret coins amplify their privacy."""

    public = False
    complete = False

    @classmethod
    def applies(cls, setting: Setting) -> bool:
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
        self,
        streams: Sequence[int],
        round: int,
        step: int,
        target_client: int,
        client_of: npt.NDArray[np.int64],
    ) -> Coins:
        seed, clients = self.setting.seed, self.setting.clients
        draw = sampling.clients if seed is None else _remembered
        coins = draw(seed, tuple(streams), round, clients, self.rate, target_client)
        assert coins is not None  # the rate is below 1
        return coins

    def asked(
        self, streams: Sequence[int], round: int, target_client: int, adversary: int, every: bool
    ) -> list[int]:
        # The target gets a message in every trial, since no other client knows its coins. So does
        # the adversary, unless it sees only the rounds that it joins.
        coins = self.coins(streams, round, 1, target_client, np.empty(0, np.int64))
        joined = set(np.flatnonzero(coins.any(axis=0)).tolist())
        return sorted(joined | {target_client} | ({adversary} if every else set()))
