"""The datasets that come with scikit-learn."""

import numpy as np

from fedsim.learning.data.loaders.dataset import Dataset, Records
from fedsim.learning.data.loaders.source import Source


def digits(source: Source) -> Dataset:
    """Return 1,797 handwritten digits [1, 8, 8] in [0, 1]."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  (only this dataset needs it)

    images, labels = load_digits(return_X_y=True)
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
