"""Tuning of a training on public records: learning rate, clipping norm and rounds.

One part of the public records stands in for the clients' records, the other part judges the models.
A training on m public records gets m/n of the noise of one on n private records, so that signal and
noise have the same ratio. No private record is read, so that tuning costs no privacy. Its result
suits the private records as far as they resemble the public ones.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common.html_table import html_table
from fedsim.common.randomness import StreamRole, key
from fedsim.config import Config, Scalar, from_run_config, to_run_config
from fedsim.config.needs import require
from fedsim.config.training import TrainingConfig, refuse_unless_classified
from fedsim.federation.server import plan
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.mechanism import sensitivity
from fedsim.privacy.trust.model import Vantage

FEWEST = 40
"""Fewest public records that can tell settings apart."""

FACTORS = {
    "training.rounds": (0.5, 2.0),
    "training.clipping-norm": (0.3, 3.0),
    "training.learning-rate": (0.25, 0.5, 2.0, 4.0),
}
"""Factors of each key. Tuning varies one key after the other, from the best setting so far."""

CONFIDENCE = 0.95
"""Confidence that no setting is wrongly called better, for all settings together."""


@dataclass(frozen=True)
class Tried:
    """A setting, and its models trained on public records.

    Attributes:
        changes: to the configuration; empty for the configuration itself.
        accuracies: of each model on the public records that judge, float64 [T].
        noise_multiplier: of the training on private records.
        gain: mean gain in accuracy over the configuration itself, for the same initial models.
        margin: half the width of the gain's interval, at `CONFIDENCE` for all settings together.
    """

    changes: dict[str, Scalar]
    accuracies: np.ndarray
    noise_multiplier: float
    gain: float
    margin: float

    @property
    def setting(self) -> str:
        """The keys that differ from the configuration, in words."""
        changes = ", ".join(f"{key} = {value}" for key, value in self.changes.items())
        return changes or "the configuration"

    @property
    def is_better(self) -> bool:
        """Whether it is more accurate than the configuration itself, at `CONFIDENCE`."""
        return self.gain > self.margin


@dataclass(frozen=True)
class TuningResult:
    """The settings that were tried.

    Attributes:
        tried: in order; the configuration itself is the first.
        trained_on: number of public records that stood in for the clients' records.
        judged_on: number of public records that judged the models.
    """

    tried: tuple[Tried, ...]
    trained_on: int
    judged_on: int

    @property
    def best(self) -> Tried:
        """The setting to take: the configuration itself unless another is shown to be better."""
        better = [each for each in self.tried if each.is_better]
        return max(better, key=lambda each: each.gain, default=self.tried[0])

    def _repr_html_(self) -> str:
        rows = [
            (each.setting, f"{each.accuracies.mean():.1%}", f"{each.gain:+.1%} ± {each.margin:.1%}")
            for each in self.tried
        ]
        trained = (
            f"The models were trained on {self.trained_on} public records and judged on "
            f"{self.judged_on} others."
        )
        caption = f"{trained} The best setting: {self.best.setting}."
        return html_table(("setting", "accuracy", "gain"), rows, caption)


def tune(
    config: Config, models: int = 8, progress: Callable[[Tried], None] = lambda _: None
) -> TuningResult:
    """Return the settings that were tried on public records, with the best among them.

    Args:
        models: T, number of models for each setting.
        progress: called after each setting.

    Raises:
        InputError: the public records are too few, a client is protected as a whole, or clients
            take several steps a round, or the training may stop earlier.
    """
    require(
        (
            ("privacy.unit", config.privacy.unit, "record"),
            ("privacy.stop-at", config.privacy.stop_at, 0.0),
            ("training.local-steps", config.training.local_steps, 1),
        ),
        "fedsim tune trains in all rounds, with one step a round, on protected single records",
    )
    refuse_unless_classified(config.model.task, "fedsim tune")
    loaded = federation.load(config.experiment)
    features, labels = loaded.held_out()
    if len(labels) < FEWEST:
        raise InputError(
            f"the experiment has {len(labels)} public records, but fedsim tune needs {FEWEST}; "
            "raise data.held-out, or give data.public-root"
        )
    draw = np.random.default_rng(key(config.run.seed, StreamRole.CLIENT_SAMPLING))
    order = torch.from_numpy(draw.permutation(len(labels))).to(labels.device)
    some, others = order[: 2 * len(labels) // 3], order[2 * len(labels) // 3 :]
    trained = features[some], labels[some]
    judged = features[others], labels[others]

    # Student's t for the mean gain, divided among all settings (Bonferroni).
    settings = sum(map(len, FACTORS.values()))
    quantile = float(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * settings), models - 1))

    def changed(changes: dict[str, Scalar]) -> Config:
        return from_run_config(to_run_config(config) | changes)

    def attempt(changes: dict[str, Scalar], first: np.ndarray | None) -> Tried:
        noise, accuracies = _accuracies(changed(changes), loaded, trained, judged, models)
        gains = accuracies - (accuracies if first is None else first)
        margin = quantile * float(gains.std(ddof=1)) / math.sqrt(models)
        setting = Tried(changes, accuracies, noise, float(gains.mean()), margin)
        progress(setting)
        return setting

    tried = [attempt({}, None)]
    for axis in FACTORS:
        best = max(tried, key=lambda each: each.gain)
        tried += [
            attempt(best.changes | {axis: value}, tried[0].accuracies)
            for value in _values(axis, changed(best.changes).training)
        ]
    return TuningResult(tuple(tried), len(some), len(others))


def _values(axis: str, best: TrainingConfig) -> list[Scalar]:
    """Return the values of one key around those of the best training so far."""
    if axis == "training.rounds":
        return [max(1, round(best.rounds * factor)) for factor in FACTORS[axis]]
    value = best.clipping_norm if axis == "training.clipping-norm" else best.rate
    return [float(f"{value * factor:.3g}") for factor in FACTORS[axis]]


def _accuracies(
    config: Config,
    loaded: Federation,
    trained: tuple[Tensor, Tensor],
    judged: tuple[Tensor, Tensor],
    models: int,
) -> tuple[float, np.ndarray]:
    """Return a setting's noise multiplier, and the accuracies of its models, float64 [T]."""
    plan.check_possible(config)
    nominal = privacy.noise_multiplier(config.scheme)
    mechanism = privacy.describe(config.scheme, nominal).towards(Vantage.RELEASED_MODEL)
    group = mechanism.groups[0]
    share = len(trained[1]) / config.data.records
    norm = config.training.clipping_norm
    std = share * group.noise_multiplier * sensitivity(config.privacy.neighbouring, norm)
    # `loaded` has the clipping norm of another setting.
    clipper = federation.load(config.experiment).clipper
    generator = torch.Generator().manual_seed(config.run.seed)
    now = federation.initial_parameters(config.game, loaded, range(models)).to(loaded.device)
    optimizer = ServerOptimizer(config.training, len(trained[1]) * group.sampling_rate)
    for number in range(1, config.training.rounds + 1):
        weights = None
        if group.sampling_rate < 1:
            drawn = torch.rand(models, len(trained[1]), generator=generator)
            weights = (drawn < group.sampling_rate).to(now)
        total = clipper.clipped_sum(now, *trained, weights).double()
        noise = torch.randn(total.shape, generator=generator, dtype=torch.float64)
        now = optimizer.step(now, total + std * noise.to(total), number)
    _, correct = loaded.evaluate(now, *judged)
    return nominal, correct.double().mean(1).cpu().numpy()
