"""Poisson-sampled records: a secret coin for each record and step; every client joins."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.rule import Coins, Participation, Setting


class SampledRecords(Participation):
    """Every client samples its records, and does not disclose which."""

    @classmethod
    def applies(cls, setting: Setting) -> bool:
        return not setting.by_client and setting.client_rate == 1 and setting.record_rate < 1

    @property
    def rate(self) -> float:
        return self.setting.record_rate

    @property
    def secret(self) -> bool:
        return True

    def coins(
        self,
        streams: Sequence[int],
        round: int,
        step: int,
        target_client: int,
        client_of: npt.NDArray[np.int64],
    ) -> Coins | None:
        number, records = self.step_number(round, step), len(client_of)
        return sampling.participation(self.setting.seed, streams, number, records, self.rate)
