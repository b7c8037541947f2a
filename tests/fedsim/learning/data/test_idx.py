"""Pictures of the user's own in MNIST's format."""

import gzip
import struct

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load, public
from fedsim.learning.data.csv_file import read_bytes

IMAGES, LABELS = public.TRAIN
TEST_IMAGES, TEST_LABELS = public.TEST


def written(array):
    """The IDX file of an array of unsigned bytes, as its format is published."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def small_files(train=12, test=5):
    rng = np.random.default_rng(0)
    files = {}
    for (images, labels), count in ((public.TRAIN, train), (public.TEST, test)):
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
        (LABELS, written(np.zeros(12, dtype=np.uint8)), "has 1 different values for 12"),
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
        read_bytes(path)


def test_an_idx_header_that_promises_more_than_memory_is_only_compared(tmp_path):
    header = struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    with pytest.raises(InputError, match=f"16 bytes instead of {16 + (2**32 - 1) ** 3}"):
        public.read_idx(tmp_path, header, 3)
