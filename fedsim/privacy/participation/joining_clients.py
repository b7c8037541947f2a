"""Poisson-sampled clients with public joining: everyone may know who joins a round.

An adversary that knows a client's other records sees whether they are in the sum, so a client's
coin protects nothing. It only saves the rounds that the client does not join.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.rule import Coins, Participation, Setting


class JoiningClients(Participation):
    """Clients join rounds in public; the records of clients that join may be sampled in secret."""

    complete = False

    @classmethod
    def applies(cls, setting: Setting) -> bool:
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
        self,
        streams: Sequence[int],
        round: int,
        step: int,
        target_client: int,
        client_of: npt.NDArray[np.int64],
    ) -> Coins | None:
        joined = super().coins(streams, round, step, target_client, client_of)
        if joined is None or not self.secret:
            return joined
        # A record takes part by its own coin, where its client joined.
        number, records = self.step_number(round, step), len(client_of)
        own = sampling.participation(self.setting.seed, streams, number, records, self.rate)
        return joined if own is None else joined & own
