"""Datasets are found by name, loaded once and never changed."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from adversaries import registry
from adversaries.errors import InputError
from fedsim.configuration import from_run_config
from fedsim.learning.data import DATASETS, Dataset, Records, distribution, load

READ_FROM_FILES = sorted(set(DATASETS) - {"digits", "breast-cancer"})


def test_digits_are_scikit_learns_images_between_0_and_1():
    dataset = load("digits")
    images, labels = load_digits(return_X_y=True)
    assert dataset.train.features.shape == (1797, 1, 8, 8)
    assert dataset.train.features.dtype == np.float32
    assert dataset.train.labels.dtype == np.int64
    np.testing.assert_array_equal(dataset.train.features.reshape(1797, 64) * 16, images)
    np.testing.assert_array_equal(dataset.train.labels, labels)
    assert (dataset.test, dataset.classes, dataset.kind) == (None, 10, "image")
    assert (dataset.attributes, dict(dataset.columns), len(dataset.column_of)) == ((), {}, 0)


def test_every_feature_of_breast_cancer_spans_0_to_1():
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


def test_breast_cancer_keeps_its_measurements_as_columns():
    dataset = load("breast-cancer")
    values, _ = load_breast_cancer(return_X_y=True)
    assert dataset.attributes == tuple(dataset.columns)
    assert dataset.attributes[0] == "mean radius"
    np.testing.assert_array_equal(np.stack(list(dataset.columns.values()), axis=1), values)
    np.testing.assert_array_equal(dataset.column_of, np.arange(30))
    assert dataset.categorical == frozenset()


def test_a_dataset_is_loaded_once_and_cannot_be_changed():
    dataset = load("breast-cancer")
    assert load("breast-cancer", "") is dataset
    for array in (
        dataset.train.features,
        dataset.train.labels,
        dataset.columns["mean radius"],
        dataset.column_of,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_an_unknown_dataset_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"data.name is 'minst'.*did you mean 'mnist'"):
        load("minst")
    with pytest.raises(InputError, match=r"give one of digits, breast-cancer, mnist, .*, images"):
        load("zzz")


@pytest.mark.parametrize("name", READ_FROM_FILES)
def test_a_dataset_of_files_says_how_to_name_them(name):
    with pytest.raises(InputError, match=rf"^{name} is read from files.*data\.root=PATH"):
        load(name)
    with pytest.raises(InputError, match=r"there is no (folder|file) '/nowhere/at all'.*data.root"):
        load(name, "/nowhere/at all")


def test_the_configuration_says_what_is_read(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("who,age,town,ill\n1,30,A,yes\n1,31,B,no\n2,50,A,no\n")
    values = {"data.name": "csv", "data.root": str(path), "data.label": "ill"}
    config = from_run_config(values | {"data.exclude": " who, town "})
    assert distribution.dataset(config.data, "").attributes == ("age",)
    assert list(distribution.dataset(config.data, "").columns) == ["who", "age", "town"]


def made(features, labels, classes=2):
    return Dataset("blobs", Records(features, labels), None, classes, "tabular")


ROWS, ZEROS = np.zeros((4, 2), np.float32), np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: (ROWS, ZEROS), "returned a tuple; return a Dataset"),
        (lambda: made(ROWS.tolist(), ZEROS), "given as a list; give arrays"),
        (lambda: made(ROWS.astype(np.float64), ZEROS), "features of type float64; return float32"),
        (lambda: made(ROWS * np.nan, ZEROS), "all finite"),
        (lambda: made(ROWS.copy(), ZEROS.astype(np.int32)), "labels of type int32"),
        (lambda: made(ROWS.copy(), ZEROS[:3].copy()), "one int64 for each of the 4 records"),
        (lambda: made(ROWS.copy(), ZEROS + 2), "labels 2 to 2; return 0 to 1"),
    ],
)
def test_what_a_loader_of_ones_own_returns_is_checked_before_anything_is_computed(
    wrong, says, monkeypatch
):
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(blobs=lambda _: wrong()))
    monkeypatch.setenv(registry.ALLOWED, "mine:blobs")
    with pytest.raises(InputError, match=says):
        load("mine:blobs")
