"""IDX files: MNIST and Fashion-MNIST are the originals or refused, and anybody's are read."""

import gzip
import hashlib
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from adversaries.errors import InputError
from fedsim.learning.data import idx, load
from fedsim.learning.data.idx import read_idx

IMAGES, LABELS = idx.TRAIN
TEST_IMAGES, TEST_LABELS = idx.TEST


def written(array):
    """The IDX file of an array of unsigned bytes, as its format is published."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def small_files(train=12, test=5):
    rng = np.random.default_rng(0)
    files = {}
    for (images, labels), count in ((idx.TRAIN, train), (idx.TEST, test)):
        files[images] = written(rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        files[labels] = written(np.arange(count, dtype=np.uint8) % 10)
    return files


def write(folder, files, *, zipped=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / name).write_bytes(content)


@pytest.fixture
def small_mnist(monkeypatch):
    """Small files that pass for MNIST."""
    files = small_files()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(idx, "MNIST_SHA256", digests)
    return files


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("folder", [".", "raw", "MNIST/raw"])
def test_mnist_is_found_where_its_files_usually_lie(tmp_path, folder, zipped, small_mnist):
    write(tmp_path / folder, small_mnist, zipped=zipped)
    dataset = load("mnist", str(tmp_path))
    assert dataset.test is not None
    assert dataset.train.features.shape == (12, 1, 28, 28)
    assert dataset.test.features.shape == (5, 1, 28, 28)
    assert dataset.train.features.dtype == np.float32
    pixels = np.frombuffer(small_mnist[IMAGES][16:], dtype=np.uint8)
    np.testing.assert_array_equal(
        dataset.train.features.ravel(), pixels.astype(np.float32) / np.float32(255)
    )
    np.testing.assert_array_equal(dataset.train.labels, np.arange(12) % 10)
    assert (dataset.classes, dataset.kind) == (10, "image")


@pytest.mark.parametrize("missing", idx.TRAIN + idx.TEST)
def test_a_missing_mnist_file_is_named_and_the_download_offered(tmp_path, missing):
    files = small_files()
    del files[missing]
    write(tmp_path, files)
    with pytest.raises(InputError) as refusal:
        load("mnist", str(tmp_path))
    complaint = str(refusal.value)
    assert (
        f"'{missing}' or '{missing}.gz' is not in '{tmp_path}', its raw/, its MNIST/" in complaint
    )
    assert "data.root=PATH" in complaint
    assert "data.download=true" in complaint


@pytest.mark.parametrize("changed", idx.TRAIN + idx.TEST)
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_a_file_that_is_not_mnists_is_refused_by_name(tmp_path, small_mnist, changed, zipped):
    content = bytearray(small_mnist[changed])
    content[-1] ^= 1
    write(tmp_path, small_mnist | {changed: bytes(content)}, zipped=zipped)
    with pytest.raises(
        InputError,
        match=rf"{changed}(\.gz)?' is damaged or not the original MNIST file {changed} "
        r"\(sha256 .*put the original in its place.*data.name = \"idx\"",
    ):
        load("mnist", str(tmp_path))


@pytest.mark.slow
def test_the_real_mnist(real):
    dataset = load("mnist", str(real("mnist")))
    assert dataset.test is not None
    assert dataset.train.features.shape == (60_000, 1, 28, 28)
    assert dataset.test.features.shape == (10_000, 1, 28, 28)
    assert dataset.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert dataset.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert dataset.train.features.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert (dataset.train.features.min(), dataset.train.features.max()) == (0, 1)


def test_what_is_missing_is_downloaded_only_when_asked(tmp_path, small_mnist, monkeypatch, capsys):
    asked = []

    def torchvisions(root, *, download):
        asked.append((root, download))
        write(Path(root) / "MNIST" / "raw", small_mnist)
        sys.stdout.write("Downloading\n")

    monkeypatch.setattr(datasets, "MNIST", torchvisions)
    root = tmp_path / "absent"
    with pytest.raises(InputError, match=r"there is no folder.*data.download=true"):
        load("mnist", str(root))
    assert not asked
    assert len(load("mnist", str(root), download=True).train) == 12
    assert asked == [(str(root), True)]
    assert capsys.readouterr().out == ""
    # What is there is not fetched again.
    assert len(load("mnist", str(root / "MNIST"), download=True).train) == 12
    assert len(asked) == 1


@pytest.mark.parametrize(
    "error", [RuntimeError("File not found\nor corrupted."), OSError("no route to host")]
)
def test_a_download_that_fails_is_one_line(tmp_path, error, monkeypatch):
    def fail(root, *, download):
        raise error

    monkeypatch.setattr(datasets, "FashionMNIST", fail)
    monkeypatch.setattr(fail, "resources", [], raising=False)
    with pytest.raises(InputError, match=r"cannot download fashion-mnist to '.*' \(.*yourself$"):
        load("fashion-mnist", str(tmp_path), download=True)


@pytest.mark.parametrize("kept", [False, True], ids=["nothing", "a file"])
def test_a_download_that_fails_leaves_no_empty_folders(tmp_path, kept, monkeypatch):
    def fail(root, *, download):
        (Path(root) / "MNIST" / "raw").mkdir(parents=True)
        if kept:
            (Path(root) / "MNIST" / "raw" / LABELS).write_bytes(b"fetched")
        raise RuntimeError("Error downloading")

    monkeypatch.setattr(datasets, "MNIST", fail)
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(InputError, match="cannot download mnist"):
        load("mnist", str(there / "new" / "root"), download=True)
    left = [str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()]
    assert left == ([f"new/root/MNIST/raw/{LABELS}"] if kept else [])
    assert there.is_dir()
    assert (there / "new").exists() == kept


@pytest.mark.slow
def test_the_real_fashion_mnist_whoever_packed_it(real, tmp_path):
    folder = real("fashion-mnist")
    dataset = load("fashion-mnist", str(folder))
    assert dataset.test is not None
    assert np.bincount(dataset.train.labels).tolist() == [6000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    for path in folder.glob("*.gz"):
        packed = gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1, mtime=1)
        assert packed != path.read_bytes()
        (tmp_path / path.name).write_bytes(packed)
    assert load("fashion-mnist", str(tmp_path)).train.labels[:3].tolist() == [9, 0, 0]


def test_fashion_mnist_is_not_mnist(tmp_path, small_mnist):
    write(tmp_path, small_mnist, zipped=True)
    with pytest.raises(InputError, match=r"not the original FashionMNIST file train-images"):
        load("fashion-mnist", str(tmp_path))


def test_anybodys_idx_files_are_read_without_a_checksum(tmp_path):
    images = np.arange(4 * 6 * 5, dtype=np.uint8).reshape(4, 6, 5)
    labels = np.array([2, 0, 1, 0], dtype=np.uint8)
    write(tmp_path, {IMAGES: written(images), LABELS: written(labels)}, zipped=True)
    dataset = load("idx", str(tmp_path))
    assert dataset.train.features.shape == (4, 1, 6, 5)
    np.testing.assert_array_equal(dataset.train.features[:, 0], images / np.float32(255))
    np.testing.assert_array_equal(dataset.train.labels, labels)
    assert (dataset.test, dataset.classes) == (None, 3)


def test_anybodys_test_files_are_held_out(tmp_path):
    write(tmp_path, small_files())
    dataset = load("idx", str(tmp_path))
    assert dataset.test is not None
    assert len(dataset.test) == 5
    (tmp_path / TEST_LABELS).unlink()
    with pytest.raises(InputError, match=f"'{TEST_LABELS}'"):
        load("idx", str(tmp_path), label="again")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (IMAGES, small_files()[IMAGES][:-1], "9423 bytes instead of 9424"),
        (IMAGES, small_files()[IMAGES] + b"\0", "9425 bytes instead of 9424"),
        (IMAGES, small_files()[LABELS], "not an IDX file of unsigned bytes in 3 dimensions"),
        (IMAGES, b"\0\0\x0d\x03" + small_files()[IMAGES][4:], "not an IDX file"),
        (IMAGES, small_files()[IMAGES][:10], "not an IDX file"),
        (IMAGES, b"", "not an IDX file"),
        (IMAGES, written(np.zeros((12, 32, 32), dtype=np.uint8)), "are 32×32, but .* are 28×28"),
        (IMAGES, written(np.zeros((12, 0, 0), dtype=np.uint8)), "has no images"),
        (LABELS, written(np.zeros(11, dtype=np.uint8)), "has 11 labels for the 12 images"),
        (LABELS, written(np.zeros(12, dtype=np.uint8)), "the same 'label' for all 12"),
    ],
    ids=[
        "truncated",
        "too long",
        "labels for images",
        "floats",
        "half a header",
        "empty",
        "other size",
        "no pixels",
        "other count",
        "one class",
    ],
)
def test_a_wrong_idx_file_is_refused_by_name(tmp_path, name, content, complaint):
    write(tmp_path, small_files() | {name: content})
    with pytest.raises(InputError, match=rf"{name}'.*{complaint}"):
        load("idx", str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"x" * 1000)[:-9], gzip.compress(b"x")[:12] + b"\xff" * 20],
    ids=["not gzip", "cut off", "corrupt"],
)
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "labels.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"labels.gz' is damaged"):
        read_idx(path, dimensions=1)


def test_an_idx_header_that_promises_more_than_memory_is_only_compared(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1))
    with pytest.raises(InputError, match=f"16 bytes instead of {16 + (2**32 - 1) ** 3}"):
        read_idx(path, dimensions=3)
