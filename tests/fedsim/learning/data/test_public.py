"""Public datasets are their authors' originals or refused; no pickle is executed."""

import csv
import gzip
import hashlib
import struct
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets
from torchvision.datasets import utils

from adversaries.errors import InputError
from fedsim.learning.data import load, public
from tests.fedsim.learning.data.test_idx import IMAGES, small_files, write

ADULT = {
    "adult.data": b"""\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, \
2174, 0, 40, United-States, <=50K
50, Private, 83311, HS-grad, 9, Divorced, Sales, Husband, Black, Female, 0, 10, 13, Peru, >50K
54, ?, 180211, HS-grad, 10, Divorced, ?, Husband, Black, Male, 0, 0, 60, South, >50K

""",
    "adult.test": b"""\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, Peru, <=50K.

""",
}
ABALONE = {
    "abalone.data": b"""\
M,0.4,0.3,0.1,0.5,0.2,0.1,0.15,10
F,0.6,0.4,0.2,0.7,0.3,0.2,0.25,9
I,0.5,0.5,0.3,0.9,0.4,0.3,0.35,4
"""
}
SMALL = {"mnist": small_files(), "adult": ADULT, "abalone": ABALONE}


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
    """Let small files pass for originals, except in tests of the real ones."""
    if "real" in request.fixturenames:
        return
    for name, contents in SMALL.items():
        sums = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
        monkeypatch.setitem(public.ORIGINALS, name, sums)
    monkeypatch.setattr(public, "SHOPPERS", SHOPPERS)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("folder", [".", "raw", "MNIST/raw"])
def test_mnist_is_found_where_its_files_usually_lie(tmp_path, folder, zipped):
    write(tmp_path / folder, SMALL["mnist"], zipped=zipped)
    dataset = load("mnist", str(tmp_path))
    assert dataset.test is not None
    assert dataset.test.features.shape == (5, 1, 28, 28)
    pixels = np.frombuffer(SMALL["mnist"][IMAGES][16:], dtype=np.uint8).reshape(12, 1, 28, 28)
    np.testing.assert_array_equal(dataset.train.features, pixels / np.float32(255))
    np.testing.assert_array_equal(dataset.train.labels, np.arange(12) % 10)
    assert (dataset.classes, dataset.kind) == (10, "image")


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_both_files_of_adult_are_one_pool_without_missing_values(tmp_path, zipped):
    write(tmp_path, ADULT, zipped=zipped)
    dataset = load("adult", str(tmp_path))
    assert (len(dataset.train), dataset.test) == (3, None)
    np.testing.assert_array_equal(dataset.train.labels, [0, 1, 0])
    assert list(dataset.columns["native-country"]) == ["United-States", "Peru", "Peru"]
    named = dict(zip(dataset.attributes, dataset.train.features.T, strict=True))
    np.testing.assert_allclose(named["age"], [14 / 25, 1, 0], rtol=1e-6)
    np.testing.assert_array_equal(named["workclass=Private"], [0, 1, 1])
    assert "native-country=South" not in named


def test_rings_of_abalone_are_the_class_and_no_feature(tmp_path):
    write(tmp_path, ABALONE)
    dataset = load("abalone", str(tmp_path))
    assert dataset.train.labels.tolist() == [1, 0, 0]  # nine rings are not more than nine
    named = dict(zip(dataset.attributes, dataset.train.features.T, strict=True))
    assert list(named)[:4] == ["sex=F", "sex=I", "sex=M", "length"]
    assert len(named) == 10
    np.testing.assert_allclose(named["length"], [0, 1, 0.5], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "file"), [(name, file) for name, contents in SMALL.items() for file in contents]
)
def test_a_changed_or_missing_file_is_refused_by_name(tmp_path, name, file):
    content = SMALL[name][file]
    write(tmp_path, SMALL[name] | {file: content[:-1] + bytes([content[-1] ^ 1])})
    own = "idx" if name == "mnist" else "csv"
    with pytest.raises(
        InputError,
        match=rf"{file}' is damaged or not the original \w+ file {file} "
        rf"\(sha256 .*put the original in its place.*data.name = \"{own}\"",
    ):
        load(name, str(tmp_path))
    (tmp_path / file).unlink()
    with pytest.raises(InputError, match=rf"'{file}' or '{file}.gz' is not in '{tmp_path}'"):
        load(name, str(tmp_path))


def test_what_is_missing_is_downloaded_only_when_asked(tmp_path, monkeypatch, capsys):
    asked = []

    def torchvisions(root, *, download):
        asked.append((root, download))
        write(Path(root) / "MNIST" / "raw", SMALL["mnist"])
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
    with pytest.raises(InputError, match=r"cannot download fashion-mnist to '.*' \(.*yourself$"):
        load("fashion-mnist", str(tmp_path), download=True)


@pytest.mark.slow
def test_the_real_mnist(real):
    dataset = load("mnist", str(real("mnist")))
    assert dataset.test is not None
    assert dataset.train.features.shape == (60_000, 1, 28, 28)
    assert dataset.test.features.shape == (10_000, 1, 28, 28)
    assert dataset.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert dataset.train.features.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)


@pytest.mark.slow
def test_the_real_fashion_mnist(real):
    dataset = load("fashion-mnist", str(real("fashion-mnist")))
    assert dataset.test is not None
    assert np.bincount(dataset.train.labels).tolist() == [6000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    assert dataset.train.labels[:3].tolist() == [9, 0, 0]


@pytest.mark.slow
def test_the_real_adult_has_the_papers_records_and_features(real):
    rows = []
    for name in ("adult.data.gz", "adult.test.gz"):
        with gzip.open(real("adult") / name, "rt") as file:
            rows += [row for row in csv.reader(file, skipinitialspace=True) if len(row) == 15]
    counted = [row for row in rows if "?" not in row]
    dataset = load("adult", str(real("adult")))
    assert dataset.train.features.shape == (len(counted), 104) == (45_222, 104)
    assert (dataset.classes, dataset.test) == (2, None)
    assert dataset.train.labels.sum() == sum(row[-1].startswith(">50K") for row in counted)
    assert dataset.train.labels.sum() == 11_208
    for position, (name, values) in enumerate(dataset.columns.items()):
        column = [row[position] for row in counted]
        features = dataset.train.features[:, dataset.column_of == position]
        assert values.tolist() == column
        if name in dataset.categorical:
            ones = dict(sorted(Counter(column).items()))
            assert features.sum(axis=0).tolist() == list(ones.values())
            np.testing.assert_array_equal(features.sum(axis=1), np.ones(45_222))
        else:
            low, high = min(map(int, column)), max(map(int, column))
            scaled = [(int(value) - low) / (high - low) for value in column]
            np.testing.assert_allclose(features[:, 0], scaled, atol=1e-7)


def test_the_real_abalone_has_its_snails(real):
    folder = real("abalone")
    with (folder / "abalone.data").open() as file:
        counted = list(csv.reader(file))
    dataset = load("abalone", str(folder))
    assert dataset.train.features.shape == (4177, 10)
    assert dataset.train.labels.sum() == sum(int(row[-1]) > 9 for row in counted) == 2081
    np.testing.assert_array_equal(dataset.train.features[:, :3].sum(axis=1), np.ones(4177))


EACH = 20
PARTS = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def batch(number):
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (EACH, 3072), dtype=np.uint8)
    return pixels, rng.permutation(np.arange(EACH) % 10).astype(np.uint8)


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
            b"M" + struct.pack("<H", EACH) + b"M\x00\x0c\x86cnumpy\ndtype\nq\x0a",
            short(b"u1") + b"K\x00K\x01\x87Rq\x0b(K\x03" + short(b"|"),
            b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<I", len(content)) + content + b"tb",
            short(b"filenames") + b"q\x0c](" + short(b"leptodactylus.png") + b"eu.",
        ]
    )


def write_cifar(folder, monkeypatch):
    folder.mkdir(parents=True)
    sums = []
    for number, part in enumerate(PARTS):
        content = pickled(number)
        (folder / part).write_bytes(content)
        sums.append([part, hashlib.md5(content).hexdigest()])
    monkeypatch.setattr(datasets.CIFAR10, "train_list", sums[:-1])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", sums[-1:])


@pytest.mark.parametrize("folder", ["own", "own/cifar-10-batches-py"])
def test_cifar_is_torchvisions_version(tmp_path, folder, monkeypatch):
    write_cifar(tmp_path / folder, monkeypatch)
    dataset = load("cifar-10", str(tmp_path / "own"))
    pixels, labels = (np.concatenate(each) for each in zip(*map(batch, range(6)), strict=True))
    images = pixels.reshape(-1, 3, 32, 32) / np.float32(255)
    assert dataset.test is not None
    np.testing.assert_array_equal(dataset.train.features, images[: 5 * EACH])
    np.testing.assert_array_equal(dataset.train.labels, labels[: 5 * EACH])
    np.testing.assert_array_equal(dataset.test.features, images[5 * EACH :])
    np.testing.assert_array_equal(dataset.test.labels, labels[5 * EACH :])
    assert (dataset.classes, dataset.kind) == (10, "image")


def test_no_instruction_of_a_pickle_is_executed(tmp_path):
    evidence = tmp_path / "executed"
    command = f"cos\nsystem\n(S'touch {evidence}'\ntR.".encode()
    assert public.operands(b"\x80\x02" + command) == (b"", pytest.approx([]))
    assert not evidence.exists()


def test_another_file_than_torchvisions_is_refused_by_name(tmp_path, monkeypatch):
    write_cifar(tmp_path / "own", monkeypatch)
    (tmp_path / "own" / "data_batch_3").write_bytes(pickled(3)[:-1])
    with pytest.raises(
        InputError, match=r"data_batch_3' is damaged or not the original cifar-10 file .*\(md5 "
    ):
        load("cifar-10", str(tmp_path / "own"))


def test_cifar_is_downloaded_as_torchvision_does(tmp_path, monkeypatch):
    asked = []

    def download(url, root, *, filename, md5):
        asked.append((url, filename, md5))
        write_cifar(Path(root) / "cifar-10-batches-py", monkeypatch)

    monkeypatch.setattr(utils, "download_and_extract_archive", download)
    # The checksums that the files are held against are read before the download.
    write_cifar(tmp_path / "before", monkeypatch)
    assert len(load("cifar-10", str(tmp_path), download=True).train) == 5 * EACH
    known = datasets.CIFAR10
    assert asked == [(known.url, known.filename, known.tgz_md5)]


SHOPPERS = 200
BITS = np.random.default_rng(0).integers(0, 2, (SHOPPERS, 600), dtype=np.uint8)
CLUSTERS = np.random.default_rng(1).permutation(np.arange(SHOPPERS) % 100)


def purchases(labels, bits):
    rows = zip(labels, bits.tolist(), strict=True)
    return "".join(",".join(map(str, [label, *row])) + "\n" for label, row in rows).encode()


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_purchase_100_has_a_label_and_600_bits_for_each_shopper(tmp_path, zipped):
    write(tmp_path, {"dataset_purchase": purchases(CLUSTERS + 1, BITS)}, zipped=zipped)
    dataset = load("purchase-100", str(tmp_path))
    np.testing.assert_array_equal(dataset.train.features, BITS)
    np.testing.assert_array_equal(dataset.train.labels, CLUSTERS)
    assert (dataset.test, dataset.classes, dataset.kind) == (None, 100, "tabular")
    assert dataset.attributes == tuple(dataset.columns)
    assert dataset.categorical == set(dataset.columns)


@pytest.mark.parametrize(
    "content",
    [
        b"1,0,1\n",
        b"1,0,1\n2,0\n",
        b"label,a,b\n",
        purchases(CLUSTERS + 1, BITS + 1),
        purchases(CLUSTERS + 2, BITS),
        purchases(CLUSTERS[1:], BITS[1:]),
    ],
)
def test_a_wrong_text_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "dataset_purchase").write_bytes(content)
    with pytest.raises(InputError, match="dataset_purchase' is damaged or not the original Purch"):
        load("purchase-100", str(tmp_path))
