"""Adult is UCI's two files, whole; what a plain count of their rows finds is in the dataset."""

import csv
import gzip
import hashlib
from collections import Counter

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load, public_tables

DATA = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, \
2174, 0, 40, United-States, <=50K
50, Private, 83311, HS-grad, 9, Divorced, Sales, Husband, Black, Female, 0, 10, 13, Peru, >50K
54, ?, 180211, HS-grad, 10, Divorced, ?, Husband, Black, Male, 0, 0, 60, South, >50K

"""
TEST = """\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, Peru, <=50K.

"""


@pytest.fixture
def small(monkeypatch):
    """Small files that pass for Adult."""
    files = {"adult.data": DATA.encode(), "adult.test": TEST.encode()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(public_tables, "ADULT_SHA256", sums)
    return files


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_both_files_are_one_pool_without_missing_values(tmp_path, small, zipped):
    for name, content in small.items():
        path = tmp_path / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
    dataset = load("adult", str(tmp_path))
    assert (len(dataset.train), dataset.test, dataset.dropped) == (3, None, 1)
    np.testing.assert_array_equal(dataset.train.labels, [0, 1, 0])
    assert dataset.columns["age"].tolist() == ["39", "50", "25"]
    assert list(dataset.columns["native-country"]) == ["United-States", "Peru", "Peru"]
    named = dict(zip(dataset.attributes, dataset.train.features.T, strict=True))
    np.testing.assert_allclose(named["age"], [14 / 25, 1, 0], rtol=1e-6)
    np.testing.assert_array_equal(named["workclass=Private"], [0, 1, 1])
    assert "native-country=South" not in named


@pytest.mark.parametrize("name", ["adult.data", "adult.test"])
def test_a_changed_or_missing_file_is_refused_by_name(tmp_path, small, name):
    for file, content in small.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / name).write_bytes(small[name].replace(b"Peru", b"Fiji"))
    with pytest.raises(InputError, match=rf"{name}' is damaged or not the original Adult file"):
        load("adult", str(tmp_path))
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=rf"'{name}' or '{name}.gz' is not in '{tmp_path}'"):
        load("adult", str(tmp_path))


@pytest.fixture
def counted(real):
    """The rows without missing values, as plain Python reads them."""
    kept = []
    for name in ("adult.data.gz", "adult.test.gz"):
        with gzip.open(real("adult") / name, "rt") as file:
            kept += [row for row in csv.reader(file, skipinitialspace=True) if len(row) == 15]
    return [row for row in kept if "?" not in row]


@pytest.mark.slow
def test_the_real_adult_has_the_papers_records_and_features(real, counted):
    dataset = load("adult", str(real("adult")))
    assert dataset.train.features.shape == (45_222, 104)
    assert len(counted) == 45_222
    assert (dataset.classes, dataset.dropped, dataset.test) == (2, 48_842 - 45_222, None)
    assert dataset.train.labels.sum() == sum(row[-1].startswith(">50K") for row in counted)
    assert dataset.train.labels.sum() == 11_208
    numeric = [name for name in dataset.columns if name not in dataset.categorical]
    assert numeric == [
        *("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
    ]
    for position, (name, values) in enumerate(dataset.columns.items()):
        column = [row[position] for row in counted]
        features = dataset.train.features[:, dataset.column_of == position]
        assert values.tolist() == column
        if name in dataset.categorical:
            ones = dict(sorted(Counter(column).items()))
            assert features.sum(axis=0).tolist() == list(ones.values())
            places = np.flatnonzero(dataset.column_of == position)
            assert [dataset.attributes[place] for place in places] == [f"{name}={o}" for o in ones]
        else:
            low, high = min(map(int, column)), max(map(int, column))
            scaled = [(int(value) - low) / (high - low) for value in column]
            np.testing.assert_allclose(features[:, 0], scaled, atol=1e-7)


def test_each_of_the_real_people_has_one_value_in_every_column(real):
    dataset = load("adult", str(real("adult")))
    for position, name in enumerate(dataset.columns):
        if name in dataset.categorical:
            hot = dataset.train.features[:, dataset.column_of == position]
            np.testing.assert_array_equal(hot.sum(axis=1), np.ones(45_222))
            assert set(np.unique(hot)) == {0, 1}
