"""Interim results of the finished trials of a run, for its events."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.statistics import estimators
from fedsim.common.strict_json import strict_json


def look(
    confidence: float,
    worlds: Bools,
    log_odds: Floats,
    accuracies: Sequence[Floats],
    looks: int,
) -> dict[str, Any]:
    """Return the interim results of all finished trials, for an event.

    Args:
        confidence: with which the intervals of all looks hold together (Bonferroni), in (0, 1).
        accuracies: for each batch, those of its evaluated trials by round, [k + 1, E].
        looks: number of planned looks, one after each batch.

    Returns: the `advantage` with its `advantage_interval`; the largest `belief` in the record of a
    trial that used it; and the mean final `accuracy`. Infinity is None.
    """
    results: dict[str, Any] = {}
    if len(worlds) > 1:
        level = 1 - (1 - confidence) / looks
        achieved = estimators.advantage(worlds, log_odds, level)
        ends = [*achieved.interval.ends]
        results |= {"advantage": achieved.point, "advantage_interval": ends}
    if worlds.any():
        results["belief"] = float(expit(log_odds[worlds].max()))
    if final := [each[-1] for each in accuracies if each.size]:
        results["accuracy"] = float(np.concatenate(final).mean())
    return strict_json(results)
