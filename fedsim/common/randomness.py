"""The seed tree: a Philox generator is a function of (seed, role, trial, round, partition)."""

import hashlib
import secrets
import struct
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from adversaries.arrays import Floats


class StreamRole(IntEnum):
    """The purpose of a random stream. The values are part of the tree, so never renumber them."""

    WORLD = 0
    INITIAL_MODEL = 1
    NOISE = 2
    SAMPLING = 3
    PAIRS = 4
    CANDIDATES = 5
    SECRET = 6
    LOCAL_ORDER = 7
    DROPOUT = 8
    CANARY = 9
    ONE_RUN = 11
    INCLUSION = 12
    CRAFTED = 13
    CLIENT_SAMPLING = 15
    RECONSTRUCTION = 16


SERVER = -1
"""The server's partition number in the seed tree."""


def key(
    seed: int, role: StreamRole, *, trial: int = 0, round: int = 0, partition: int = SERVER
) -> int:
    """Return the 128-bit key of a random stream (BLAKE2b of the path), 0 for parts it lacks."""
    path = struct.pack("<Qqqqq", seed, role, trial, round, partition)
    return int.from_bytes(hashlib.blake2b(path, digest_size=16).digest(), "little")


def generator(
    seed: int | None, role: StreamRole, *, trial: int = 0, round: int = 0, partition: int = SERVER
) -> np.random.Generator:
    """Return the generator of a random stream; seed None: the system's entropy."""
    if seed is None:
        stream = secrets.randbits(128)
    else:
        stream = key(seed, role, trial=trial, round=round, partition=partition)
    return np.random.Generator(np.random.Philox(key=stream))


def gaussian_noise(
    seed: int | None, trials: Sequence[int], round: int, partition: int, size: int
) -> Floats:
    """Return independent normals [T, size]; equal trials have equal rows. seed None: system."""
    noise = np.empty((len(trials), size))
    for row, trial in zip(noise, trials, strict=True):
        # A key for each trial makes results independent of the batch of trials; it takes ~10 us.
        stream = generator(seed, StreamRole.NOISE, trial=trial, round=round, partition=partition)
        stream.standard_normal(out=row)
    return noise
