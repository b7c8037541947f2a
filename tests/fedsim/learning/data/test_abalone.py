"""Abalone is UCI's one file; a plain count of its rows finds what is in the dataset."""

import csv
import gzip
import hashlib

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load, public_tables

DATA = b"""\
M,0.4,0.3,0.1,0.5,0.2,0.1,0.15,10
F,0.6,0.4,0.2,0.7,0.3,0.2,0.25,9
I,0.5,0.5,0.3,0.9,0.4,0.3,0.35,4
"""


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_rings_are_the_class_and_no_feature(tmp_path, monkeypatch, zipped):
    digest = hashlib.sha256(DATA).hexdigest()
    monkeypatch.setattr(public_tables, "ABALONE_SHA256", {"abalone.data": digest})
    path = tmp_path / ("abalone.data.gz" if zipped else "abalone.data")
    path.write_bytes(gzip.compress(DATA) if zipped else DATA)
    dataset = load("abalone", str(tmp_path))
    # Nine rings are not more than nine.
    assert dataset.train.labels.tolist() == [1, 0, 0]
    named = dict(zip(dataset.attributes, dataset.train.features.T, strict=True))
    assert list(named)[:4] == ["sex=F", "sex=I", "sex=M", "length"]
    assert "rings" not in named
    np.testing.assert_allclose(named["length"], [0, 1, 0.5], atol=1e-6)
    np.testing.assert_array_equal(named["sex=M"], [1, 0, 0])


def test_a_changed_or_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"'abalone.data' or 'abalone.data.gz' is not in"):
        load("abalone", str(tmp_path))
    (tmp_path / "abalone.data").write_bytes(DATA)
    with pytest.raises(InputError, match="not the original Abalone file"):
        load("abalone", str(tmp_path))


def test_the_real_abalone_has_its_snails(real):
    folder = real("abalone")
    with (folder / "abalone.data").open() as file:
        counted = list(csv.reader(file))
    dataset = load("abalone", str(folder))
    assert dataset.train.features.shape == (4177, 10)
    assert dataset.train.labels.sum() == sum(int(row[-1]) > 9 for row in counted) == 2081
    np.testing.assert_array_equal(dataset.train.features[:, :3].sum(axis=1), np.ones(4177))
    np.testing.assert_array_equal(dataset.train.features.max(axis=0), np.ones(10))
