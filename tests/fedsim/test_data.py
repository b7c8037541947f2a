"""Datasets are the originals, whole or refused; D, pool and held-out records are disjoint."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits

from fedsim.data import Dataset, Records, Split, load, read_idx, split
from fedsim.errors import InputError

REAL_MNIST = Path(__file__).parents[2].parent / "shared" / "data" / "mnist"


def idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of unsigned bytes, as its format is published."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist_files() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    files = {}
    for part, count in (("train", 12), ("t10k", 5)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        files[f"{part}-images-idx3-ubyte"] = idx(images)
        files[f"{part}-labels-idx1-ubyte"] = idx(np.arange(count, dtype=np.uint8) % 10)
    return files


def write(folder: Path, files: dict[str, bytes], *, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def numbered(train: int, test: int | None = None) -> Dataset:
    """Records whose only feature is their position; those of the test part are negative."""

    def records(values: np.ndarray) -> Records:
        return Records(values[:, None].astype(np.float32), np.zeros(len(values), dtype=np.int64))

    held_out = None if test is None else records(-1 - np.arange(test))
    return Dataset("numbered", records(np.arange(train)), held_out, 1, "tabular")


def positions(records: Records) -> list[int]:
    return [int(value) for value in records.features[:, 0]]


def test_digits_are_scikit_learns_images_between_0_and_1() -> None:
    dataset = load("digits")
    images, labels = load_digits(return_X_y=True)
    assert dataset.train.features.shape == (1797, 1, 8, 8)
    assert dataset.train.features.dtype == np.float32
    assert dataset.train.labels.dtype == np.int64
    np.testing.assert_array_equal(dataset.train.features.reshape(1797, 64) * 16, images)
    np.testing.assert_array_equal(dataset.train.labels, labels)
    assert (dataset.test, dataset.classes, dataset.kind) == (None, 10, "image")


def test_every_feature_of_breast_cancer_spans_0_to_1() -> None:
    dataset = load("breast-cancer")
    values, labels = load_breast_cancer(return_X_y=True)
    assert dataset.train.features.shape == (569, 30)
    np.testing.assert_array_equal(dataset.train.features.min(axis=0), np.zeros(30))
    np.testing.assert_array_equal(dataset.train.features.max(axis=0), np.ones(30))
    np.testing.assert_array_equal(
        dataset.train.features.argsort(axis=0)[-1], values.argsort(axis=0)[-1]
    )
    np.testing.assert_array_equal(dataset.train.labels, labels)
    assert (dataset.test, dataset.classes, dataset.kind) == (None, 2, "tabular")


def test_a_dataset_is_loaded_once_and_cannot_be_changed() -> None:
    dataset = load("digits")
    assert load("digits") is dataset
    with pytest.raises(ValueError, match="read-only"):
        dataset.train.features[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        dataset.train.labels[0] = 0


def test_an_unknown_dataset_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"data.name is 'minst'.*did you mean 'mnist'"):
        load("minst")
    with pytest.raises(InputError, match="there are digits, breast-cancer, mnist"):
        load("zzz")


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("folder", [".", "raw", "MNIST/raw"])
def test_mnist_is_found_where_its_files_usually_lie(
    tmp_path: Path, folder: str, zipped: bool
) -> None:
    files = mnist_files()
    write(tmp_path / folder, files, zipped=zipped)
    dataset = load("mnist", str(tmp_path))
    assert dataset.test is not None
    assert dataset.train.features.shape == (12, 1, 28, 28)
    assert dataset.test.features.shape == (5, 1, 28, 28)
    assert dataset.train.features.dtype == np.float32
    pixels = np.frombuffer(files["train-images-idx3-ubyte"][16:], dtype=np.uint8)
    np.testing.assert_array_equal(
        dataset.train.features.ravel(), pixels.astype(np.float32) / np.float32(255)
    )
    np.testing.assert_array_equal(dataset.train.labels, np.arange(12) % 10)
    assert (dataset.classes, dataset.kind) == (10, "image")


def test_mnist_without_a_folder_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--set data\.root=PATH"):
        load("mnist")
    with pytest.raises(InputError, match=r"no folder '.*absent'.*--set data.root=PATH"):
        load("mnist", str(tmp_path / "absent"))


@pytest.mark.parametrize("missing", sorted(mnist_files()))
def test_a_missing_mnist_file_is_named(tmp_path: Path, missing: str) -> None:
    files = mnist_files()
    del files[missing]
    write(tmp_path, files)
    with pytest.raises(InputError, match=rf"'{missing}'.*--set data.root=PATH"):
        load("mnist", str(tmp_path))


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (IMAGES, mnist_files()[IMAGES][:-1], "9423 bytes instead of 9424"),
        (IMAGES, mnist_files()[IMAGES] + b"\0", "9425 bytes instead of 9424"),
        (IMAGES, mnist_files()[LABELS], "not an IDX file of unsigned bytes in 3 dimensions"),
        (IMAGES, b"\0\0\x0d\x03" + mnist_files()[IMAGES][4:], "not an IDX file"),
        (IMAGES, mnist_files()[IMAGES][:10], "not an IDX file"),
        (IMAGES, b"", "not an IDX file"),
        (IMAGES, idx(np.zeros((12, 32, 32), dtype=np.uint8)), r"\(32, 32\), not 28x28"),
        (LABELS, idx(np.zeros(11, dtype=np.uint8)), "11 labels up to 0 do not fit 12 digits"),
        (LABELS, idx(np.full(12, 10, dtype=np.uint8)), "12 labels up to 10 do not fit"),
    ],
    ids=[
        "truncated",
        "too long",
        "labels for images",
        "floats",
        "half a header",
        "empty",
        "other size",
        "other count",
        "other classes",
    ],
)
def test_a_wrong_mnist_file_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    write(tmp_path, mnist_files() | {name: content})
    with pytest.raises(InputError, match=rf"{name}' is damaged or not MNIST.*{complaint}"):
        load("mnist", str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"x" * 1000)[:-9], gzip.compress(b"x")[:12] + b"\xff" * 20],
    ids=["not gzip", "cut off", "corrupt"],
)
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"labels.gz' is damaged"):
        read_idx(path, dimensions=1)


def test_an_idx_header_that_promises_more_than_memory_is_only_compared(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1))
    with pytest.raises(InputError, match=f"16 bytes instead of {16 + (2**32 - 1) ** 3}"):
        read_idx(path, dimensions=3)


@pytest.mark.skipif(not REAL_MNIST.is_dir(), reason="../shared/data/mnist is not there")
def test_the_real_mnist() -> None:
    dataset = load("mnist", str(REAL_MNIST))
    assert dataset.test is not None
    assert dataset.train.features.shape == (60_000, 1, 28, 28)
    assert dataset.test.features.shape == (10_000, 1, 28, 28)
    assert dataset.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert dataset.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert dataset.train.features.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert (dataset.train.features.min(), dataset.train.features.max()) == (0, 1)


sizes = st.integers(0, 40)


@settings(deadline=None)
@given(records=sizes, held_out=sizes, pool=sizes, spare=sizes, seed=st.integers(0, 2**64 - 1))
def test_members_pool_and_held_out_never_overlap(
    records: int, held_out: int, pool: int, spare: int, seed: int
) -> None:
    dataset = numbered(records + held_out + spare)
    parts = split(dataset, records, held_out, pool, seed)
    everyone = [*parts.members, *parts.pool, *parts.held_out]
    assert len(set(everyone)) == len(everyone)
    assert set(everyone) <= set(range(len(dataset.train)))
    assert len(parts.members) == records
    assert len(parts.held_out) == held_out
    assert len(parts.pool) == (min(pool, spare) if pool else spare)


def test_the_held_out_records_are_the_authors_test_records() -> None:
    parts = split(numbered(20, test=7), records=20, held_out=7, pool=0, seed=1)
    assert sorted(positions(parts.members_records)) == list(range(20))
    assert sorted(positions(parts.held_out_records)) == list(range(-7, 0))
    assert len(parts.pool) == 0


def test_records_are_those_at_the_indices_in_their_order() -> None:
    parts = split(numbered(30), records=10, held_out=5, pool=8, seed=2)
    assert positions(parts.members_records) == parts.members.tolist()
    assert positions(parts.pool_records) == parts.pool.tolist()
    assert positions(parts.held_out_records) == parts.held_out.tolist()
    assert parts.members.dtype == parts.pool.dtype == parts.held_out.dtype == np.int64


def test_a_split_is_a_function_of_the_seed_alone() -> None:
    def members(seed: int) -> Split:
        return split(numbered(50), records=20, held_out=10, pool=15, seed=seed)

    again, other = members(3), members(4)
    for part in ("members", "pool", "held_out"):
        np.testing.assert_array_equal(getattr(members(3), part), getattr(again, part))
        assert set(getattr(again, part)) != set(getattr(other, part))


def test_the_pool_and_the_held_out_records_do_not_change_who_is_a_member() -> None:
    few = split(numbered(50), records=20, held_out=1, pool=1, seed=5)
    many = split(numbered(50), records=20, held_out=10, pool=0, seed=5)
    np.testing.assert_array_equal(few.members, many.members)
    assert many.pool[0] == few.pool[0]


@pytest.mark.parametrize(
    ("dataset", "records", "held_out", "numbers"),
    [
        (numbered(10), 8, 3, "10 records.*data.records = 8.*data.held-out = 3"),
        (numbered(10, test=2), 11, 1, "10 training and 2 test.*data.records = 11"),
        (numbered(10, test=2), 1, 3, "10 training and 2 test.*data.held-out = 3"),
    ],
)
def test_too_few_records_are_refused_with_the_numbers(
    dataset: Dataset, records: int, held_out: int, numbers: str
) -> None:
    with pytest.raises(InputError, match=numbers):
        split(dataset, records, held_out, pool=0, seed=0)
