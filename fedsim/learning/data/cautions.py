"""What the owner of a table should know of its columns and rows before a training."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.learning.data import Dataset, placeholders
from fedsim.learning.data.loaders.dataset import PLAIN

MOST_FEATURES = 20
"""So many categories, or records, never cause a remark."""

LARGEST_SHARE = 0.1
"""More categories than this share of the records are probably identifiers."""


def cautions(dataset: Dataset) -> list[str]:
    """Return sentences about how a file was read, omitted rows, placeholders and identifiers."""
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
    for position, (name, values) in enumerate(dataset.columns.items()):
        if name in dataset.categorical or not (dataset.column_of == position).any():
            continue
        for value, count in placeholders.found(values.astype(np.float64).tolist()).items():
            sentences.append(
                f"column '{name}': {value:g} in {count:,} row{'s' * (count > 1)} looks like "
                "a missing value, but is read as a number"
            )
    many = len(dataset.train) > MOST_FEATURES
    most = max(MOST_FEATURES, LARGEST_SHARE * len(dataset.train))
    for position, (name, values) in enumerate(dataset.columns.items()):
        features = int((dataset.column_of == position).sum())
        if name in dataset.categorical and features > most:
            sentences.append(
                f"column '{name}' has {features} different values, each a separate feature: if "
                f'it is an identifier, leave it out with data.exclude = "{name}"'
            )
        elif features and many and name not in dataset.categorical and _numbered(values):
            sentences.append(
                f"column '{name}' has a different whole number in every row: if it is an "
                f'identifier, leave it out with data.exclude = "{name}"'
            )
    return sentences


def _numbered(values: npt.NDArray[Any]) -> bool:
    numbers = values.astype(np.float64)
    return bool((numbers == np.round(numbers)).all()) and len(np.unique(numbers)) == len(numbers)
