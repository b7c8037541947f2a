"""Adult: 48,842 people of the US census of 1994, and whether each earned more than $50,000."""

import numpy as np

from fedsim.learning.data.loaders import originals, table
from fedsim.learning.data.loaders.dataset import Dataset
from fedsim.learning.data.loaders.source import Source

SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
"""Of the unpacked files: packers differ."""

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)


def adult(source: Source) -> Dataset:
    """Return Adult as one pool: 45,222 records of 104 features.

    Both files, one after the other, without the rows of missing values; numbers scaled by the least
    and the largest of these records, the others one-hot.

    Raises:
        InputError: a file is missing or not the original.

    Source:
        Becker & Kohavi, 1996, UCI.
    """
    found: list[list[str]] = []
    paths = originals.find(source, tuple(SHA256))
    for path, (name, expected) in zip(paths, SHA256.items(), strict=True):
        content = originals.read(path)
        originals.check(content, path, f"Adult file {name}", expected, "csv")
        # The test file begins with a comment, and its labels end in a dot.
        lines = [line for line in content.decode("ascii").splitlines() if not line.startswith("|")]
        found += [[*row[:-1], row[-1].rstrip(".")] for row in table.rows("\n".join(lines), path)]
    whole = table.complete(found)
    values = zip(*whole, strict=True)
    columns = {
        name: np.asarray(column, dtype=np.str_)
        for name, column in zip(COLUMNS, values, strict=True)
    }
    return table.encode(
        source.name, paths[0], columns, "income", exclude=(), dropped=len(found) - len(whole)
    )
