"""CIFAR-10 is read from torchvision's version, and no pickle is executed."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets
from torchvision.datasets import utils

from adversaries.errors import InputError
from fedsim.learning.data import load
from fedsim.learning.data.cifar import operands

EACH = 2
COUNT = 10 * EACH
PARTS = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def batch(number):
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (COUNT, 3072), dtype=np.uint8)
    return pixels, rng.permutation(np.arange(COUNT) % 10).astype(np.uint8)


def short(text):
    return b"U" + bytes([len(text)]) + text


def pickled(number):
    """A batch as Python 2's cPickle wrote it with protocol 2: strings are bytes, ints have one."""
    pixels, labels = batch(number)
    content = pixels.tobytes()
    return b"".join(
        [
            b"\x80\x02}q\x01(",
            short(b"batch_label") + b"q\x02" + short(b"training batch 1 of 5") + b"q\x03",
            short(b"labels") + b"q\x04]q\x05(" + b"".join(b"K" + bytes([n]) for n in labels) + b"e",
            short(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07",
            b"cnumpy\nndarray\nq\x08K\x00\x85" + short(b"b") + b"\x87Rq\x09(K\x01",
            b"M" + struct.pack("<H", COUNT) + b"M\x00\x0c\x86cnumpy\ndtype\nq\x0a",
            short(b"u1") + b"K\x00K\x01\x87Rq\x0b(K\x03" + short(b"|"),
            b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<I", len(content)) + content + b"tb",
            short(b"filenames") + b"q\x0c](" + short(b"leptodactylus.png") + b"eu.",
        ]
    )


def expected():
    batches = [batch(number) for number in range(6)]
    pixels = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, 32, 32)
    return pixels / np.float32(255), np.concatenate([labels for _, labels in batches])


def write_python_version(folder, monkeypatch):
    folder.mkdir(parents=True)
    sums = []
    for number, part in enumerate(PARTS):
        content = pickled(number)
        (folder / part).write_bytes(content)
        sums.append([part, hashlib.md5(content).hexdigest()])
    monkeypatch.setattr(datasets.CIFAR10, "train_list", sums[:-1])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", sums[-1:])


def check(root):
    dataset = load("cifar-10", str(root))
    images, labels = expected()
    assert dataset.test is not None
    np.testing.assert_array_equal(dataset.train.features, images[: 5 * COUNT])
    np.testing.assert_array_equal(dataset.train.labels, labels[: 5 * COUNT])
    np.testing.assert_array_equal(dataset.test.features, images[5 * COUNT :])
    np.testing.assert_array_equal(dataset.test.labels, labels[5 * COUNT :])
    assert (dataset.classes, dataset.kind) == (10, "image")


@pytest.mark.parametrize("folder", ["own", "own/cifar-10-batches-py"])
def test_torchvisions_version(tmp_path, folder, monkeypatch):
    write_python_version(tmp_path / folder, monkeypatch)
    check(tmp_path / "own")


def test_no_instruction_of_a_pickle_is_executed(tmp_path):
    evidence = tmp_path / "executed"
    command = f"cos\nsystem\n(S'touch {evidence}'\ntR.".encode()
    assert operands(b"\x80\x02" + command) == (b"", pytest.approx([]))
    assert not evidence.exists()


def test_a_file_of_torchvisions_version_that_is_another_is_refused_by_name(tmp_path, monkeypatch):
    write_python_version(tmp_path / "own", monkeypatch)
    (tmp_path / "own" / "data_batch_3").write_bytes(pickled(3)[:-1])
    with pytest.raises(
        InputError, match=r"data_batch_3' is damaged or not the original CIFAR-10 file .*\(md5 "
    ):
        load("cifar-10", str(tmp_path / "own"))


def test_it_is_downloaded_as_torchvision_does(tmp_path, monkeypatch):
    asked = []

    def download(url, root, *, filename, md5):
        asked.append((url, filename, md5))
        write_python_version(Path(root) / "cifar-10-batches-py", monkeypatch)

    monkeypatch.setattr(utils, "download_and_extract_archive", download)
    with pytest.raises(InputError, match=r"'data_batch_1' or .* is not in .*data.download=true"):
        load("cifar-10", str(tmp_path))
    # The checksums that the files are held against are read before the download.
    write_python_version(tmp_path / "before", monkeypatch)
    assert len(load("cifar-10", str(tmp_path), download=True).train) == 5 * COUNT
    known = datasets.CIFAR10
    assert asked == [(known.url, known.filename, known.tgz_md5)]
