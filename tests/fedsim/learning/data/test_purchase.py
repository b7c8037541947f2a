"""Purchase-100 in its authors' two formats. The records here are random: they are not Purchase."""

import gzip

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load, public_tables

ROWS = 200
ARCHIVE = "shokri_purchases_100_classes.npz"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(public_tables, "ROWS", ROWS)


@pytest.fixture
def bits():
    return np.random.default_rng(0).integers(0, 2, (ROWS, 600), dtype=np.uint8)


@pytest.fixture
def clusters():
    return np.random.default_rng(1).permutation(np.arange(ROWS) % 100)


def text(bits, clusters):
    lines = (
        ",".join(map(str, [label, *row])) for row, label in zip(bits, clusters + 1, strict=True)
    )
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("form", ["text", "gzip", "numbers", "from 1", "one-hot"])
def test_every_form_of_the_file_gives_the_same_records(tmp_path, bits, clusters, form):
    if form == "text":
        (tmp_path / "dataset_purchase").write_bytes(text(bits, clusters))
    elif form == "gzip":
        (tmp_path / "dataset_purchase.gz").write_bytes(gzip.compress(text(bits, clusters)))
    else:
        one_hot = np.eye(100)[clusters]
        labels = {"numbers": clusters, "from 1": clusters + 1, "one-hot": one_hot}[form]
        np.savez(tmp_path / ARCHIVE, features=bits.astype(np.float64), labels=labels)
    dataset = load("purchase-100", str(tmp_path))
    np.testing.assert_array_equal(dataset.train.features, bits)
    np.testing.assert_array_equal(dataset.train.labels, clusters)
    assert (dataset.test, dataset.classes, dataset.kind) == (None, 100, "tabular")
    assert dataset.attributes == tuple(dataset.columns)
    assert dataset.categorical == set(dataset.columns)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"1,0,1\n", r"\(1, 2\) features and \(1,\) labels instead of \(200, 600\)"),
        (b"1,0,1\n2,0\n", "number of columns changed"),
        (b"label,a,b\n", "could not convert"),
    ],
    ids=["truncated", "ragged", "header"],
)
def test_a_wrong_text_file_is_refused_by_name(tmp_path, content, complaint):
    (tmp_path / "dataset_purchase").write_bytes(content)
    with pytest.raises(
        InputError, match=rf"dataset_purchase' is damaged or not the original Purch.*{complaint}"
    ):
        load("purchase-100", str(tmp_path))


def test_a_damaged_packed_file_is_refused_by_name(tmp_path, bits, clusters):
    packed = bytearray(gzip.compress(text(bits, clusters)))
    packed[10:200] = b"\xff" * 190
    (tmp_path / "dataset_purchase.gz").write_bytes(packed)
    with pytest.raises(InputError, match=r"purchase.gz' is damaged or .* .Error -3 while"):
        load("purchase-100", str(tmp_path))


def test_a_wrong_archive_is_refused_by_name(tmp_path, bits, clusters):
    cases = {
        "not all 0 or 1": {"features": bits + 1, "labels": clusters},
        "not 100 numbers from 0 or 1": {"features": bits, "labels": clusters + 2},
        "no features or no labels": {"x": bits},
        "its labels <U2, not numbers": {"features": bits, "labels": clusters.astype("U2")},
        "its labels <U1, not numbers": {"features": bits, "labels": np.full(ROWS, "x")},
        "its features are <U1 and": {"features": bits.astype("U1"), "labels": clusters},
        "not 100 numbers": {"features": bits, "labels": np.full(ROWS, np.nan)},
        "are not 100 numbers": {"features": bits, "labels": clusters + 0.5},
        r"\(199,\) labels instead": {"features": bits, "labels": clusters[1:]},
    }
    for number, (complaint, arrays) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        np.savez(folder / ARCHIVE, **arrays)
        with pytest.raises(InputError, match=rf"{ARCHIVE}' is damaged.*{complaint}"):
            load("purchase-100", str(folder))


def test_a_folder_without_either_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"'dataset_purchase'.*is not in"):
        load("purchase-100", str(tmp_path))
