"""What the owner of a table should know of its columns and rows before a training."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.config.federation import DataConfig
from fedsim.learning.data import Dataset, placeholders
from fedsim.learning.data.distribution import dataset as loaded
from fedsim.learning.data.loaders import csv_file
from fedsim.learning.data.loaders.dataset import PLAIN, Source, parsed

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
            f"{dataset.dropped} of {whole + dataset.dropped} rows have a missing value and are "
            "left out" + f" ({each})" * bool(each)
        )
    for position, (name, values) in enumerate(dataset.columns.items()):
        if name in dataset.categorical or not (dataset.column_of == position).any():
            continue
        for value, count in placeholders.found(values.astype(np.float64).tolist()).items():
            sentences.append(
                f"column '{name}': {value:g} in {count:,} rows looks like a missing value, but is "
                "read as a number"
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


def first_look(source: DataConfig) -> tuple[str, list[str]]:
    """Return data.exclude for a CSV file, and sentences about all that is left out or in doubt.

    Columns that cannot be features, and identifiers, are excluded, unless the user excludes some.
    Raises InputError if the file is no table with such columns.
    """
    exclude, sentences = source.exclude, []
    if not exclude:
        target = parsed(source.target)
        reasons = csv_file.unfit(Source(source.name, source.root, source.label, target=target))
        exclude = ",".join(reasons)
        sentences = [f"column '{name}' {why}, and is left out" for name, why in reasons.items()]
    sentences += cautions(loaded(source.model_copy(update={"exclude": exclude}), ""))
    if sentences:
        sentences.append(
            "fedsim schema proposes a public schema, which keeps rows with gaps, dates and "
            "placeholders: set data.public-schema to its file"
        )
    return exclude, sentences


def _numbered(values: npt.NDArray[Any]) -> bool:
    numbers = values.astype(np.float64)
    return bool((numbers == np.round(numbers)).all()) and len(np.unique(numbers)) == len(numbers)
