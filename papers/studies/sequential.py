"""Verdicts that are valid whenever one looks: how often false, and after how many rounds true.

The noise of the sums and messages of one training, which an auditor judges after every round.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tables import Table, Value

from fedsim.game.observers.noise_watch import NoiseWatch

Floats = npt.NDArray[np.float64]

SEED = 11
CLIENTS, ROUNDS, SIZE = 2, 20, 50
HONEST, DISHONEST = 200, 10
LEVELS = (0.05, 0.01, 0.001)
SIZES, NOISES = (100, 500), (1.0, 0.9, 0.7, 0.5)

Signal = Callable[[int, Floats], Floats]
"""Round and the noise of the one before -> what is in a message beside its noise, [P]."""


def _trained(round: int, past: Floats) -> Floats:
    """Return sums as training has them: few coordinates are large, and shrink round by round."""
    place = np.arange(past.size)
    large: Floats = np.where(place < 0.4 * past.size, 30 * np.sin(1 + place) * 0.9**round, 0.0)
    return large


SIGNALS: dict[str, Signal] = {
    "none": lambda _, past: 0 * past,
    "a training": _trained,
    "reverses the last noise": lambda _, past: -past,
}


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield false accusations, the rounds that true ones take, and bounds of growing campaigns."""
    del data_root
    yield _honest(3 if smoke else HONEST, 2 if smoke else ROUNDS)
    yield _dishonest(2 if smoke else DISHONEST, 4 if smoke else ROUNDS)


def _watched(
    noises: list[float], size: int, rounds: int, signal: Signal, rng: np.random.Generator
) -> Iterator[NoiseWatch]:
    """Yield the watch after every round of clients with so much of the claimed noise, 1."""
    watch, past = NoiseWatch(len(noises)), np.zeros((len(noises), size))
    for each in range(rounds):
        drawn = np.asarray(noises)[:, None] * rng.standard_normal(past.shape)
        sent = np.stack([signal(each, before) for before in past]) + drawn
        watch.observe(sent.sum(0), math.sqrt(len(noises)), dict(enumerate(sent)), 1.0)
        yield watch
        past = drawn


def _honest(trainings: int, rounds: int) -> Table:
    rows: list[tuple[Value, ...]] = []
    for place, (name, signal) in enumerate(SIGNALS.items()):
        accused = []
        for training in range(trainings):
            rng = np.random.default_rng([SEED, place, training])
            *_, last = _watched([1.0] * CLIENTS, SIZE, rounds, signal, rng)
            accused.append([bool(last.accused(1 - level)) for level in LEVELS])
        rows.append((name, *(f"{count} of {trainings}" for count in np.sum(accused, axis=0))))
    return Table(
        "Share of honest trainings with an accusation after any round",
        ("signal in the sums", *(f"level {level:g}" for level in LEVELS)),
        rows,
        f"{trainings} trainings, {CLIENTS} clients, {rounds} rounds, {SIZE} coordinates: the sums "
        "and every client's messages, tested after every round.",
    )


def _dishonest(trainings: int, rounds: int) -> Table:
    rows: list[tuple[Value, ...]] = []
    parts = (rounds // 4, rounds // 2, rounds)
    for size in SIZES:
        for ratio in NOISES:
            first = []
            for training in range(trainings):
                rng = np.random.default_rng([SEED, size, training])
                noises = [ratio] + [1.0] * (CLIENTS - 1)
                course = enumerate(_watched(noises, size, rounds, _trained, rng), start=1)
                when = (each for each, watch in course if "client-0" in watch.accused(0.999))
                first.append(next(when, math.inf))
            shares = [float((np.asarray(first) <= part).mean()) for part in parts]
            middle = sorted(first)[(trainings - 1) // 2]
            rows.append((size, ratio, *shares, "–" if math.isinf(middle) else middle))
    return Table(
        "Share of trainings in which the one client with less noise is accused",
        ("coordinates", "noise", *(f"by round {part}" for part in parts), "median round"),
        rows,
        f"{trainings} trainings, {CLIENTS} clients; two in five coordinates are large; level 0.001 "
        "for all rounds and series together. An honest client has noise 1.",
    )
