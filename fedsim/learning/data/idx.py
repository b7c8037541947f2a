"""Pictures in MNIST's format, IDX."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.learning.data import files
from fedsim.learning.data.csv_file import read_bytes
from fedsim.learning.data.dataset import Dataset, Records, Source
from fedsim.learning.data.dealing import numbered_labels

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

FOLDERS = (".", "raw")
"""Folders of the files, within the folder that the user names."""


def read(source: Source) -> Dataset:
    """Return images [1, H, W] in [0, 1] from the user's IDX files with MNIST's names.

    The test files may be missing. Classes are 0 to the largest label.

    Raises InputError if a file is missing or damaged, or files do not belong together.
    """
    tested = None not in files.look_up(source.path, TEST[:1], FOLDERS)
    return dataset(source.name, files.find(source, TRAIN + TEST * tested, FOLDERS))


def present(root: Path) -> list[Path]:
    """Return the files of training images and labels in a folder; [] if there are no images."""
    if None in files.look_up(root, TRAIN[:1], FOLDERS):
        return []
    return files.find(Source("own", str(root)), TRAIN, FOLDERS)


def dataset(name: str, paths: list[Path]) -> Dataset:
    """Return the dataset of files with images and labels, for training and maybe for tests."""
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
