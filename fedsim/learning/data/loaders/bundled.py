"""The datasets that come with scikit-learn."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from adversaries.errors import InputError
from fedsim.learning.data.loaders.dataset import Dataset, Records
from fedsim.learning.data.loaders.source import Source


def digits(source: Source) -> Dataset:
    """Return 1,797 handwritten digits [1, 8, 8] in [0, 1]."""
    # The file alone: to import scikit-learn takes longer than everything else before a run.
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise InputError(
            "the digits need scikit-learn, which is not installed; install fedsim again"
        )
    table = np.loadtxt(Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    images, labels = table[:, :-1], table[:, -1]
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
