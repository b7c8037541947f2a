"""Purchase-100: which of 600 products each of 197,324 shoppers bought, in 100 clusters."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.loaders import npz, originals
from fedsim.learning.data.loaders.dataset import Dataset, Records
from fedsim.learning.data.loaders.source import Source

ROWS = 197_324
PRODUCTS = 600
CLUSTERS = 100
CLUSTER_NUMBERS = np.arange(CLUSTERS)

FILES = ("dataset_purchase", "dataset_purchase.gz", "shokri_purchases_100_classes.npz")


def purchase100(source: Source) -> Dataset:
    """Return Purchase-100 as one pool of 600 binary features.

    The authors' file has a label 1 to 100 and 600 bits a row. It has no published checksum: the
    numbers of rows, products and clusters are checked. Raises InputError if the file is missing or
    not the original. Source: Shokri et al., 2017.
    """
    for name in FILES:
        if (source.path / name).is_file():
            path = source.path / name
            break
    else:
        (path,) = originals.find(source, FILES[:1])
    bits, labels = _archive(path) if path.suffix == ".npz" else read_text(path)
    shape = (ROWS, PRODUCTS)
    problem = ""
    if bits.shape != shape or labels.shape != shape[:1]:
        problem = f"it has {bits.shape} features and {labels.shape} labels instead of {shape}"
    elif bits.dtype.kind not in "buif" or labels.dtype.kind not in "buif":
        problem = f"its features are {bits.dtype} and its labels {labels.dtype}, not numbers"
    elif not ((bits == 0) | (bits == 1)).all():
        problem = "its features are not all 0 or 1"
    elif not any(np.array_equal(np.unique(labels), first + CLUSTER_NUMBERS) for first in (0, 1)):
        problem = f"its labels are not {CLUSTERS} numbers from 0 or 1 on"
    if problem:
        raise InputError(
            f"{originals.not_original(path, 'Purchase-100')}: {problem}; {originals.remedy('npz')}"
        )
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


Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def _archive(path: Path) -> Arrays:
    arrays = npz.arrays(path)
    if not {"features", "labels"} <= set(arrays):
        raise InputError(
            f"{originals.not_original(path, 'Purchase-100')}: it has no features or no labels; "
            f"{originals.remedy('npz')}"
        )
    return arrays["features"], npz.numbered(arrays["labels"])


def read_text(path: Path) -> Arrays:
    """Return features uint8 [N, F] and labels [N] of such a file. Raises InputError for another."""

    def refusal(reason: str) -> InputError:
        return InputError(
            f"{originals.not_original(path, 'Purchase-100')}: {reason}; {originals.remedy('csv')}"
        )

    with reading.damage(refusal):
        text = io.BytesIO(originals.read(path))
        values = np.loadtxt(text, delimiter=",", dtype=np.uint8, ndmin=2)
    return values[:, 1:], values[:, 0]
