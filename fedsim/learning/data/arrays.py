"""The user's own arrays, as in NumPy's .npz; Python objects, which are pickles, are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.dataset import (
    GREY_OR_COLOUR,
    Dataset,
    Records,
    Source,
    finite,
)
from fedsim.learning.data.dealing import numbered_labels

FEATURES, LABELS = "features", "labels"
"""Names of pictures or numbers, and of their labels, among arrays."""

Arrays = Mapping[str, npt.NDArray[Any]]


def read(source: Source) -> Dataset:
    """Return the dataset of a .npz file, as `dataset_of`."""
    path = source.file
    columns = arrays(path)
    if missing := {FEATURES, LABELS} - set(columns):
        raise InputError(
            f"'{path}' has no array '{min(missing)}', it has {', '.join(sorted(columns)) or 'none'}"
            f"; save it with numpy.savez(file, {FEATURES}=..., {LABELS}=...)"
        )
    values, labels = columns.pop(FEATURES), columns.pop(LABELS)
    return dataset_of(source, path, values, labels, columns)


def dataset_of(
    source: Source,
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
    raw_labels = numbered(labels)
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
    if source.target is None and raw_labels.dtype.kind not in "buiUS":
        raise InputError(f"labels of '{path}' are {raw_labels.dtype}; give whole numbers or text")
    numbers, classes = numbered_labels(raw_labels, path, LABELS, source.target)
    is_table = values.ndim == 2
    names = tuple(f"x{number}" for number in range(values.shape[1])) if is_table else ()
    records = Records((finite if is_table else _images)(values, path), numbers)
    if twice := set(names) & set(columns):
        raise InputError(f"array '{min(twice)}' of '{path}' has the name of a feature; rename it")
    return Dataset(
        source.name,
        records,
        None,
        classes,
        "tabular" if is_table else "image",
        attributes=names,
        columns={**(dict(zip(names, values.T, strict=True)) if is_table else {}), **columns},
        column_of=np.arange(len(names), dtype=np.int64),
        categorical=frozenset(name for name, array in columns.items() if array.dtype.kind in "US"),
        target=source.target,
    )


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
