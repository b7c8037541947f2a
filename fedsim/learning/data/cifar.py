"""CIFAR-10 in torchvision's pickles, which are parsed for their bytes and never executed."""

import pickletools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedsim.learning.data import originals
from fedsim.learning.data.dataset import Dataset, Records, Source

SHAPE = (3, 32, 32)
PLACES = (".", "cifar-10-batches-py")
STRINGS = ("SHORT_BINSTRING", "BINSTRING")


def read(source: Source) -> Dataset:
    """Return CIFAR-10: 50,000 and 10,000 images [3, 32, 32] in [0, 1].

    Raises InputError if a file is missing or not the original. Source: Krizhevsky, 2009.
    """
    from torchvision.datasets import CIFAR10, utils  # noqa: PLC0415  (slow to import)

    def fetch(root: Path) -> object:
        return utils.download_and_extract_archive(
            CIFAR10.url, str(root), filename=CIFAR10.filename, md5=CIFAR10.tgz_md5
        )

    sums = dict((*CIFAR10.train_list, *CIFAR10.test_list))
    paths = originals.find(source, list(sums), PLACES, fetch)
    batches = [_batch(path, md5) for path, md5 in zip(paths, sums.values(), strict=True)]
    return Dataset(source.name, _joined(batches[:-1]), batches[-1], 10, "image")


def _batch(path: Path, md5: str) -> Records:
    content = originals.read_original(path, f"CIFAR-10 file {path.name}", md5, "npz", "md5")
    pixels, labels = operands(content)
    images = np.frombuffer(pixels, dtype=np.uint8).reshape(-1, *SHAPE)
    return Records(np.divide(images, 255, dtype=np.float32), labels.astype(np.int64))


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


def _joined(batches: list[Records]) -> Records:
    return Records(
        np.concatenate([batch.features for batch in batches]),
        np.concatenate([batch.labels for batch in batches]),
    )
