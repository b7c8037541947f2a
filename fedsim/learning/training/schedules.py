"""How the learning rate changes over the rounds: a pure function of the round.

A schedule is a factor of `training.learning-rate`, and of the local rate where clients take steps
of their own. It depends on nothing that was observed, so that it costs no privacy. A new schedule
is one function and one entry in `SCHEDULES`.
"""

import math
from collections.abc import Callable

from adversaries.registry import lookup
from fedsim.config import TrainingConfig

Schedule = Callable[[int, int, TrainingConfig], float]


def _constant(round: int, rounds: int, training: TrainingConfig) -> float:
    return 1.0


def _linear(round: int, rounds: int, training: TrainingConfig) -> float:
    """From 1 towards 0, which the round after the last would have."""
    return 1 - (round - 1) / rounds


def _cosine(round: int, rounds: int, training: TrainingConfig) -> float:
    """Half a cosine from 1 towards 0 (Loshchilov & Hutter, 2017, Eq. 5, without restarts)."""
    return (1 + math.cos(math.pi * (round - 1) / rounds)) / 2


def _step(round: int, rounds: int, training: TrainingConfig) -> float:
    """Times `decay-factor` after every `decay-every` rounds."""
    return float(training.decay_factor ** ((round - 1) // training.decay_every))


SCHEDULES: dict[str, Schedule] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "step": _step,
}


def factor(training: TrainingConfig, round: int) -> float:
    """Return what the learning rate of a round is multiplied with.

    The schedule's factor, and during the first `warmup-rounds` w a second one of round/w.

    Raises InputError if there is no such schedule.

    Args:
        training: names the schedule and its numbers.
        round: counts from 1.
    """
    schedule = lookup(SCHEDULES, training.schedule, "training.schedule")
    warmth = min(1.0, round / training.warmup_rounds) if training.warmup_rounds else 1.0
    return warmth * schedule(round, training.rounds, training)
