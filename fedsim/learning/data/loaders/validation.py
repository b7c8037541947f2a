"""What data of the user's own must be like before anything is computed on them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError

MOST_CLASSES = 1000
"""More are taken for a numeric column that was named as the label by mistake."""


def class_numbers(
    values: npt.NDArray[Any], path: Path, label: str
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the class of each record, and the number of classes.

    values: [N], the different ones of which, in order, are classes 0 and on.
    Returns: int64 [N], and at least 2.
    Raises InputError if there is one class, or there are too many.
    """
    classes, numbers = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"'{path}' has the same '{label}' for all {len(values)} records; name the labels' "
            "column, or give data with two classes or more"
        )
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"'{label}' of '{path}' has {len(classes)} different values, more than "
            f"{MOST_CLASSES} classes; name the labels' column, or group its values"
        )
    return numbers.astype(np.int64), len(classes)


def finite(features: npt.NDArray[Any], path: Path) -> npt.NDArray[np.float32]:
    """Return features as float32.

    features: [N, ...].
    Raises InputError if one is not a finite number.
    """
    with np.errstate(over="ignore"):
        numbers = features.astype(np.float32)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row = int(np.argmax(wrong.reshape(len(wrong), -1).any(axis=1)))
        raise InputError(
            f"record {row} of '{path}' has a feature that is not a finite number in float32; "
            "leave the record out, or fill it in"
        )
    return numbers
