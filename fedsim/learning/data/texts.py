"""Texts without labels, from a file with a text in each line or a table with a column of texts."""

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.learning.data import own_records, tokens
from fedsim.learning.data.loaders.dataset import Dataset, Records, Source

COLUMN = "text"
"""The column of a table with the texts."""


def own(source: Source) -> Dataset:
    """Return the texts of a file as tokens, all with label 0.

    Raises InputError for bad files.
    """
    texts, blank = _texts(str(source.file))
    features = tokens.numbers(texts, source.length, source.tokenizer)
    labels = np.zeros(len(texts), dtype=np.int64)
    return Dataset(source.name, Records(features, labels), None, 1, "tabular", dropped=blank)


def read_texts(path: str, length: int, tokenizer: str) -> npt.NDArray[np.float32]:
    """Return the texts of a file as tokens, [N, length].

    tokenizer: directory of the tokenizer.
    Raises InputError if the file has no texts, or the directory has no tokenizer.
    """
    return tokens.numbers(_texts(path)[0], length, tokenizer)


def _texts(path: str) -> tuple[list[str], int]:
    """Return the texts of a file, and the number of blank ones, which are left out."""
    columns = own_records.columns(path)
    if COLUMN not in columns:
        raise InputError(
            f"'{path}' has no column '{COLUMN}', it has {', '.join(columns)}; rename the column of "
            f"the texts to '{COLUMN}'"
        )
    texts = [text for text in columns[COLUMN] if text.strip()]
    if not texts:
        raise InputError(f"'{path}' has no text; give one text a line")
    return texts, len(columns[COLUMN]) - len(texts)
