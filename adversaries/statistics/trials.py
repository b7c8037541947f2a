"""The outcome of T trials of the identification game, the input of every estimator."""

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError

ONE_WORLD = "trials of one world only"
"""Reason of an estimator that compares the worlds."""


def check_trials(worlds: npt.ArrayLike, log_odds: npt.ArrayLike) -> tuple[Bools, Floats]:
    """Return worlds and log-odds as arrays [T].

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D; may be infinite.

    Raises InputError for arrays that are empty, of unequal shapes or not numbers.
    """
    bits, odds = np.asarray(worlds, bool), np.asarray(log_odds, np.float64)
    if bits.ndim != 1 or not bits.size or odds.shape != bits.shape:
        raise InputError(
            f"worlds are {bits.shape} and log_odds {odds.shape}; give both as [trials]"
        )
    if np.isnan(odds).any():
        raise InputError("log-odds are not numbers: a model diverged; lower the learning rate")
    return bits, odds


def two_sided(worlds: Bools) -> bool:
    """Return whether there are trials of both worlds."""
    return bool(worlds.any()) and not worlds.all()
