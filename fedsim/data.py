"""Datasets, and their split into members D, held-out records and the candidate pool U \\ D.

A loader turns a dataset's original files into arrays; `DATASETS` names the loaders. Data are public
and never change, so they are loaded once for each process and shared read-only.
"""

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedsim.errors import InputError
from fedsim.registry import lookup

Indices = npt.NDArray[np.intp] | npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Records:
    """Labelled records: features float32 [N, *shape], labels int64 [N]. Both become read-only."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        self.features.flags.writeable = False
        self.labels.flags.writeable = False

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Records":
        """Return a copy of the records at `indices` [n], in that order."""
        return Records(self.features[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A public dataset. `train` is the paper's U; `test`, if the authors give one, is held out.

    columns: original values by column, [N] each, of `train`; none for images.
    """

    name: str
    train: Records
    test: Records | None
    classes: int
    kind: Literal["image", "tabular"]
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Split:
    """Who is a member. All indices are int64.

    members [n]: D, and pool: candidates for a replacement, index `dataset.train`; held_out, records
    that nobody trains on, indexes `dataset.test` where there is one and `dataset.train` otherwise.
    """

    dataset: Dataset
    members: npt.NDArray[np.int64]
    held_out: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]

    @cached_property
    def members_records(self) -> Records:
        """The records of D, in the order of `members`."""
        return self.dataset.train.take(self.members)

    @cached_property
    def held_out_records(self) -> Records:
        """The records that nobody trains on."""
        source = self.dataset.train if self.dataset.test is None else self.dataset.test
        return source.take(self.held_out)

    @cached_property
    def pool_records(self) -> Records:
        """The records of the pool, in the order of `pool`."""
        return self.dataset.train.take(self.pool)


def split(dataset: Dataset, records: int, held_out: int, pool: int, seed: int) -> Split:
    """Draw D, the pool and the held-out records, disjoint, from the seed alone.

    D is the first `records` of a permutation of `dataset.train` and the pool the next `pool` of it,
    as far as there are any (0: all that are left). The held-out records come from a permutation of
    `dataset.test`, or else from the end of the first one. Raises InputError if D and the held-out
    records are more than there are.
    """
    generator = np.random.Generator(np.random.Philox(key=seed))
    order = generator.permutation(len(dataset.train))
    if dataset.test is None:
        if records + held_out > len(order):
            raise InputError(
                f"{dataset.name} has {len(order)} records, too few for data.records = {records} "
                f"and data.held-out = {held_out}; lower one of them"
            )
        order, aside = np.split(order, [len(order) - held_out])
    else:
        if records > len(order) or held_out > len(dataset.test):
            raise InputError(
                f"{dataset.name} has {len(order)} training and {len(dataset.test)} test records, "
                f"too few for data.records = {records} and data.held-out = {held_out}; lower them"
            )
        aside = generator.permutation(len(dataset.test))[:held_out]
    members, rest = np.split(order, [records])
    return Split(dataset, members, aside, rest[:pool] if pool else rest)


def _digits(root: str) -> Dataset:
    from sklearn.datasets import load_digits  # noqa: PLC0415  (only this dataset needs it)

    images, labels = load_digits(return_X_y=True)
    features = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return Dataset("digits", Records(features, labels.astype(np.int64)), None, 10, "image")


def _breast_cancer(root: str) -> Dataset:
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415  (only this dataset needs it)

    values, labels = load_breast_cancer(return_X_y=True)
    low, high = values.min(axis=0), values.max(axis=0)
    features = ((values - low) / (high - low)).astype(np.float32)
    return Dataset("breast-cancer", Records(features, labels.astype(np.int64)), None, 2, "tabular")


def _mnist(root: str) -> Dataset:
    if not root:
        raise InputError(
            "mnist is read from files: name the folder that holds its four IDX files with "
            "--set data.root=PATH"
        )
    folder = Path(root).expanduser()
    return Dataset("mnist", _mnist_part(folder, "train"), _mnist_part(folder, "t10k"), 10, "image")


def _mnist_part(root: Path, part: str) -> Records:
    images_path = _find(root, f"{part}-images-idx3-ubyte")
    labels_path = _find(root, f"{part}-labels-idx1-ubyte")
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
    if images.shape[1:] != (28, 28):
        raise InputError(f"{_wrong(images_path)}: its images are {images.shape[1:]}, not 28x28")
    if len(images) != len(labels) or labels.max(initial=0) > 9:
        raise InputError(
            f"{_wrong(labels_path)}: its {len(labels)} labels up to {labels.max(initial=0)} do not "
            f"fit {len(images)} digits"
        )
    features = np.divide(images[:, None], 255, dtype=np.float32)
    return Records(features, labels.astype(np.int64))


def _find(root: Path, name: str) -> Path:
    """Return the file where MNIST's own site or torchvision's folders put it, gzipped or plain."""
    if not root.is_dir():
        raise InputError(f"there is no folder '{root}'; give mnist's with --set data.root=PATH")
    for folder in (root, root / "raw", root / "MNIST" / "raw"):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise InputError(
        f"'{name}' or '{name}.gz' is not in '{root}', its raw/ or its MNIST/raw/; name the folder "
        "that holds the four IDX files with --set data.root=PATH"
    )


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped if it is named so.

    The format (LeCun, The MNIST database): bytes 0, 0, 8 (uint8) and the number of dimensions; each
    dimension as a big-endian uint32; the data. Raises InputError unless all of it is as it says.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{_wrong(path)}: {error}") from None
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        raise InputError(
            f"{_wrong(path)}: it is not an IDX file of unsigned bytes in {dimensions} dimensions"
        )
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], dtype=">u4"))
    promised = header + int(np.prod(shape, dtype=object))
    if len(content) != promised:
        raise InputError(f"{_wrong(path)}: it has {len(content)} bytes instead of {promised}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _wrong(path: Path) -> str:
    return f"'{path}' is damaged or not MNIST; put the original in its place"


Loader = Callable[[str], Dataset]
DATASETS: dict[str, Loader] = {
    "digits": _digits,
    "breast-cancer": _breast_cancer,
    "mnist": _mnist,
}
"""Loaders by name. A loader takes the folder that the user names, "" if none."""


@lru_cache(maxsize=4)
def load(name: str, root: str = "") -> Dataset:
    """Return the named dataset, read from `root` if it has files. Raises InputError."""
    return lookup(DATASETS, name, "data.name")(root)
