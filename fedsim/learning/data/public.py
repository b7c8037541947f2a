"""Public datasets: scikit-learn's, and files that are checked to be their authors' originals."""

import contextlib
import hashlib
import io
import pickletools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data import arrays, csv_file, files, idx, table
from fedsim.learning.data.columns import Column, NumberColumn, Values, is_missing
from fedsim.learning.data.dataset import Dataset, Records, Source


@dataclass(frozen=True)
class Original:
    """The files of a public dataset.

    Attributes:
        title: its name, which for MNIST's kind is torchvision's.
        sha256: checksums of the unpacked files, because packers differ; by name.
        own: a data.name that reads other files of this kind, without checksums.
    """

    title: str
    sha256: Mapping[str, str]
    own: str


ORIGINALS = {
    "mnist": Original(
        "MNIST",
        {
            idx.TRAIN[0]: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            idx.TRAIN[1]: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            idx.TEST[0]: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            idx.TEST[1]: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        "idx",
    ),
    "fashion-mnist": Original(
        "FashionMNIST",
        {
            idx.TRAIN[0]: "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            idx.TRAIN[1]: "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            idx.TEST[0]: "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            idx.TEST[1]: "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
        "idx",
    ),
    "adult": Original(
        "Adult",
        {
            "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        },
        "csv",
    ),
    "abalone": Original(
        "Abalone",
        {"abalone.data": "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f"},
        "csv",
    ),
}


def mnist(source: Source) -> Dataset:
    """Return MNIST (LeCun et al.) or Fashion-MNIST (Xiao et al. 2017).

    Both have 60,000 and 10,000 images [1, 28, 28] in [0, 1], and ten classes.
    """
    original = ORIGINALS[source.name]
    folders = (*idx.FOLDERS, f"{original.title}/raw")
    if source.download and None in files.look_up(source.path, list(original.sha256), folders):
        from torchvision import datasets  # noqa: PLC0415  (slow to import)

        with _fetching(source):
            getattr(datasets, original.title)(str(source.path), download=True)
    paths = files.find(source, list(original.sha256), folders, downloads=True)
    for path, (name, expected) in zip(paths, original.sha256.items(), strict=True):
        _checked(path, f"{original.title} file {name}", expected, original.own)
    return idx.dataset(source.name, paths)


CIFAR_SHAPE = (3, 32, 32)


def cifar(source: Source) -> Dataset:
    """Return CIFAR-10 (Krizhevsky 2009): 50,000 and 10,000 images [3, 32, 32] in [0, 1].

    torchvision's files are pickles, which are parsed for their bytes and never executed.
    """
    from torchvision.datasets import CIFAR10, utils  # noqa: PLC0415  (slow to import)

    sums = dict((*CIFAR10.train_list, *CIFAR10.test_list))
    folders = (".", "cifar-10-batches-py")
    if source.download and None in files.look_up(source.path, list(sums), folders):
        with _fetching(source):
            utils.download_and_extract_archive(
                CIFAR10.url, str(source.path), filename=CIFAR10.filename, md5=CIFAR10.tgz_md5
            )
    batches = []
    paths = files.find(source, list(sums), folders, downloads=True)
    for path, md5 in zip(paths, sums.values(), strict=True):
        content = _checked(path, f"CIFAR-10 file {path.name}", md5, "npz", "md5")
        pixels, labels = operands(content)
        images = np.frombuffer(pixels, dtype=np.uint8).reshape(-1, *CIFAR_SHAPE)
        scaled = np.divide(images, 255, dtype=np.float32)
        batches.append(Records(scaled, labels.astype(np.int64)))
    train = Records(
        np.concatenate([batch.features for batch in batches[:-1]]),
        np.concatenate([batch.labels for batch in batches[:-1]]),
    )
    return Dataset(source.name, train, batches[-1], 10, "image")


def operands(content: bytes) -> tuple[bytes, npt.NDArray[np.uint8]]:
    """Return a pickle's longest string, and the small integers that follow "labels", unexecuted.

    Returns: of a batch of CIFAR-10 the pixels, and the labels uint8 [n].
    Raises ValueError otherwise.
    """
    longest, labels, last = "", bytearray(), ""
    for instruction, operand, _ in pickletools.genops(content):
        if instruction.name in ("SHORT_BINSTRING", "BINSTRING"):
            last = str(operand)
            longest = max(longest, last, key=len)
        elif instruction.name == "BININT1" and last == "labels":
            labels.append(int(str(operand)))
    # Python 2's strings are bytes, which genops returns as Latin-1.
    return longest.encode("latin-1"), np.frombuffer(bytes(labels), dtype=np.uint8)


ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "label"),
)


def adult(source: Source) -> Dataset:
    """Return Adult as one pool: 45,222 people of the US census of 1994, with 104 features.

    The class is whether a person earned more than $50,000. Rows with missing values are left out,
    numbers scaled by the least and the largest, and text one-hot. Source: Becker & Kohavi, 1996,
    UCI.
    """
    # The labels of the test file end in a dot.
    rows = [[*row[:-1], row[-1].rstrip(".")] for row in _rows(source)]
    return _of_rows(source, ADULT_COLUMNS, rows)


ABALONE_COLUMNS = (
    *("sex", "length", "diameter", "height", "whole-weight", "shucked-weight", "viscera-weight"),
    *("shell-weight", "label"),
)

YOUNG = 9
"""Rings of the median snail; half of them have more."""


def abalone(source: Source) -> Dataset:
    """Return Abalone as one pool: 4,177 sea snails with 10 features and two classes.

    The class is whether a snail has more than nine rings; the rings are not a feature. Source:
    Nash et al., 1994, UCI; two classes as in Triastcyn and Faltings, 2020, B.1.
    """
    rows = [[*row[:-1], "yes" if int(row[-1]) > YOUNG else "no"] for row in _rows(source)]
    return _of_rows(source, ABALONE_COLUMNS, rows)


def _rows(source: Source) -> csv_file.Rows:
    """Return the rows of all files, after their checksums."""
    rows: csv_file.Rows = []
    original = ORIGINALS[source.name]
    paths = files.find(source, list(original.sha256))
    for path, (name, expected) in zip(paths, original.sha256.items(), strict=True):
        content = _checked(path, f"{original.title} file {name}", expected, original.own)
        # Adult's test file begins with a comment.
        lines = [line for line in content.decode("ascii").splitlines() if not line.startswith("|")]
        rows += csv_file.rows("\n".join(lines), path)
    return rows


class _Numbers(NumberColumn):
    """A column as in the core paper, whose tables are normalised: features from 0 to 1."""

    lowest = 0.0


def _of_rows(source: Source, names: tuple[str, ...], rows: csv_file.Rows) -> Dataset:
    """Return the dataset of a table whose own values are its schema, without rows with gaps."""
    whole = [row for row in rows if not any(is_missing(row))]
    columns = {name: np.array(of) for name, of in csv_file.columns_of(names, whole).items()}
    schema: dict[str, Column] = {}
    classes, labels = np.unique(columns.pop("label"), return_inverse=True)
    for name, values in columns.items():
        if any(value[:1].isalpha() for value in values):
            schema[name] = Values(values=np.unique(values).tolist())
        else:
            numbers = values.astype(np.float64)
            schema[name] = _Numbers(range=[float(numbers.min()), float(numbers.max())])
    features = [kind.read(name, columns[name].tolist())[0] for name, kind in schema.items()]
    records = Records(np.concatenate(features, axis=1), labels.astype(np.int64))
    return table.of(source.name, records, len(classes), schema, columns)


SHOPPERS, PRODUCTS, CLUSTERS = 197_324, 600, 100

ARCHIVE = "shokri_purchases_100_classes.npz"


def purchase100(source: Source) -> Dataset:
    """Return Purchase-100 (Shokri et al. 2017) as one pool of 600 binary features.

    The authors' file has a label 1 to 100 and 600 bits a row. It has no published checksum, so the
    numbers of shoppers, products and clusters are checked.
    """
    path = source.path / ARCHIVE
    if path.is_file():
        columns = arrays.arrays(path)
        empty = np.empty((0, 0))
        bits = columns.get("features", empty)
        labels = arrays.numbered(columns.get("labels", empty))
    else:
        (path,) = files.find(source, ["dataset_purchase"])
        bits, labels = read_purchases(path)
    numeric = bits.dtype.kind in "buif" and labels.dtype.kind in "buif"
    shapes = bits.shape == (SHOPPERS, PRODUCTS) and labels.shape == (SHOPPERS,)
    if not (numeric and shapes and ((bits == 0) | (bits == 1)).all()) or not any(
        np.array_equal(np.unique(labels), np.arange(CLUSTERS) + first) for first in (0, 1)
    ):
        reason = (
            f": it does not have {SHOPPERS} rows of {PRODUCTS} bits, and labels of {CLUSTERS} "
            "clusters numbered from 0 or 1 on"
        )
        raise _not_original(path, "Purchase-100", reason, "npz")
    names = tuple(f"product {number}" for number in range(1, PRODUCTS + 1))
    records = Records(bits.astype(np.float32), labels.astype(np.int64) - int(labels.min()))
    columns = dict(zip(names, bits.astype(np.uint8).T, strict=True))
    return Dataset(
        source.name,
        records,
        None,
        CLUSTERS,
        "tabular",
        attributes=names,
        columns=columns,
        column_of=np.arange(PRODUCTS, dtype=np.int64),
        categorical=frozenset(names),
    )


def read_purchases(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the bits [N, F] and labels [N] of the authors' text file.

    Raises InputError for another file.
    """

    def refusal(reason: str) -> InputError:
        return _not_original(path, "Purchase-100", f": {reason}", "npz")

    with reading.damage(refusal):
        text = io.BytesIO(csv_file.read_bytes(path))
        values = np.loadtxt(text, delimiter=",", dtype=np.uint8, ndmin=2)
    return values[:, 1:], values[:, 0]


def digits(source: Source) -> Dataset:
    """Return 1,797 handwritten digits [1, 8, 8] in [0, 1]."""
    # The file alone: to import scikit-learn takes longer than everything else before a run.
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise InputError(
            "the digits need scikit-learn, which is not installed; install fedsim again"
        )
    values = np.loadtxt(Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    images, labels = values[:, :-1], values[:, -1]
    features = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return Dataset(source.name, Records(features, labels.astype(np.int64)), None, 10, "image")


def breast_cancer(source: Source) -> Dataset:
    """Return 569 tumours with 30 measurements, each scaled from 0 to 1."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415  (only this dataset needs it)

    bunch = load_breast_cancer()
    values, names = bunch.data, tuple(map(str, bunch.feature_names))
    low, high = values.min(axis=0), values.max(axis=0)
    features = ((values - low) / (high - low)).astype(np.float32)
    return Dataset(
        source.name,
        Records(features, bunch.target.astype(np.int64)),
        None,
        2,
        "tabular",
        attributes=names,
        columns=dict(zip(names, values.T, strict=True)),
        column_of=np.arange(len(names), dtype=np.int64),
    )


@contextlib.contextmanager
def _fetching(source: Source) -> Iterator[None]:
    """Report a failed download in one line, and keep standard output clean for JSON."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"cannot download {source.name} to '{source.path}' ({reason}); put its files there "
            "yourself"
        ) from None


def _checked(path: Path, title: str, expected: str, own: str, kind: str = "sha256") -> bytes:
    """Return the unpacked content of an original. Raises InputError for another digest."""
    content = csv_file.read_bytes(path)
    digest = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
    if digest != expected:
        reason = f" ({kind} {digest[:16]}… instead of {expected[:16]}…)"
        raise _not_original(path, title, reason, own)
    return content


def _not_original(path: Path, title: str, reason: str, own: str) -> InputError:
    return InputError(
        f"'{path}' is damaged or not the original {title}{reason}; put the original in its place, "
        f'or read your own data with data.name = "{own}"'
    )
