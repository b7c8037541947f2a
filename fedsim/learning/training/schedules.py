"""Learning-rate schedules: functions of the round alone, so they cost no privacy."""

import math
from collections.abc import Callable

from adversaries.registry import lookup
from fedsim.configuration.training import TrainingConfig

Schedule = Callable[[int, int, TrainingConfig], float]


def _cosine(round: int, rounds: int, training: TrainingConfig) -> float:
    """Fall by half a cosine from 1 towards 0 (Loshchilov & Hutter, 2017, Eq. 5, no restarts)."""
    return (1 + math.cos(math.pi * (round - 1) / rounds)) / 2


SCHEDULES: dict[str, Schedule] = {
    "constant": lambda round, rounds, training: 1.0,
    "linear": lambda round, rounds, training: 1 - (round - 1) / rounds,
    "cosine": _cosine,
}
"""Factors by name. Rounds count from 1; the one after the last would have 0."""


def factor(training: TrainingConfig, round: int) -> float:
    """Return the factor of the learning rate in a round.

    It is the schedule's factor, times round/w during the first w = `warmup-rounds`.

    Args:
        training: names the schedule and its numbers; InputError for an unknown schedule.
        round: counts from 1.
    """
    schedule = lookup(SCHEDULES, training.schedule, "training.schedule")
    warmth = min(1.0, round / training.warmup_rounds) if training.warmup_rounds else 1.0
    return warmth * schedule(round, training.rounds, training)
