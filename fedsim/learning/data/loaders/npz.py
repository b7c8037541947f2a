"""The user's own arrays in NumPy's .npz; Python objects, which are pickles, are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.loaders.dataset import (
    GREY_OR_COLOUR,
    Dataset,
    Records,
    Source,
    TargetRange,
    finite,
    numbered_labels,
)


def own(source: Source) -> Dataset:
    """Return the dataset of an archive's `features` and `labels`.

    features: images [N, H, W], [N, C, H, W] or [N, H, W, C] of 1 or 3 channels, bytes or numbers
    between 0 and 1, or a table [N, F]. labels: [N] numbers or text, or one-hot [N, classes]. Raises
    InputError if an array is missing, or of another kind.
    """
    path = source.file
    others = arrays(path)
    if missing := {"features", "labels"} - set(others):
        raise InputError(
            f"'{path}' has no array '{min(missing)}', it has {', '.join(sorted(others)) or 'none'};"
            " save it with numpy.savez(file, features=..., labels=...)"
        )
    features, labels = others.pop("features"), numbered(others.pop("labels"))
    return of_arrays(source.name, path, features, labels, others, source.target)


def of_arrays(
    name: str,
    path: Path,
    values: npt.NDArray[Any],
    raw_labels: npt.NDArray[Any],
    columns: dict[str, npt.NDArray[Any]],
    target: TargetRange | None = None,
) -> Dataset:
    """Return the dataset of features, labels and other columns.

    values: the features, with the shapes of `own`.
    raw_labels: [N] numbers or text.
    columns: the other columns [N], by name.
    target: the range of the number that is predicted; None where labels are classes.
    Raises InputError if an array is of another kind.
    """
    if values.dtype.kind not in "buif" or values.ndim not in (2, 3, 4) or not values.size:
        raise InputError(
            f"features of '{path}' are {values.dtype} {values.shape}; give numbers [N, F], or "
            "images [N, H, W] or [N, C, H, W]"
        )
    for column, array in (("labels", raw_labels), *columns.items()):
        if array.ndim != 1 or len(array) != len(values):
            raise InputError(
                f"{column} of '{path}' have shape {array.shape}; give one value for each of the "
                f"{len(values)} features"
            )
    if target is None and raw_labels.dtype.kind not in "buiUS":
        raise InputError(f"labels of '{path}' are {raw_labels.dtype}; give whole numbers or text")
    labels, classes = numbered_labels(raw_labels, path, "labels", target)
    if values.ndim > 2:
        records = Records(_images(values, path), labels)
        return Dataset(name, records, None, classes, "image", columns=columns, target=target)
    names = tuple(f"x{number}" for number in range(values.shape[1]))
    if twice := set(names) & set(columns):
        raise InputError(f"array '{min(twice)}' of '{path}' has the name of a feature; rename it")
    return Dataset(
        name,
        Records(finite(values, path), labels),
        None,
        classes,
        "tabular",
        attributes=names,
        columns=dict(zip(names, values.T, strict=True)) | columns,
        column_of=np.arange(len(names), dtype=np.int64),
        categorical=frozenset(name for name, array in columns.items() if array.dtype.kind in "US"),
        target=target,
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


def _images(values: npt.NDArray[Any], path: Path) -> npt.NDArray[np.float32]:
    if values.ndim == 3:
        values = values[:, None]
    elif values.shape[1] not in GREY_OR_COLOUR:
        values = np.moveaxis(values, -1, 1)
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
