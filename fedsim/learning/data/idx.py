"""MNIST's format, IDX: MNIST and Fashion-MNIST, checked by checksums, and the user's own files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.learning.data import originals
from fedsim.learning.data.csv_file import read_bytes
from fedsim.learning.data.dataset import Dataset, Records, Source, numbered_labels

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

PLACES = (".", "raw")
"""Folders of the files, within the folder that the user names."""

MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FASHION_MNIST_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""Checksums of the unpacked files, because packers differ."""


def mnist(source: Source) -> Dataset:
    """Return MNIST (LeCun et al.): 60,000 and 10,000 images [1, 28, 28] in [0, 1], ten digits."""
    return _original(source, "MNIST", MNIST_SHA256)


def fashion_mnist(source: Source) -> Dataset:
    """Return Fashion-MNIST (Xiao et al. 2017): MNIST's shapes, ten kinds of clothes."""
    return _original(source, "FashionMNIST", FASHION_MNIST_SHA256)


def _original(source: Source, name: str, digests: Mapping[str, str]) -> Dataset:
    """Return a dataset whose files are checked by their checksums; `name` is torchvision's."""

    def fetch(root: Path) -> object:
        from torchvision import datasets  # noqa: PLC0415  (slow to import)

        return getattr(datasets, name)(str(root), download=True)

    paths = originals.find(source, tuple(digests), (*PLACES, f"{name}/raw"), fetch)
    for path, (file, expected) in zip(paths, digests.items(), strict=True):
        originals.read_original(path, f"{name} file {file}", expected, "idx")
    return _dataset(source.name, paths)


def read(source: Source) -> Dataset:
    """Return images [1, H, W] in [0, 1] from the user's IDX files with MNIST's names.

    The test files may be missing. Classes are 0 to the largest label.

    Raises InputError if a file is missing or damaged, or files do not belong together.
    """
    paths = originals.find(source, TRAIN, PLACES)
    if None not in originals.look_up(source.path, TEST[:1], PLACES):
        paths += originals.find(source, TEST, PLACES)
    return _dataset(source.name, paths)


def present(root: Path) -> list[Path]:
    """Return the files of training images and labels in a folder; [] if there are no images."""
    if None in originals.look_up(root, TRAIN[:1], PLACES):
        return []
    return originals.find(Source("own", str(root)), TRAIN, PLACES)


def _dataset(name: str, paths: list[Path]) -> Dataset:
    parts = [_records(*paths[start : start + 2]) for start in range(0, len(paths), 2)]
    train, test = parts[0], parts[1] if parts[1:] else None
    numbered_labels(train.labels, paths[1], "label")  # refuses a single class
    shapes = [part.features.shape[1:] for part in parts]
    if shapes[0] != shapes[-1]:
        sizes = ["×".join(map(str, shape[1:])) for shape in shapes]
        raise InputError(
            f"the images of '{paths[0]}' are {sizes[0]}, but the images of '{paths[2]}' "
            f"are {sizes[1]}; give both the same size"
        )
    classes = 1 + max(int(part.labels.max(initial=0)) for part in parts)
    return Dataset(name, train, test, classes, "image")


def _records(images_path: Path, labels_path: Path) -> Records:
    """Return the records of two IDX files: images [N, 1, H, W] in [0, 1] and their labels."""
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
    if len(images) != len(labels):
        raise InputError(
            f"'{labels_path}' has {len(labels)} labels for the {len(images)} images of "
            f"'{images_path}'; give two files that belong together"
        )
    if not images.size:
        raise InputError(f"'{images_path}' has no images; give a file with images")
    features = np.divide(images[:, None], 255, dtype=np.float32)
    return Records(features, labels.astype(np.int64))


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Return the array of an IDX file of unsigned bytes (LeCun, The MNIST database).

    Bytes 0, 0, 8, the number of dimensions; each one as a big-endian uint32; the data. Raises
    InputError if the file does not match its header.
    """
    content = read_bytes(path)
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        raise InputError(
            f"'{path}' is damaged: it is not an IDX file of unsigned bytes in {dimensions} "
            "dimensions; put a whole one in its place"
        )
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], dtype=">u4"))
    promised = header + int(np.prod(shape, dtype=object))
    if len(content) != promised:
        raise InputError(
            f"'{path}' is damaged: it has {len(content)} bytes instead of {promised}; put a whole "
            "one in its place"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
