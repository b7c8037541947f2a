"""CIFAR-10, from its binary version or torchvision's pickles, without running them."""

import pickletools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.learning.data.loaders import originals
from fedsim.learning.data.loaders.dataset import Dataset, Records, Source

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
EACH = 1000
"""Images of each class in the test batch and, on average, in each of the five other batches."""

Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def cifar10(source: Source) -> Dataset:
    """Return CIFAR-10: 50,000 and 10,000 images [3, 32, 32] in [0, 1].

    The binary version has no published checksum: sizes, and images of each class, are checked.

    Raises InputError if a file is missing or not the original. Source: Krizhevsky, 2009.
    """
    from torchvision import datasets  # noqa: PLC0415  (slow to import; has the checksums)
    from torchvision.datasets import utils  # noqa: PLC0415

    published = dict(datasets.CIFAR10.train_list + datasets.CIFAR10.test_list)
    parts = list(published)
    places = (".", "cifar-10-batches-bin")
    if originals.present(source, ["test_batch.bin"], places):
        names = [f"{part}.bin" for part in parts]
        paths = originals.find(source, names, places, endings=("",))
        batches = [_binary(path) for path in paths]
    else:

        def fetch(root: Path) -> object:
            cifar = datasets.CIFAR10
            return utils.download_and_extract_archive(
                cifar.url, str(root), filename=cifar.filename, md5=cifar.tgz_md5
            )

        places = (".", "cifar-10-batches-py")
        paths = originals.find(source, parts, places, fetch, endings=("",))
        batches = [
            _pickled(path, expected)
            for path, expected in zip(paths, published.values(), strict=True)
        ]
    train, test = _records(batches[:-1]), _records(batches[-1:])
    for records, path, each in ((train, paths[0], 5 * EACH), (test, paths[-1], EACH)):
        if np.bincount(records.labels).tolist() != [each] * 10:
            raise InputError(
                f"{originals.not_original(path, 'CIFAR-10 file')}, or a file beside it is: each of "
                f"the ten classes must have {each} images; {originals.remedy('npz')}"
            )
    return Dataset(source.name, train, test, 10, "image")


def _binary(path: Path) -> Batch:
    """Read one batch of the binary version: for each image its label, then its 3,072 bytes."""
    content = np.frombuffer(originals.read_unpacked(path), dtype=np.uint8)
    if len(content) != 10 * EACH * (1 + PIXELS):
        raise InputError(
            f"{originals.not_original(path, 'CIFAR-10 file')}: it has {len(content)} bytes instead "
            f"of {10 * EACH * (1 + PIXELS)}; {originals.remedy('npz')}"
        )
    rows = content.reshape(-1, 1 + PIXELS)
    return rows[:, 1:], rows[:, 0]


def _pickled(path: Path, expected: str) -> Batch:
    """Read one batch of torchvision's folder, after its MD5, without executing it."""
    content = originals.read_unpacked(path)
    originals.check_digest(content, path, f"CIFAR-10 file {path.name}", expected, "npz", "md5")
    pixels, labels = operands(content)
    return np.frombuffer(pixels, dtype=np.uint8).reshape(-1, PIXELS), labels


def operands(content: bytes) -> tuple[bytes, npt.NDArray[np.uint8]]:
    """Return a pickle's longest string, and the small integers that follow "labels", unexecuted.

    Returns: of a batch of CIFAR-10 the pixels, and the labels uint8 [n].
    Raises ValueError otherwise.
    """
    longest, labels, last = "", bytearray(), ""
    for instruction, operand, _ in pickletools.genops(content):
        if instruction.name in STRINGS:
            last = str(operand)
            longest = max(longest, last, key=len)
        elif instruction.name == "BININT1" and last == "labels":
            labels.append(int(str(operand)))
    # Python 2's strings are bytes, which genops returns as Latin-1.
    return longest.encode("latin-1"), np.frombuffer(bytes(labels), dtype=np.uint8)


STRINGS = ("SHORT_BINSTRING", "BINSTRING")


def _records(batches: list[Batch]) -> Records:
    count = sum(len(labels) for _, labels in batches)
    features = np.empty((count, *SHAPE), dtype=np.float32)
    start = 0
    for pixels, _ in batches:
        part = features[start : start + len(pixels)]
        np.divide(pixels.reshape(-1, *SHAPE), 255, out=part, dtype=np.float32)
        start += len(pixels)
    return Records(features, np.concatenate([labels for _, labels in batches]).astype(np.int64))
