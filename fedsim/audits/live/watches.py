"""Canaries and texts of consenting clients, in what a federation releases."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from torch import Tensor

from adversaries.arrays import Bools, Floats
from adversaries.bounds import canaries, one_run
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import EpsilonBound
from fedsim.audits.live.live_rounds import TextFindings
from fedsim.common import device
from fedsim.config.campaign import RunConfig
from fedsim.config.federation import OWN, DataConfig
from fedsim.config.training import ModelConfig
from fedsim.game import federation
from fedsim.game.canary import Canaries
from fedsim.learning.data import schema
from fedsim.learning.training import evaluation, models
from fedsim.privacy.mechanism import Mechanism, sensitivity

FEWEST_GUESSED = 16
"""Fewest canaries for guesses: 16 right guesses of 16 prove an epsilon of about 1.5."""


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
        planted: canaries of each consenting client.
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

    def epsilon_at_least(self, delta: float, confidence: float) -> EpsilonBound | None:
        """Return the lower bound on epsilon from right guesses of the coins; None if too few.

        Source: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023.
        """
        if self.coins.size < FEWEST_GUESSED:
            return None
        guesses = one_run.SEVERAL
        return one_run.binomial_bound(self.coins, self.scores, delta, confidence, guesses)

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


@dataclass
class _Texts:
    """The texts of T trials.

    Attributes:
        coins: bool [T, K], which texts are included.
        since: round of the first model; it is not blind after round 1.
        blind: losses of that model, float64 [T, K].
        latest: losses of the last model.
    """

    coins: Bools
    since: int
    blind: Floats
    latest: Floats


class TextWatch:
    """The texts whose seeds the auditor has, and the decoder that scores them.

    Raises InputError if the run trains no decoder, or its weights are not on this machine.

    planted: canaries of each consenting client, all of kind `canary.TEXT`.
    data: table of the run; only the length of texts is used.
    model: the run's, with this machine's copy of `model.weights`.
    run: seed and device.
    """

    def __init__(
        self, planted: Sequence[Canaries], data: DataConfig, model: ModelConfig, run: RunConfig
    ) -> None:
        if model.task != "next-token":
            raise InputError(
                "--canary-seed-file has canaries of kind text, which need a decoder, but the run's "
                f"model.task is '{model.task}'; remove these lines from the file"
            )
        if model.name == "hugging-face" and not model.weights_path:
            raise InputError(
                "the audit needs the decoder to score the texts, but it does not open a folder "
                "that a transcript names; give this machine's copy of model.weights with "
                "--weights"
            )
        shape: tuple[int, ...] = (data.length,)
        if data.name == OWN:
            shape = schema.parse(data.public_schema).shape
        self._planted, self._trainings = planted, dict[int, _Texts]()
        self._device = device.resolve(run.device)
        self._model = models.structural_model(
            lambda: federation.network(model, shape, 1), run.seed
        ).to(self._device)
        words: Any = self._model.config
        vocabulary, padding = words.vocab_size, words.pad_token_id
        parts = [each.texts(vocabulary, padding, shape[0]) for each in planted]
        self._texts = torch.cat(parts).to(self._device)

    def begin(self, trials: range, round: int, parameters: npt.NDArray[np.floating]) -> None:
        if parameters.shape[1] != (size := models.size(self._model)):
            raise InputError(
                f"the recorded model has {parameters.shape[1]} trained parameters, but the model "
                f"of --weights has {size}; name the copy of model.weights that the run starts from"
            )
        coins = np.concatenate([each.coins(trials) for each in self._planted], axis=1)
        losses = self._losses(parameters)
        self._trainings[trials.start] = _Texts(coins, round, losses, losses)

    def observe(self, trials: range, parameters: npt.NDArray[np.floating]) -> None:
        self._trainings[trials.start].latest = self._losses(parameters)

    def findings(
        self, noise: Mechanism, norm: float, delta: float, confidence: float
    ) -> TextFindings:
        """Return what the texts of the first trial prove.

        One trial is an audit of its own; the best of several would prove less than it states.
        """
        trial = min(self._trainings)
        texts = self._trainings[trial]
        coins, scores = texts.coins[0], texts.blind[0] - texts.latest[0]
        proven, fell = 0.0, None
        if np.isfinite(scores).all():
            proven = _proven(coins, scores, delta, confidence)
            sides = (scores[coins], scores[~coins])
            fell = [float(side.mean()) if side.size else None for side in sides]
        return TextFindings(
            texts=coins.size,
            included=int(coins.sum()),
            trial=trial,
            since=texts.since,
            allowed=_of_one_text(noise, norm, delta),
            most=_proven(coins, coins.astype(float), delta, confidence),
            epsilon_at_least=proven,
            fell=fell,
        )

    def _losses(self, parameters: npt.NDArray[np.floating]) -> Floats:
        labels = torch.zeros(len(self._texts), dtype=torch.int64, device=self._device)
        sent: Tensor = torch.tensor(parameters, dtype=torch.float32).to(self._device)
        return evaluation.evaluate(self._model, sent, self._texts, labels)[0].cpu().numpy()


def _proven(coins: Bools, scores: Floats, delta: float, confidence: float) -> float:
    return one_run.f_dp_bound(coins, scores, delta, confidence, one_run.SEVERAL).epsilon


def _of_one_text(noise: Mechanism, norm: float, delta: float) -> float:
    """Return epsilon of one text, added or left out, that joins every round; inf without noise.

    It is an upper bound, since the text's gradient may be shorter than the clipping norm.
    """
    relative = norm / sensitivity(noise.neighbouring, norm)
    if not all(group.noise_multiplier for group in noise.groups):
        return math.inf
    power = sum(group.count * (relative / group.noise_multiplier) ** 2 for group in noise.groups)
    return gaussian.epsilon(math.sqrt(power), delta)
