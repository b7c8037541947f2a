"""The direction in which the target moves a loop's releases, learnt from pilots.

Pilots are pairs of runs with one seed, with the target and with another record in its place. Both
draw the same random numbers, so that most of their releases cancels. The decisions about other runs
are valid for any direction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.loop.measurement import Features

LARGEST = 50.0
"""Largest log-likelihood ratio of a step that counts."""

FULL = 0.95
"""Rate from which the target counts as a part of every step."""


@dataclass(frozen=True)
class Direction:
    """The direction of a pair of worlds.

    Attributes:
        unit: [P], along which the target moves the releases.
        middle: [k], mean shift of the runs without the target, by step.
        std: standard deviation of that shift in a step.
        influence: shift by the target in a step in which it takes part.
        rate: share of steps in which it takes part, in (0, 1].
        scales: [k], size of the noise in each step, by which it is divided, where the rows of a
            release are models, whose differences are the steps; else None.
    """

    unit: Floats
    middle: Floats
    std: float
    influence: float
    rate: float
    scales: Floats | None = None

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
        steps = _steps(released, self.scales)
        size = min(len(steps), len(self.middle))
        # The shift along the direction, in standard deviations of a step without the target.
        apart = (steps[:size] @ self.unit - self.middle[:size]) / self.std
        signal = self.influence / self.std
        # log N(x; signal, 1) - log N(x; 0, 1), then the mixture over whether the target joins.
        ratios = np.clip(signal * apart - signal**2 / 2, -LARGEST, LARGEST)
        sampled = np.log1p(self.rate * np.expm1(ratios)) if self.rate < 1 else ratios
        last, largest = apart[-1], apart.max()
        parts = sampled.sum(), apart.sum(), last, largest, energy, len(released)
        return tuple(float(each) for each in parts)


def learnt(present: Sequence[Floats], twin: Sequence[Floats], models: bool = False) -> Direction:
    """Return the direction that the pilots show.

    Args:
        present: releases of the runs with the target, each [k, P].
        twin: releases with another record in its place.
        models: whether each row is a model.
    """
    size = min(len(each) for each in (*present, *twin))
    width = min(each.shape[1] for each in (*present, *twin))
    with_it, without = (  # [pilots, k, P]
        np.array([each[:size, :width] for each in runs]) for runs in (present, twin)
    )
    scales = None
    if models and size > 1:
        scales = _scales(without)
        with_it, without = (
            np.array([_steps(each, scales) for each in runs]) for runs in (with_it, without)
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
    return Direction(unit, middle, max(spread, 1e-9 * influence), influence, rate, scales)


def _scales(models: Floats) -> Floats:
    """Return the standard deviation of each step's noise [k - 1], of models [pilots, k, P]."""
    steps = np.diff(models, axis=1)
    scales: Floats = np.sqrt(np.square(steps - steps.mean(axis=0)).mean(axis=(0, 2)))
    # A step that shows no noise by chance must not dominate the direction.
    return np.maximum(scales, 1e-3 * np.median(scales)) if scales.any() else np.ones(len(scales))


def _steps(rows: Floats, scales: Floats | None) -> Floats:
    """Return the scaled steps of a release; the first of several models may differ in every run."""
    if scales is None or len(rows) < 2:
        return rows
    steps: Floats = np.diff(rows, axis=0)[: len(scales)]
    return steps / scales[: len(steps), None]
