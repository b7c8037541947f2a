"""What canaries of consenting clients show in the released sums of a federation.

A canary's score is the log-likelihood ratio of its being in, from the sums of a training so far and
the noise that is claimed of them; over its standard deviation, so that trainings that came unlike
far can be put together. With the noise that is claimed, and nothing else in the sums, a score is
N(-mu/2, 1) or N(mu/2, 1) with mu^2 the sum of (C/sigma)^2 over the rounds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adversaries.statistics import canaries, one_run
from adversaries.statistics.intervals import LowerBound
from fedsim.game.canary import Canaries

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

FEWEST_GUESSED = 16
"""With fewer canaries nothing is guessed: 16 right guesses of 16 prove an epsilon of about 1.5."""


@dataclass
class _Training:
    """The canaries of T trials: coins bool [T, K], what their scores sum up [T, K], and mu^2."""

    coins: Bools
    ratios: Floats
    power: float = 0.0


@dataclass
class CanaryWatch:
    """The canaries whose seeds an auditor was told.

    Attributes:
        planted: of each consenting client.
        norm: C, the clipping norm, which is the length of every canary.
    """

    planted: Sequence[Canaries]
    norm: float
    _trainings: dict[int, _Training] = field(default_factory=dict)

    def begin(self, trials: range) -> None:
        """Begin some trials, or begin them anew: what was seen of an earlier attempt is dropped."""
        self._trainings.pop(trials.start, None)

    def observe(
        self, trials: range, round: int, released: npt.NDArray[np.floating], std: float
    ) -> None:
        """Look for the canaries in the sums of a round.

        Args:
            round: counts from 1.
            released: [T, P], the sums.
            std: the standard deviation that the noise is claimed to have; 0 tells nothing.
        """
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
        """Which canaries are in, of all trainings."""
        coins = [training.coins.ravel() for training in self._trainings.values()]
        return np.concatenate([np.zeros(0, bool), *coins])

    @property
    def scores(self) -> Floats:
        """Their scores."""
        return self._of_each(lambda training: training.ratios / math.sqrt(training.power))

    @property
    def sides(self) -> tuple[int, int]:
        """How many canaries were in, and how many out."""
        return int(self.coins.sum()), int((~self.coins).sum())

    def effect(self, confidence: float) -> canaries.Effect | None:
        """Return mu of one training so far as the canaries show it; None without canaries."""
        return canaries.effect(self.coins, self.scores, confidence) if self._trainings else None

    def prediction(self) -> float | None:
        """Return mu by the noise that is claimed, of the training with the least of it.

        An upper bound of what shows: other records hide a canary, too.
        """
        if not self._trainings:
            return None
        return math.sqrt(max(training.power for training in self._trainings.values()))

    def epsilon_at_least(self, delta: float, confidence: float) -> LowerBound | None:
        """Return the epsilon that right guesses of the coins prove; None with too few canaries.

        Source:
            Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023.
        """
        if self.coins.size < FEWEST_GUESSED:
            return None
        guesses = one_run.SEVERAL
        return one_run.binomial_bound(self.coins, self.scores, delta, confidence, guesses)

    def belief(self) -> float | None:
        """Return how much is believed of what is true of a canary, on average; None without any.

        From 1/2: whether it is in or out, by the noise that is claimed.
        """
        if not self._trainings:
            return None
        ratios = self._of_each(lambda training: training.ratios)
        return float(expit(np.where(self.coins, ratios, -ratios)).mean())

    def _of_each(self, values: Callable[[_Training], Floats]) -> Floats:
        """Return values of every canary, of all trainings one after another."""
        found = [values(training).ravel() for training in self._trainings.values()]
        return np.concatenate([np.zeros(0), *found])
