"""The records that a loop is run on: bundled ones, those of a file, or of the user's own code."""

from pathlib import Path
from typing import Any

import numpy as np

from adversaries.errors import InputError
from fedsim.audits.loop.contract import imported
from fedsim.audits.loop.worlds import Data
from fedsim.common.randomness import Role, generator
from fedsim.learning.data import BUNDLED, load
from fedsim.learning.data.loaders import npz


def drawn(source: str, records: int, seed: int) -> Data:
    """Return as many records as D has, drawn from the data by the seed.

    Args:
        source: a bundled data set, an NPZ file, or "module:name" of a pair (features, labels), or
            of a function that returns one.

    Raises:
        InputError: there is no such source, or it has not so many records, or others than numbers.
    """
    whole = _all(source)
    if not 0 < records <= len(whole):
        raise InputError(
            f"--records is {records}, and '{source}' has {len(whole)}; give at most that"
        )
    places = generator(seed, Role.CANDIDATES).permutation(len(whole))[:records]
    return Data(whole.features[places], whole.labels[places])


def _all(source: str) -> Data:
    if source in BUNDLED:
        found = load(source).train
        return _checked(found.features, found.labels, source)
    if source.endswith(".npz"):
        arrays = npz.arrays(Path(source))
        if arrays.keys() >= {"features", "labels"} and arrays["labels"].dtype.kind == "f":
            return _checked(arrays["features"], arrays["labels"], source)
        found = load("npz", source).train
        return _checked(found.features, found.labels, source)
    if ":" in source:
        return _own(source)
    raise InputError(
        f"--data is '{source}'; give {' or '.join(BUNDLED)}, a file of features and labels, such "
        "as mine.npz, or a pair of arrays in your code, such as mine.py:data"
    )


def _own(source: str) -> Data:
    found = imported(source)
    try:
        features, labels = found() if callable(found) else found
        return _checked(np.asarray(features), np.asarray(labels), source)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"'{source}' gives no data ({type(error).__name__}: {error}); let it be a pair "
            "(features, labels) of arrays, or a function without parameters that returns one"
        ) from error


def _checked(features: Any, labels: Any, source: str) -> Data:
    """Return features as float32, and labels as int64 or float32."""
    numbers = features.dtype.kind in "buif" and labels.dtype.kind in "buif"
    if not numbers or features.ndim < 2 or labels.shape != features.shape[:1]:
        raise InputError(
            f"'{source}' has features {features.dtype} {features.shape} and labels {labels.dtype} "
            f"{labels.shape}; give numbers [n, ...] and [n]"
        )
    features = features.astype(np.float32)
    labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64)
    if not (np.isfinite(features).all() and np.isfinite(labels).all()):
        raise InputError(f"'{source}' has numbers that are not finite; leave those records out")
    return Data(features, labels)
