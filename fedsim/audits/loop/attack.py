"""The attack on a loop: the direction in which the target moves releases, and a score of runs.

Pilots are pairs of runs with one seed, with the target and with another record in its place. Both
draw the same random numbers, so that most of their releases cancels. The bounds on epsilon hold for
any direction and score.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.bounds.lower_bounds import clopper_pearson_bound

FEATURES = ("sampled", "total", "last", "largest", "energy", "steps")
"""Features of every attacked run.

sampled: log-likelihood ratio of all steps, by the pilots' influence, noise and participation rate.
total, last, largest: shift of all steps, of the last and of the farthest along the target's
direction. energy: logarithm of the released numbers' squared length. steps: number of steps.
"""

TOGETHER = "all together"
"""Name of the score that weighs all features."""

OF_STEPS = FEATURES[:2]
LARGEST = 50.0
"""Largest log-likelihood ratio of a step that counts."""

FULL = 0.95
"""Rate from which the target counts as a part of every step."""

LEARNING_CONFIDENCE = 0.9
THRESHOLDS = 32
Features = tuple[float, ...]


@dataclass(frozen=True)
class Direction:
    """The direction of a pair of worlds.

    Attributes:
        middle: [k], mean shift of the runs without the target, by step.
        std: standard deviation of that shift in a step.
        influence: shift by the target in a step in which it takes part.
        rate: share of steps in which it takes part, in (0, 1].
    """

    unit: Floats
    middle: Floats
    std: float
    influence: float
    rate: float

    @property
    def distance(self) -> float:
        """Approximate distance of the worlds, in standard deviations of the best score of steps.

        By the central limit theorem of sampled Gaussian steps (Bu et al., "Deep learning with
        Gaussian differential privacy", 2020, Theorem 5).
        """
        signal, steps = self.influence / self.std, len(self.middle)
        each = math.expm1(min(signal**2, LARGEST)) if self.rate < FULL else signal**2
        return self.rate * math.sqrt(steps * each)

    def features(self, released: Floats) -> Features:
        energy = float(np.log(max(np.square(released).sum(), 1e-300)))
        if released.shape[1] != len(self.unit):  # a model of another size reveals the world
            return (0.0, 0.0, 0.0, 0.0, energy, -1.0)
        size = min(len(released), len(self.middle))
        # The shift along the direction, in standard deviations of a step without the target.
        apart = (released[:size] @ self.unit - self.middle[:size]) / self.std
        signal = self.influence / self.std
        # log N(x; signal, 1) - log N(x; 0, 1), then the mixture over whether the target joins.
        ratios = np.clip(signal * apart - signal**2 / 2, -LARGEST, LARGEST)
        sampled = np.log1p(self.rate * np.expm1(ratios)) if self.rate < 1 else ratios
        last, largest = apart[-1], apart.max()
        parts = sampled.sum(), apart.sum(), last, largest, energy, len(released)
        return tuple(float(each) for each in parts)


def learnt(present: Sequence[Floats], twin: Sequence[Floats]) -> Direction:
    """Return the direction that the pilots show.

    Args:
        present: releases of the runs with the target, each [k, P].
        twin: releases with another record in its place.
    """
    size = min(len(each) for each in (*present, *twin))
    width = min(each.shape[1] for each in (*present, *twin))
    with_it, without = (  # [pilots, k, P]
        np.array([each[:size, :width] for each in runs]) for runs in (present, twin)
    )
    moved_by = with_it - without
    mean = moved_by.mean(axis=(0, 1))
    length = np.linalg.norm(mean)
    unit = mean / length if length > 0 else np.full(width, width**-0.5)
    moved = moved_by @ unit  # [pilots, k]
    base = without @ unit
    middle = base.mean(axis=0)
    # The middle is fitted to the same runs, which takes one degree of freedom of each step.
    spread = float(np.sqrt(np.square(base - middle).sum() / max(1, base.size - middle.size)))
    # The target may join a few steps only: a high quantile is its shift in a step that it joins.
    influence = float(np.quantile(moved, 0.9))
    influence = influence if influence > 0 else float(np.abs(moved).max()) or 1.0
    # The mean shift is the rate times the shift of a joined step.
    rate = float(np.clip(moved.mean() / influence, 0.01, 1))
    return Direction(unit, middle, max(spread, 1e-9 * influence), influence, rate)


@dataclass(frozen=True)
class Score:
    """A weighted sum of features, less a threshold; above 0 it names the world with the target."""

    name: str
    weights: Floats
    threshold: float = 0.0

    def of(self, features: Floats) -> Floats:
        return features @ self.weights - self.threshold


def separation(worlds: Bools, features: Floats) -> float:
    """Return the distance of the worlds by the best feature, in standard deviations."""
    with_it, without = features[worlds], features[~worlds]
    apart = np.abs(with_it.mean(axis=0) - without.mean(axis=0))
    spread = np.sqrt((with_it.var(axis=0) + without.var(axis=0)) / 2)
    # The floor keeps a feature without spread finite: a few runs may agree by chance.
    return float((apart / np.maximum(spread, 1e-3 * apart + 1e-12)).max())


def best_score(worlds: Bools, features: Floats, delta: float) -> Score:
    """Return the score and threshold that prove most epsilon on runs, which judge nothing.

    The candidates are each feature alone, and Fisher's discriminant of all.
    """

    def proven(scores: Floats) -> float:
        return clopper_pearson_bound(worlds, scores, delta, LEARNING_CONFIDENCE, 0.0).epsilon

    return _best(worlds, features, _candidates(worlds, features), proven)


def score_of_steps(worlds: Bools, features: Floats) -> Score:
    """Return the score of Gaussian steps, and the threshold at which the rates differ most.

    It is for a bound that knows the trade-off curve. All points of the curve prove the same, and
    counts are most precise in its middle.
    """

    def apart(scores: Floats) -> float:
        rates = clopper_pearson_bound(worlds, scores, 0.0, LEARNING_CONFIDENCE, 0.0).details
        return rates["true_positive_rate_low"] - rates["false_positive_rate_high"]

    candidates = [each for each in _candidates(worlds, features) if each.name in OF_STEPS]
    return _best(worlds, features, candidates, apart)


def _best(
    worlds: Bools, features: Floats, candidates: Sequence[Score], worth: Callable[[Floats], float]
) -> Score:
    best, chosen = (-2.0, -2.0), candidates[0]
    for candidate in candidates:
        values = np.unique(candidate.of(features))
        cuts = (values[1:] + values[:-1]) / 2
        if len(cuts) > THRESHOLDS:
            cuts = cuts[np.linspace(0, len(cuts) - 1, THRESHOLDS).astype(int)]
        for cut in cuts:
            score = replace(candidate, threshold=float(cut))
            scores = score.of(features)
            gap = float((scores[worlds] > 0).mean() - (scores[~worlds] > 0).mean())
            rank = worth(scores), gap
            if rank > best:
                best, chosen = rank, score
    return chosen


def _candidates(worlds: Bools, features: Floats) -> list[Score]:
    with_it, without = features[worlds].mean(axis=0), features[~worlds].mean(axis=0)
    units = np.diag(np.where(with_it >= without, 1.0, -1.0))
    within = np.concatenate([features[worlds] - with_it, features[~worlds] - without])
    # Standardised features, and a ridge: few runs estimate nearly collinear features badly.
    scale = np.maximum(within.std(axis=0), 1e-9)
    covariance = np.cov(within / scale, rowvar=False) + 0.1 * np.eye(len(scale))
    fisher = np.linalg.solve(covariance, (with_it - without) / scale) / scale
    single = [Score(name, unit) for name, unit in zip(FEATURES, units, strict=True)]
    return [*single, Score(TOGETHER, fisher)]
