"""The user's own arrays, as in NumPy's .npz; Python objects, which are pickles, are refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Ints
from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration.federation import DataConfig
from fedsim.learning.data.dataset import (
    GREY_OR_COLOUR,
    Dataset,
    Records,
    TargetRange,
    finite,
    of_features,
    parsed,
    place,
)

FEATURES, LABELS = "features", "labels"
"""Names of pictures or numbers, and of their labels, among arrays."""

MOST_CLASSES = 1000
"""More classes suggest that a numeric column was named as the label by mistake."""

Arrays = Mapping[str, npt.NDArray[Any]]


def read(source: DataConfig) -> Dataset:
    """Return the dataset of a .npz file, as `dataset_of`."""
    path = place(source, is_file=True)
    columns = arrays(path)
    values, labels = (columns.pop(name, None) for name in (FEATURES, LABELS))
    if values is None or labels is None:
        missing = FEATURES if values is None else LABELS
        raise InputError(
            f"'{path}' has no array '{missing}'; save it with "
            f"numpy.savez(file, {FEATURES}=..., {LABELS}=...)"
        )
    return dataset_of(source, path, values, labels, columns)


def dataset_of(
    source: DataConfig,
    path: Path,
    values: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    columns: Arrays,
) -> Dataset:
    """Return the dataset of features, their labels, and other arrays as columns [N].

    values: images [N, H, W], [N, C, H, W] or [N, H, W, C] of 1 or 3 channels, bytes or numbers
    between 0 and 1, or a table [N, F].
    labels: [N] numbers or text, or one-hot [N, classes].
    Raises InputError if an array is of another kind.
    """
    raw_labels, target = numbered(labels), parsed(source.target)
    if values.dtype.kind not in "buif" or values.ndim not in (2, 3, 4) or not values.size:
        raise InputError(
            f"features of '{path}' are {values.dtype} {values.shape}; give numbers [N, F], or "
            "images [N, H, W] or [N, C, H, W]"
        )
    for column, array in ((LABELS, raw_labels), *columns.items()):
        if array.ndim != 1 or len(array) != len(values):
            raise InputError(
                f"{column} of '{path}' have shape {array.shape}; give one value for each of the "
                f"{len(values)} features"
            )
    if target is None and raw_labels.dtype.kind not in "buiUS":
        raise InputError(f"labels of '{path}' are {raw_labels.dtype}; give whole numbers or text")
    numbers, classes = numbered_labels(raw_labels, path, LABELS, target)
    texts = frozenset(name for name, array in columns.items() if array.dtype.kind in "US")
    if values.ndim > 2:
        records = Records(_images(values, path), numbers)
        made = Dataset(source.name, records, None, classes, "image")
    else:
        names = tuple(f"x{number}" for number in range(values.shape[1]))
        if twice := set(names) & set(columns):
            raise InputError(
                f"array '{min(twice)}' of '{path}' has the name of a feature; rename it"
            )
        records = Records(finite(values, path), numbers)
        made = of_features(source.name, records, classes, names, values)
    return replace(made, columns={**made.columns, **columns}, categorical=texts, target=target)


def arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the named arrays of a .npz file.

    Raises InputError for other files, or Python objects.
    """

    def refusal(reason: str) -> InputError:
        return InputError(
            f"'{path}' is damaged, or no .npz of plain arrays ({reason}); save it with "
            "numpy.savez, without objects"
        )

    with reading.damage(refusal):
        return reading.arrays(path)


def numbered(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels [N] unchanged, and one-hot labels [N, classes] as the position of the 1."""
    one_hot = (
        labels.ndim == 2
        and labels.shape[1] > 1
        and labels.dtype.kind in "buif"
        and bool(((labels == 0) | (labels == 1)).all() and (labels.sum(axis=1) == 1).all())
    )
    return labels.argmax(axis=1) if one_hot else labels


def numbered_labels(
    values: npt.NDArray[Any], path: Path, label: str, target: TargetRange | None = None
) -> tuple[Ints, int]:
    """Return the label of each record, int64 [N], and the number of classes (1 for numbers).

    values: [N], as in the file; the distinct ones, in order, are classes 0 and on.
    target: the range of a predicted number; None for classes.
    Raises InputError for one class or too many, or for values that are not finite numbers.
    """
    if target is not None:
        if values.dtype.kind not in "buif" or not np.isfinite(values).all():
            raise InputError(
                f"'{label}' of '{path}' has values that are not finite numbers; data.target needs "
                "a column of numbers"
            )
        return target.steps(values), 1
    classes, numbers = np.unique(values, return_inverse=True)
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise InputError(
            f"'{label}' of '{path}' has {len(classes)} different values for {len(values)} "
            f"records; name the column of the labels, with 2 to {MOST_CLASSES} classes"
        )
    return numbers.astype(np.int64), len(classes)


def channels_first(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return images [N, H, W], [N, C, H, W] or [N, H, W, C] as [N, C, H, W]."""
    if images.ndim == 3:
        return images[:, None]
    return images if images.shape[1] in GREY_OR_COLOUR else np.moveaxis(images, -1, 1)


def _images(values: npt.NDArray[Any], path: Path) -> npt.NDArray[np.float32]:
    values = channels_first(values)
    if values.shape[1] not in GREY_OR_COLOUR:
        raise InputError(
            f"images of '{path}' have {values.shape[1]} channels; give 1 (grey) or 3 (red, green, "
            "blue)"
        )
    if values.dtype == np.uint8:
        return np.divide(values, 255, dtype=np.float32)
    numbers = finite(values, path)
    if numbers.min() < 0 or numbers.max() > 1:
        raise InputError(
            f"images of '{path}' lie between {numbers.min():g} and {numbers.max():g}; give bytes "
            "(uint8), or numbers between 0 and 1"
        )
    return numbers
