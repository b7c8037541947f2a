"""Texts without labels: a file with one a line, or a table with a column of them."""

import numpy as np

from adversaries.errors import InputError
from fedsim.learning.data import own_records, tokens
from fedsim.learning.data.loaders.dataset import Dataset, Records
from fedsim.learning.data.loaders.source import Source

COLUMN = "text"
"""The column of a table that holds the texts."""


def own(source: Source) -> Dataset:
    """Return the texts of a file as tokens; all have the label 0.

    Raises InputError if it has no texts, or the directory of model.weights has no tokenizer.
    """
    columns = own_records.columns(str(source.file))
    if COLUMN not in columns:
        raise InputError(
            f"'{source.file}' has no column '{COLUMN}', it has {', '.join(columns)}; name the "
            "column of the texts so"
        )
    texts = [text for text in columns[COLUMN] if text.strip()]
    if not texts:
        raise InputError(f"'{source.file}' has no text; give one a line")
    features = tokens.numbers(texts, source.length, source.tokenizer)
    labels = np.zeros(len(texts), dtype=np.int64)
    dropped = len(columns[COLUMN]) - len(texts)
    return Dataset(source.name, Records(features, labels), None, 1, "tabular", dropped=dropped)
