"""What the owner of a table should know of its columns and rows before a training."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.learning.data import Dataset
from fedsim.learning.data.dataset import PLAIN

MOST_FEATURES = 20
"""So many categories, or records, never cause a remark."""

LARGEST_SHARE = 0.1
"""More categories than this share of the records are probably identifiers."""


def cautions(dataset: Dataset) -> list[str]:
    """Return sentences about how a file was read, omitted rows and identifiers."""
    sentences = []
    if dataset.form != PLAIN:
        sentences.append(f"the file was read as {dataset.form}")
    if dataset.dropped:
        whole = len(dataset.train)
        each = ", ".join(f"{name} {count:,}" for name, count in dataset.gaps.items())
        sentences.append(
            "rows with a missing value are left out: "
            f"{dataset.dropped} of {whole + dataset.dropped}" + f" ({each})" * bool(each)
        )
    many = len(dataset.train) > MOST_FEATURES
    most = max(MOST_FEATURES, LARGEST_SHARE * len(dataset.train))
    features_of = np.bincount(dataset.column_of, minlength=len(dataset.columns))
    for (name, values), features in zip(dataset.columns.items(), features_of, strict=True):
        identifier = f'if it is an identifier, leave it out with data.exclude = "{name}"'
        if name in dataset.categorical:
            if features > most:
                sentences.append(
                    f"column '{name}' has {features} different values, each a separate feature: "
                    f"{identifier}"
                )
            continue
        if not features:
            continue
        if many and _numbered(values):
            sentences.append(
                f"column '{name}' has a different whole number in every row: {identifier}"
            )
    return sentences


def _numbered(values: npt.NDArray[Any]) -> bool:
    numbers = values.astype(np.float64)
    return bool((numbers == np.round(numbers)).all()) and len(np.unique(numbers)) == len(numbers)
