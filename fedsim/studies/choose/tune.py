"""Tune a training on public records: server steps, clipping norm and rounds, at no cost of privacy.

A part of the public records stands in for the clients' records, and the other part judges the
models. Noise stands to the number of records as it will in the training: on m of them a sum gets
m/n of the noise of n. No private record is read, so nothing is spent; what suits the public records
suits the private ones as far as they are alike.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common.html_table import html_table
from fedsim.common.randomness import Role, key
from fedsim.config import Config, Scalar, from_run_config, to_run_config
from fedsim.config.training import refuse_unless_classified
from fedsim.federation.server import plan
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.mechanism import sensitivity
from fedsim.privacy.trust.model import Vantage

FEWEST = 40
"""Public records, below which nothing can be told apart."""

FACTORS = {
    "training.rounds": (0.5, 2.0),
    "training.clipping-norm": (0.3, 3.0),
    "training.learning-rate": (0.25, 0.5, 2.0, 4.0),
}
"""What each key is multiplied by, one key after the other, from the best setting so far."""

CONFIDENCE = 0.95
"""With which no setting is called better that is not, all settings that are tried together."""


@dataclass(frozen=True)
class Tried:
    """A setting, and the models that it trained on public records.

    Attributes:
        changes: what it changes in the configuration; empty for the configuration itself.
        accuracies: of each model on the public records that judge, float64 [T].
        noise_multiplier: that the training itself would take.
        gain: mean gain over the configuration itself, of models from the same first values.
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
        """Whether it is surely more accurate than the configuration itself."""
        return self.gain > self.margin


@dataclass(frozen=True)
class Tuning:
    """What was tried, and what is best.

    Attributes:
        tried: in order; the configuration itself is the first.
        trained_on: how many public records stood in for the clients'.
        judged_on: how many judged the models.
    """

    tried: tuple[Tried, ...]
    trained_on: int
    judged_on: int

    @property
    def best(self) -> Tried:
        """The setting to take: the configuration itself unless another is surely better."""
        better = [each for each in self.tried if each.is_better]
        return max(better, key=lambda each: each.gain, default=self.tried[0])

    def _repr_html_(self) -> str:
        """Return every setting with its accuracy and gain, as a notebook shows them."""
        rows = [
            (each.setting, f"{each.accuracies.mean():.1%}", f"{each.gain:+.1%} ± {each.margin:.1%}")
            for each in self.tried
        ]
        trained = f"Models of {self.trained_on} public records, judged on {self.judged_on} others."
        caption = f"{trained} Best: {self.best.setting}."
        return html_table(("setting", "accuracy", "gain"), rows, caption)


def tune(
    config: Config, models: int = 8, progress: Callable[[Tried], None] = lambda _: None
) -> Tuning:
    """Return the settings that were tried on public records, and the best.

    models: T, how many are trained with each setting.
    progress: called after each setting.
    Raises InputError if there are too few public records, or clients train by themselves.
    """
    if config.privacy.unit == "client" or config.training.local_steps > 1:
        raise InputError(
            "fedsim tune is for records that are protected one by one, and one step a round: set "
            'privacy.unit = "record" and training.local-steps = 1'
        )
    refuse_unless_classified(config.model.task, "fedsim tune")
    known = federation.load(config)
    features, labels = known.held_out()
    if len(labels) < FEWEST:
        raise InputError(
            f"there are {len(labels)} public records, and tuning needs {FEWEST}: raise "
            "data.held-out, or give data.public-root"
        )
    draw = np.random.default_rng(key(config.run.seed, Role.CLIENT_SAMPLING))
    order = torch.from_numpy(draw.permutation(len(labels))).to(labels.device)
    some, others = order[: 2 * len(labels) // 3], order[2 * len(labels) // 3 :]
    trained = features[some], labels[some]
    judged = features[others], labels[others]

    # Student's t for the mean gain, shared among all settings that are tried (Bonferroni).
    settings = sum(map(len, FACTORS.values()))
    quantile = float(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * settings), models - 1))

    def attempt(changes: dict[str, Scalar], first: np.ndarray | None) -> Tried:
        changed = from_run_config(to_run_config(config) | changes)
        noise, accuracies = _accuracies(changed, known, trained, judged, models)
        gains = accuracies - (accuracies if first is None else first)
        margin = quantile * float(gains.std(ddof=1)) / math.sqrt(models)
        found = Tried(changes, accuracies, noise, float(gains.mean()), margin)
        progress(found)
        return found

    tried = [attempt({}, None)]
    for axis in FACTORS:
        best = max(tried, key=lambda each: each.gain)
        tried += [
            attempt(best.changes | change, tried[0].accuracies)
            for change in _changes(axis, config, best.changes)
        ]
    return Tuning(tuple(tried), len(some), len(others))


def _changes(axis: str, config: Config, so_far: dict[str, Scalar]) -> Iterator[dict[str, Scalar]]:
    """Yield the values of one key around the best setting so far."""
    now = from_run_config(to_run_config(config) | so_far).training
    for factor in FACTORS[axis]:
        if axis == "training.rounds":
            yield {axis: max(1, round(now.rounds * factor))}
        elif axis == "training.clipping-norm":
            yield {axis: float(f"{now.clipping_norm * factor:.3g}")}
        else:
            yield {axis: float(f"{now.rate * factor:.3g}")}


def _accuracies(
    config: Config,
    known: Federation,
    trained: tuple[Tensor, Tensor],
    judged: tuple[Tensor, Tensor],
    models: int,
) -> tuple[float, np.ndarray]:
    """Return a setting's noise multiplier, and the accuracies of its models, float64 [T]."""
    plan.check(config)
    nominal = privacy.noise_multiplier(config.scheme)
    mechanism = privacy.describe(config.scheme, nominal).towards(Vantage.RELEASED_MODEL)
    group = mechanism.groups[0]
    share = len(trained[1]) / config.data.records
    norm = config.training.clipping_norm
    std = share * group.noise_multiplier * sensitivity(config.privacy.neighbouring, norm)
    changed = federation.load(config)  # the clipper of this clipping norm
    generator = torch.Generator().manual_seed(config.run.seed)
    now = federation.initial_parameters(config.game, known, range(models)).to(known.device)
    optimizer = ServerOptimizer(config.training, len(trained[1]) * group.sampling_rate)
    for number in range(1, config.training.rounds + 1):
        weights = None
        if group.sampling_rate < 1:
            drawn = torch.rand(models, len(trained[1]), generator=generator)
            weights = (drawn < group.sampling_rate).to(now)
        total = changed.clipper.clipped_sum(now, *trained, weights).double()
        noise = torch.randn(total.shape, generator=generator, dtype=torch.float64)
        now = optimizer.step(now, total + std * noise.to(total), number)
    _, correct = known.evaluate(now, *judged)
    return nominal, correct.double().mean(1).cpu().numpy()
