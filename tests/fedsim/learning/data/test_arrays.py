"""Arrays of the user's own: shapes, ranges and labels are checked, objects refused."""

import io
import re
import zipfile

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load

LABELS = np.array([1, 0, 1, 0])
RNG = np.random.default_rng(0)


def saved(folder, **arrays):
    np.savez(folder / "own.npz", **arrays)
    return load("npz", str(folder / "own.npz"))


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((4, 5, 7), 0), ((4, 1, 5, 7), 1), ((4, 3, 5, 7), 1), ((4, 5, 7, 3), 3)],
    ids=["grey", "one channel", "colour", "colour last"],
)
def test_bytes_are_images_between_0_and_1(tmp_path, shape, channels):
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    dataset = saved(tmp_path, features=pixels, labels=LABELS)
    read = np.moveaxis(pixels if channels else pixels[..., None], channels or -1, 1)
    np.testing.assert_array_equal(dataset.train.features, read / np.float32(255))
    np.testing.assert_array_equal(dataset.train.labels, LABELS)
    assert (dataset.kind, dataset.classes, dataset.test) == ("image", 2, None)
    assert (dataset.attributes, len(dataset.column_of)) == ((), 0)


def test_numbers_between_0_and_1_are_images_as_they_are(tmp_path):
    images = RNG.random((4, 5, 7))
    dataset = saved(tmp_path, features=images, labels=LABELS)
    np.testing.assert_array_equal(dataset.train.features[:, 0], images.astype(np.float32))


def test_a_table_is_taken_as_it_is_and_other_arrays_are_columns(tmp_path):
    table = np.array([[0.5, -3], [0.25, 7], [0, 0], [1, 2]])
    people = np.array(["eve", "bob", "eve", "amy"])
    dataset = saved(tmp_path, features=table, labels=LABELS, person=people, age=np.arange(4))
    np.testing.assert_array_equal(dataset.train.features, table.astype(np.float32))
    assert dataset.attributes == ("x0", "x1")
    assert list(dataset.columns) == ["x0", "x1", "person", "age"]
    np.testing.assert_array_equal(dataset.column_of, [0, 1])
    np.testing.assert_array_equal(dataset.columns["x1"], table[:, 1])
    np.testing.assert_array_equal(dataset.columns["person"], people)
    assert dataset.categorical == {"person"}


@pytest.mark.parametrize(
    "labels",
    [np.array(["no", "maybe", "yes", "no"]), np.array([7, 2, 9, 7]), np.eye(3)[[1, 0, 2, 1]]],
    ids=["text", "numbers", "one-hot"],
)
def test_classes_are_the_different_labels_in_order(tmp_path, labels):
    dataset = saved(tmp_path, features=RNG.random((4, 2)), labels=labels)
    np.testing.assert_array_equal(dataset.train.labels, [1, 0, 2, 1])
    assert dataset.classes == 3


TABLE = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"features": TABLE}, "has no array 'labels'; save"),
        ({"features": TABLE, "labels": LABELS[:3]}, "labels of .* have shape (3,)"),
        ({"features": TABLE, "labels": np.zeros(4, int)}, "has 1 different values for 4 records"),
        ({"features": TABLE, "labels": np.arange(4) / 2}, "labels of .* are float64"),
        ({"features": TABLE, "labels": LABELS, "who": np.zeros(3)}, "who of .* shape (3,)"),
        ({"features": TABLE, "labels": LABELS, "x1": LABELS}, "'x1' of .* name of a feature"),
        ({"features": np.zeros(4), "labels": LABELS}, "float64 (4,); give numbers [N, F]"),
        ({"features": np.array(["a"] * 4), "labels": LABELS}, "features of .* are <U1 (4,)"),
        (
            {"features": TABLE + np.array([np.nan, 0]), "labels": LABELS},
            "record 0 .* not a finite number",
        ),
        ({"features": TABLE - np.inf, "labels": LABELS}, "record 0 .* not a finite number"),
        ({"features": TABLE + 1e300, "labels": LABELS}, "record 0 .* not a finite number"),
        ({"features": np.full((4, 2, 2), 2.0), "labels": LABELS}, "lie between 2 and 2; give"),
        ({"features": np.zeros((4, 5, 6, 7)), "labels": LABELS}, "have 7 channels; give 1"),
        ({"features": np.array([object()] * 4), "labels": LABELS}, "no .npz of plain arrays"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(tmp_path, arrays, complaint):
    pattern = re.escape(complaint).replace(r"\.\*", ".*")
    with pytest.raises(InputError, match=pattern) as refusal:
        saved(tmp_path, **arrays)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 cut off", b"no archive at all"], ids=["empty", "cut", "other"]
)
def test_a_file_that_is_no_archive_is_refused_by_name(tmp_path, content):
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"own.npz' is damaged, or no .npz of plain arrays"):
        load("npz", str(path))


@pytest.mark.parametrize("length", [2**52, 2**70], ids=["memory", "overflow"])
def test_a_header_that_claims_more_than_there_can_be_is_refused(tmp_path, length):
    header = io.BytesIO()
    said = {"descr": "|u1", "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, said)
    with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
        archive.writestr("features.npy", header.getvalue())
    with pytest.raises(InputError, match=r"own.npz' (is|.* header is) damaged") as refusal:
        load("npz", str(tmp_path / "own.npz"))
    assert "\n" not in str(refusal.value)


def test_a_single_array_is_no_archive(tmp_path):
    np.save(tmp_path / "own.npy", TABLE)
    with pytest.raises(InputError, match="it is a single array"):
        load("npz", str(tmp_path / "own.npy"))
