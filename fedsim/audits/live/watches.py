"""Canaries of consenting clients, in what a federation releases."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.bounds import canaries
from fedsim.game.canary import Canaries


@dataclass
class _Training:
    """The canaries of T trials: coins bool [T, K], sums of their scores [T, K], and mu^2."""

    coins: Bools
    ratios: Floats
    power: float = 0.0


@dataclass
class CanaryWatch:
    """The canaries whose seeds the auditor has.

    Attributes:
        norm: C, the clipping norm and length of every canary.
    """

    planted: Sequence[Canaries]
    norm: float
    _trainings: dict[int, _Training] = field(default_factory=dict)

    def begin(self, trials: range) -> None:
        """Begin a batch of trials; observations of an earlier attempt are dropped."""
        self._trainings.pop(trials.start, None)

    def observe(
        self, trials: range, round: int, released: npt.NDArray[np.floating], std: float
    ) -> None:
        if not std > 0:
            return
        training = self._trainings.get(trials.start)
        if training is None:
            coins = np.concatenate([each.coins(trials) for each in self.planted], axis=1)
            training = _Training(coins, np.zeros(coins.shape))
            self._trainings[trials.start] = training
        along = [each.along(trials, round, released) for each in self.planted]
        power = (self.norm / std) ** 2
        training.ratios += self.norm / std**2 * np.concatenate(along, axis=1) - power / 2
        training.power += power

    @property
    def coins(self) -> Bools:
        coins = [training.coins.ravel() for training in self._trainings.values()]
        return np.concatenate([np.zeros(0, bool), *coins])

    @property
    def scores(self) -> Floats:
        return self._of_each(lambda training: training.ratios / math.sqrt(training.power))

    @property
    def sides(self) -> tuple[int, int]:
        return int(self.coins.sum()), int((~self.coins).sum())

    def effect(self, confidence: float) -> canaries.Effect | None:
        return canaries.effect(self.coins, self.scores, confidence) if self._trainings else None

    def prediction(self) -> float | None:
        """Return mu by the claimed noise, for the training with the least noise; None without any.

        It is an upper bound of what shows, since other records hide a canary too.
        """
        if not self._trainings:
            return None
        return math.sqrt(max(training.power for training in self._trainings.values()))

    def belief(self) -> float | None:
        """Return the mean belief in a canary's true state; None without canaries.

        It starts at 1/2 and assumes the claimed noise.
        """
        if not self._trainings:
            return None
        ratios = self._of_each(lambda training: training.ratios)
        return float(expit(np.where(self.coins, ratios, -ratios)).mean())

    def _of_each(self, values: Callable[[_Training], Floats]) -> Floats:
        parts = [values(training).ravel() for training in self._trainings.values()]
        return np.concatenate([np.zeros(0), *parts])
