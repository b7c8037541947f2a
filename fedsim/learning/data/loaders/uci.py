"""Tables of the UCI repository: Adult, and Abalone."""

import numpy as np

from fedsim.learning.data.loaders import originals, table
from fedsim.learning.data.loaders.dataset import Dataset
from fedsim.learning.data.loaders.source import Source

ADULT_SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
"""Checksums of the unpacked files, because packers differ."""

ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
)

ABALONE_SHA256 = "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f"

ABALONE_COLUMNS = (
    *("sex", "length", "diameter", "height", "whole-weight", "shucked-weight", "viscera-weight"),
    *("shell-weight", "rings"),
)

YOUNG = 9
"""Rings of the median snail; half of them have more."""


def adult(source: Source) -> Dataset:
    """Return Adult as one pool: 45,222 people of the US census of 1994, with 104 features.

    The class is whether a person earned more than $50,000. Rows with missing values are left out,
    numbers scaled by the least and the largest, and text one-hot. Raises InputError if a file is
    missing or not the original. Source: Becker & Kohavi, 1996, UCI.
    """
    rows: list[list[str]] = []
    paths = originals.find(source, tuple(ADULT_SHA256))
    for path, (name, expected) in zip(paths, ADULT_SHA256.items(), strict=True):
        content = originals.read(path)
        originals.check(content, path, f"Adult file {name}", expected, "csv")
        # The test file begins with a comment, and its labels end in a dot.
        lines = [line for line in content.decode("ascii").splitlines() if not line.startswith("|")]
        rows += [[*row[:-1], row[-1].rstrip(".")] for row in table.rows("\n".join(lines), path)]
    columns, dropped = table.columns_of(ADULT_COLUMNS, rows, paths[0])
    return table.encode(source.name, paths[0], columns, "income", exclude=(), dropped=dropped)


def abalone(source: Source) -> Dataset:
    """Return Abalone as one pool: 4,177 sea snails with 10 features and two classes.

    The class is whether a snail has more than nine rings; the rings are not a feature. Raises
    InputError if the file is missing or not the original. Source: Nash et al., 1994, UCI; two
    classes as in Triastcyn and Faltings, 2020, B.1.
    """
    (path,) = originals.find(source, ("abalone.data",))
    content = originals.read(path)
    originals.check(content, path, "Abalone file abalone.data", ABALONE_SHA256, "csv")
    rows = table.rows(content.decode("ascii"), path)
    columns, dropped = table.columns_of(ABALONE_COLUMNS, rows, path)
    columns["old"] = np.where(columns.pop("rings").astype(np.int64) > YOUNG, "yes", "no")
    return table.encode(source.name, path, columns, "old", exclude=(), dropped=dropped)
