"""Abalone: 4,177 sea snails, and whether each is older than most: more than 9 rings."""

import numpy as np

from fedsim.learning.data.loaders import originals, table
from fedsim.learning.data.loaders.dataset import Dataset
from fedsim.learning.data.loaders.source import Source

FILE = "abalone.data"

SHA256 = "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f"
"""Of the unpacked file: packers differ."""

COLUMNS = (
    "sex",
    "length",
    "diameter",
    "height",
    "whole-weight",
    "shucked-weight",
    "viscera-weight",
    "shell-weight",
    "rings",
)

YOUNG = 9
"""Rings of the median snail; half of them have more."""


def abalone(source: Source) -> Dataset:
    """Return Abalone as one pool: 4,177 records of 10 features and two classes.

    The class is whether there are more than nine rings, and the rings are no feature. The sex is
    one-hot; the seven measurements are scaled by the least and the largest of these records.

    Raises:
        InputError: the file is missing or not the original.

    Source:
        Nash et al., 1994, UCI; two classes as in Triastcyn and Faltings, 2020, B.1.
    """
    (path,) = originals.find(source, (FILE,))
    content = originals.read(path)
    originals.check(content, path, f"Abalone file {FILE}", SHA256, "csv")
    found = table.rows(content.decode("ascii"), path)
    values = zip(*found, strict=True)
    columns = {
        name: np.asarray(column, dtype=np.str_)
        for name, column in zip(COLUMNS, values, strict=True)
    }
    rings = columns.pop("rings").astype(np.int64)
    columns["old"] = np.where(rings > YOUNG, "yes", "no")
    return table.encode(source.name, path, columns, "old", exclude=(), dropped=0)
