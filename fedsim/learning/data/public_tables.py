"""Public tables: those of scikit-learn, of the UCI repository, and Purchase-100."""

import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data import arrays, csv_file, originals, table
from fedsim.learning.data.dataset import Dataset, Records, Source

ROWS, PRODUCTS, CLUSTERS = 197_324, 600, 100
"""Purchase-100's numbers of shoppers, features and classes."""

ARCHIVE = "shokri_purchases_100_classes.npz"


def purchase100(source: Source) -> Dataset:
    """Return Purchase-100 as one pool of 600 binary features.

    The authors' file has a label 1 to 100 and 600 bits a row. It has no published checksum: the
    numbers of rows, products and clusters are checked. Raises InputError if the file is missing or
    not the original. Source: Shokri et al., 2017.
    """
    if (source.path / ARCHIVE).is_file():
        path = source.path / ARCHIVE
        columns = arrays.arrays(path)
        bits, labels = columns.get("features"), columns.get("labels")
        if bits is None or labels is None:
            raise _not_purchase(path, "it has no features or no labels")
        labels = arrays.numbered(labels)
    else:
        (path,) = originals.find(source, ("dataset_purchase",))
        bits, labels = read_text(path)
    shape = (ROWS, PRODUCTS)
    problem = ""
    if bits.shape != shape or labels.shape != shape[:1]:
        problem = f"it has {bits.shape} features and {labels.shape} labels instead of {shape}"
    elif bits.dtype.kind not in "buif" or labels.dtype.kind not in "buif":
        problem = f"its features are {bits.dtype} and its labels {labels.dtype}, not numbers"
    elif not ((bits == 0) | (bits == 1)).all():
        problem = "its features are not all 0 or 1"
    elif not any(np.array_equal(np.unique(labels), np.arange(CLUSTERS) + k) for k in (0, 1)):
        problem = f"its labels are not {CLUSTERS} numbers from 0 or 1 on"
    if problem:
        raise _not_purchase(path, problem)
    names = tuple(f"product {number}" for number in range(1, PRODUCTS + 1))
    bits = bits.astype(np.uint8)
    return Dataset(
        source.name,
        Records(bits.astype(np.float32), labels.astype(np.int64) - int(labels.min())),
        None,
        CLUSTERS,
        "tabular",
        attributes=names,
        columns=dict(zip(names, bits.T, strict=True)),
        column_of=np.arange(PRODUCTS, dtype=np.int64),
        categorical=frozenset(names),
    )


def read_text(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return features uint8 [N, F] and labels [N] of such a file. Raises InputError for another."""
    with reading.damage(lambda reason: _not_purchase(path, reason)):
        text = io.BytesIO(csv_file.read_bytes(path))
        values = np.loadtxt(text, delimiter=",", dtype=np.uint8, ndmin=2)
    return values[:, 1:], values[:, 0]


def _not_purchase(path: Path, reason: str) -> InputError:
    return originals.not_original(path, "Purchase-100", f": {reason}", "npz")


def digits(source: Source) -> Dataset:
    """Return 1,797 handwritten digits [1, 8, 8] in [0, 1]."""
    # The file alone: to import scikit-learn takes longer than everything else before a run.
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise InputError(
            "the digits need scikit-learn, which is not installed; install fedsim again"
        )
    values = np.loadtxt(Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    images, labels = values[:, :-1], values[:, -1]
    features = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return Dataset(source.name, Records(features, labels.astype(np.int64)), None, 10, "image")


def breast_cancer(source: Source) -> Dataset:
    """Return 569 tumours with 30 measurements, each scaled from 0 to 1."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415  (only this dataset needs it)

    bunch = load_breast_cancer()
    values, names = bunch.data, tuple(map(str, bunch.feature_names))
    low, high = values.min(axis=0), values.max(axis=0)
    features = ((values - low) / (high - low)).astype(np.float32)
    return Dataset(
        source.name,
        Records(features, bunch.target.astype(np.int64)),
        None,
        2,
        "tabular",
        attributes=names,
        columns=dict(zip(names, values.T, strict=True)),
        column_of=np.arange(len(names), dtype=np.int64),
    )


ADULT_SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
"""Checksums of the unpacked files, because packers differ."""

ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "label"),
)

ABALONE_SHA256 = {
    "abalone.data": "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f"
}

ABALONE_COLUMNS = (
    *("sex", "length", "diameter", "height", "whole-weight", "shucked-weight", "viscera-weight"),
    *("shell-weight", "label"),
)

YOUNG = 9
"""Rings of the median snail; half of them have more."""


def adult(source: Source) -> Dataset:
    """Return Adult as one pool: 45,222 people of the US census of 1994, with 104 features.

    The class is whether a person earned more than $50,000. Rows with missing values are left out,
    numbers scaled by the least and the largest, and text one-hot. Raises InputError if a file is
    missing or not the original. Source: Becker & Kohavi, 1996, UCI.
    """
    rows = _rows(source, "Adult", ADULT_SHA256)
    # The labels of the test file end in a dot.
    rows = [[*row[:-1], row[-1].rstrip(".")] for row in rows]
    return _of_rows(source, ADULT_COLUMNS, rows)


def abalone(source: Source) -> Dataset:
    """Return Abalone as one pool: 4,177 sea snails with 10 features and two classes.

    The class is whether a snail has more than nine rings; the rings are not a feature. Raises
    InputError if the file is missing or not the original. Source: Nash et al., 1994, UCI; two
    classes as in Triastcyn and Faltings, 2020, B.1.
    """
    rows = _rows(source, "Abalone", ABALONE_SHA256)
    rows = [[*row[:-1], "yes" if int(row[-1]) > YOUNG else "no"] for row in rows]
    return _of_rows(source, ABALONE_COLUMNS, rows)


def _rows(source: Source, title: str, digests: dict[str, str]) -> csv_file.Rows:
    """Return the rows of all files, after their checksums."""
    rows: csv_file.Rows = []
    paths = originals.find(source, tuple(digests))
    for path, (name, expected) in zip(paths, digests.items(), strict=True):
        content = originals.read_original(path, f"{title} file {name}", expected, "csv")
        # Adult's test file begins with a comment.
        lines = [line for line in content.decode("ascii").splitlines() if not line.startswith("|")]
        rows += csv_file.rows("\n".join(lines), path)
    return rows


def _of_rows(source: Source, names: tuple[str, ...], rows: csv_file.Rows) -> Dataset:
    own = Source(source.name, source.root)  # no label, and no columns to exclude, of the user's
    return table.encode(own, source.path, table.columns_of(names, rows))
