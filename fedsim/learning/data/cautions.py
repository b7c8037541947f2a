"""What became of a table in a way that its owner may not have meant."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.learning.data.loaders.dataset import Dataset

MOST_FEATURES = 20
"""So many categories, or records, are never remarked on."""

LARGEST_SHARE = 0.1
"""More categories than this share of the records are probably names."""


def cautions(dataset: Dataset) -> list[str]:
    """Return sentences about rows that were left out and columns that look like identifiers.

    A column of text whose categories are more than a tenth of the records, or one of whole numbers
    that differ in every record, tells a record from all others and a model nothing.
    """
    found = []
    if dataset.dropped:
        whole = len(dataset.train)
        found.append(
            f"{dataset.dropped} of {whole + dataset.dropped} rows have a missing value and are "
            "left out"
        )
    many = len(dataset.train) > MOST_FEATURES
    most = max(MOST_FEATURES, LARGEST_SHARE * len(dataset.train))
    for position, (name, values) in enumerate(dataset.columns.items()):
        features = int((dataset.column_of == position).sum())
        if name in dataset.categorical and features > most:
            found.append(
                f"column '{name}' has {features} different values, each a feature of its own: if "
                f'it is an identifier, leave it out with data.exclude = "{name}"'
            )
        elif features and many and name not in dataset.categorical and _numbered(values):
            found.append(
                f"column '{name}' has another whole number in every row: if it is an identifier, "
                f'leave it out with data.exclude = "{name}"'
            )
    return found


def _numbered(values: npt.NDArray[Any]) -> bool:
    """Whether every value is whole, and none occurs twice."""
    numbers = values.astype(np.float64)
    return bool((numbers == np.round(numbers)).all()) and len(np.unique(numbers)) == len(numbers)
