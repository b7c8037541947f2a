"""Data sets of Hugging Face are read from a directory, and no address in them is followed."""

import os

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load

datasets = pytest.importorskip("datasets")
image = pytest.importorskip("PIL.Image")

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 8, 6), dtype=np.uint8)
WRITERS = [f"writer {number % 4}" for number in range(12)]
DIGITS = [number % 3 for number in range(12)]


def _pictures():
    features = {
        "image": datasets.Image(),
        "writer": datasets.Value("string"),
        "digit": datasets.ClassLabel(num_classes=3),
    }
    columns = {"image": [image.fromarray(one) for one in PIXELS], "writer": WRITERS}
    return datasets.Dataset.from_dict(columns | {"digit": DIGITS}, datasets.Features(features))


def _saved(data, path):
    data.save_to_disk(str(path))
    return path


@pytest.mark.parametrize("kind", ["one split", "several", "parquet"])
def test_pictures_with_their_labels_and_who_drew_them(tmp_path, kind):
    path, made = tmp_path / "data", _pictures()
    if kind == "parquet":
        path.mkdir()
        made.to_parquet(path / "train-00000-of-00001.parquet")
        made.select(range(2)).to_parquet(path / "test-00000-of-00001.parquet")
    else:
        splits = datasets.DatasetDict(test=made.select(range(2)), train=made)
        _saved(made if kind == "one split" else splits, path)
    found = load("hf", str(path), label="digit")
    np.testing.assert_array_equal(found.train.features, np.float32(PIXELS / 255)[:, None])
    assert found.train.labels.tolist() == DIGITS
    assert found.columns["writer"].tolist() == WRITERS
    assert found.kind == "image"


def test_a_table_is_what_its_csv_would_be(tmp_path):
    rows = {"age": [20, 35, None] * 20, "job": ["a", "b", "a"] * 20, "label": [0, 1, 0] * 20}
    text = "age,job,label\n" + "20,a,0\n35,b,1\n,a,0\n" * 20
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    path = _saved(datasets.Dataset.from_dict(rows), tmp_path / "table")
    ours = load("hf", str(path))
    theirs = load("csv", str(tmp_path / "table.csv"))
    np.testing.assert_array_equal(ours.train.features, theirs.train.features)
    expected = ("age", "age=missing", "job=a", "job=b", "job=other")
    assert ours.attributes == theirs.attributes == expected


def test_lists_of_numbers_are_a_table_and_lists_of_lists_images(tmp_path):
    numbers = np.random.default_rng(1).random((4, 5, 5))
    label = [0, 1, 0, 1]
    flat = datasets.Dataset.from_dict({"x": numbers[:, 0].tolist(), "label": label})
    found = load("hf", str(_saved(flat, tmp_path / "flat")))
    np.testing.assert_array_equal(found.train.features, numbers[:, 0].astype(np.float32))
    deep = datasets.Dataset.from_dict({"x": numbers.tolist(), "label": label})
    assert load("hf", str(_saved(deep, tmp_path / "deep"))).train.features.shape == (4, 1, 5, 5)


def test_a_picture_that_is_only_a_path_is_not_looked_for(tmp_path):
    elsewhere = tmp_path / "secret.png"
    image.fromarray(PIXELS[0]).save(elsewhere)
    kind = datasets.Features(
        {
            "image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
            "label": datasets.Value("int64"),
        }
    )
    stored = [{"bytes": None, "path": str(elsewhere)}] * 2
    plain = datasets.Dataset.from_dict({"image": stored, "label": [0, 1]}, kind)
    path = tmp_path / "data"
    path.mkdir()
    plain.cast_column("image", datasets.Image(decode=False)).to_parquet(path / "train.parquet")
    with pytest.raises(InputError, match="image of record 0 is not in the file"):
        load("hf", str(path))


@pytest.mark.parametrize(
    ("label", "exclude", "said"),
    [
        ("label", "", "data.label names 'label', .* its columns are image, writer, digit"),
        ("digit", "colour", "data.exclude names 'colour'"),
        ("image", "", "data.label names 'image', which is no such column"),
    ],
)
def test_columns_that_are_not_there_are_named(tmp_path, label, exclude, said):
    path = _saved(_pictures(), tmp_path / "data")
    with pytest.raises(InputError, match=said):
        load("hf", str(path), label=label, exclude=exclude)


def test_a_folder_without_a_data_set_says_how_to_have_one(tmp_path):
    with pytest.raises(InputError, match="neither a data set that save_to_disk wrote nor Parquet"):
        load("hf", str(tmp_path))
    (tmp_path / "train.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match="is damaged, or no Hugging Face data set"):
        load("hf", str(tmp_path), label="other")


def test_a_pipe_in_the_folder_is_refused_before_anything_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "train.parquet")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        load("hf", str(tmp_path))


def test_columns_may_have_the_names_of_arrays(tmp_path):
    """A label of another name, beside columns "labels" and "features", is still the label."""
    columns = {
        "x": [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]],
        "labels": [5, 6, 7],
        "features": [8, 9, 10],
        "y": [1, 0, 1],
    }
    found = load(
        "hf", str(_saved(datasets.Dataset.from_dict(columns), tmp_path / "data")), label="y"
    )
    assert found.train.labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(found.train.features, columns["x"])
    assert found.columns["labels"].tolist() == [5, 6, 7]
