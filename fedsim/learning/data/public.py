"""Public datasets: scikit-learn's, and files that are checked to be their authors' originals."""

import contextlib
import hashlib
import io
import pickletools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration.federation import DataConfig
from fedsim.learning.data import csv_file, table
from fedsim.learning.data.arrays import numbered_labels
from fedsim.learning.data.columns import Column, NumberColumn, Values, is_missing
from fedsim.learning.data.dataset import Dataset, Records, of_features, place

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

FOLDERS = (".", "raw")
"""Folders of IDX files, within the folder that the user names."""

ORIGINALS: dict[str, Mapping[str, str]] = {
    "mnist": {
        TRAIN[0]: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        TRAIN[1]: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        TEST[0]: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        TEST[1]: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    "fashion-mnist": {
        TRAIN[0]: "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        TRAIN[1]: "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        TEST[0]: "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        TEST[1]: "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    "adult": {
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    "abalone": {"abalone.data": "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f"},
}
"""Checksums of each data set's unpacked files by name, because packers differ (SHA-256)."""

File = tuple[Path, bytes]
"""A file and its unpacked content."""


def find(
    source: DataConfig,
    names: Sequence[str],
    folders: Sequence[str] = (".",),
    fetch: Callable[[], object] | None = None,
) -> list[File]:
    """Return the named files, each from the first folder that has it, packed or plain.

    names: of the files, without the ending .gz.
    fetch: downloads them if one is missing and the user allows it.
    Raises InputError if a file is missing; the message names it and the folder.
    """
    root = place(source)
    if fetch is not None and source.download and None in _look_up(root, names, folders):
        with _fetching(source):
            fetch()
    found = []
    for name, path in zip(names, _look_up(root, names, folders), strict=True):
        if path is None:
            problem = f"there is no folder '{root}'"
            if root.is_dir():
                places = [repr(str(root)), *(f"its {each}/" for each in folders if each != ".")]
                problem = f"{source.name}: '{name}' or '{name}.gz' is not in {', '.join(places)}"
            download = ", or let fedsim download them there with data.download=true"
            raise InputError(
                f"{problem}; set data.root=PATH to the folder with {source.name}'s files"
                f"{'' if fetch is None else download}"
            )
        found.append((path, csv_file.read_bytes(path)))
    return found


def _look_up(root: Path, names: Sequence[str], folders: Sequence[str]) -> list[Path | None]:
    """Return the path of each file, or None where no folder has it."""
    every = [[root / each / f"{n}{end}" for end in ("", ".gz") for each in folders] for n in names]
    return [next(filter(Path.is_file, paths), None) for paths in every]


def _originals(
    source: DataConfig,
    sums: Mapping[str, str],
    own: str,
    folders: Sequence[str] = (".",),
    fetch: Callable[[], object] | None = None,
    kind: str = "sha256",
) -> list[File]:
    """Return the files of these checksums, as `find`. Raises InputError for another checksum.

    own: a data.name that reads other files of this kind, without checksums.
    """
    found = find(source, list(sums), folders, fetch)
    for (path, content), (name, expected) in zip(found, sums.items(), strict=True):
        digest = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
        if digest != expected:
            reason = f" ({kind} {digest[:16]}… instead of {expected[:16]}…)"
            raise _not_original(path, f"{source.name} file {name}", reason, own)
    return found


def mnist(source: DataConfig) -> Dataset:
    """Return MNIST (LeCun et al.) or Fashion-MNIST (Xiao et al. 2017).

    Both have 60,000 and 10,000 images [1, 28, 28] in [0, 1], and ten classes.
    """
    title = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}[source.name]

    def fetch() -> None:
        from torchvision import datasets  # noqa: PLC0415  (slow to import)

        getattr(datasets, title)(str(place(source)), download=True)

    sums, folders = ORIGINALS[source.name], (*FOLDERS, f"{title}/raw")
    return _of_idx(source.name, _originals(source, sums, "idx", folders, fetch))


def idx(source: DataConfig) -> Dataset:
    """Return images [1, H, W] in [0, 1] from the user's IDX files with MNIST's names.

    The test files may be missing. Classes are 0 to the largest label.

    Raises InputError if a file is missing or damaged, or files do not belong together.
    """
    tested = None not in _look_up(place(source), TEST[:1], FOLDERS)
    return _of_idx(source.name, find(source, TRAIN + TEST * tested, FOLDERS))


def _of_idx(name: str, found: Sequence[File]) -> Dataset:
    """Return the dataset of files with images and labels, for training and maybe for tests."""
    parts = []
    for (images_path, packed), (labels_path, labels) in zip(found[::2], found[1::2], strict=True):
        images, numbers = read_idx(images_path, packed, 3), read_idx(labels_path, labels, 1)
        if len(images) != len(numbers):
            raise InputError(
                f"'{labels_path}' has {len(numbers)} labels for the {len(images)} images of "
                f"'{images_path}'; give two files that belong together"
            )
        if not images.size:
            raise InputError(f"'{images_path}' has no images; give a file with images")
        features = np.divide(images[:, None], 255, dtype=np.float32)
        parts.append(Records(features, numbers.astype(np.int64)))
    train, test = parts[0], parts[1] if parts[1:] else None
    numbered_labels(train.labels, found[1][0], "label")  # refuses a single class
    sizes = ["×".join(map(str, part.features.shape[2:])) for part in parts]
    if sizes[0] != sizes[-1]:
        raise InputError(
            f"the images of '{found[0][0]}' are {sizes[0]}, but the images of '{found[2][0]}' "
            f"are {sizes[1]}; give both the same size"
        )
    classes = 1 + max(int(part.labels.max(initial=0)) for part in parts)
    return Dataset(name, train, test, classes, "image")


def read_idx(path: Path, content: bytes, dimensions: int) -> npt.NDArray[np.uint8]:
    """Return the array of an IDX file of unsigned bytes (LeCun, The MNIST database).

    Bytes 0, 0, 8, the number of dimensions; each one as a big-endian uint32; the data. Raises
    InputError if the file does not match its header.
    """
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        raise InputError(
            f"'{path}' is damaged: it is not an IDX file of unsigned bytes in {dimensions} "
            "dimensions; put a whole one in its place"
        )
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], dtype=">u4"))
    promised = header + int(np.prod(shape, dtype=object))
    if len(content) != promised:
        raise InputError(
            f"'{path}' is damaged: it has {len(content)} bytes instead of {promised}; put a whole "
            "one in its place"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


CIFAR_SHAPE = (3, 32, 32)


def cifar(source: DataConfig) -> Dataset:
    """Return CIFAR-10 (Krizhevsky 2009): 50,000 and 10,000 images [3, 32, 32] in [0, 1].

    torchvision's files are pickles, which are parsed for their bytes and never executed.
    """
    from torchvision.datasets import CIFAR10, utils  # noqa: PLC0415  (slow to import)

    def fetch() -> None:
        utils.download_and_extract_archive(
            CIFAR10.url, source.root, filename=CIFAR10.filename, md5=CIFAR10.tgz_md5
        )

    sums = dict((*CIFAR10.train_list, *CIFAR10.test_list))
    folders = (".", "cifar-10-batches-py")
    batches = []
    for _, content in _originals(source, sums, "npz", folders, fetch, kind="md5"):
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


def adult(source: DataConfig) -> Dataset:
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


def abalone(source: DataConfig) -> Dataset:
    """Return Abalone as one pool: 4,177 sea snails with 10 features and two classes.

    The class is whether a snail has more than nine rings; the rings are not a feature. Source:
    Nash et al., 1994, UCI; two classes as in Triastcyn and Faltings, 2020, B.1.
    """
    rows = [[*row[:-1], "yes" if int(row[-1]) > YOUNG else "no"] for row in _rows(source)]
    return _of_rows(source, ABALONE_COLUMNS, rows)


def _rows(source: DataConfig) -> csv_file.Rows:
    """Return the rows of all files, after their checksums."""
    rows: csv_file.Rows = []
    for path, content in _originals(source, ORIGINALS[source.name], "csv"):
        # Adult's test file begins with a comment.
        lines = [line for line in content.decode("ascii").splitlines() if not line.startswith("|")]
        rows += csv_file.rows("\n".join(lines), path)
    return rows


class _Numbers(NumberColumn):
    """A column as in the core paper, whose tables are normalised: features from 0 to 1."""

    lowest = 0.0


def _of_rows(source: DataConfig, names: tuple[str, ...], rows: csv_file.Rows) -> Dataset:
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


def purchase100(source: DataConfig) -> Dataset:
    """Return Purchase-100 (Shokri et al. 2017) as one pool of 600 binary features.

    The authors' file has a label 1 to 100 and 600 bits a row. It has no published checksum, so the
    numbers of shoppers, products and clusters are checked.
    """
    ((path, content),) = find(source, ["dataset_purchase"])
    values = read_purchases(path, content)
    labels, bits = values[:, 0], values[:, 1:]
    clusters = np.arange(CLUSTERS) + 1
    whole = bits.shape == (SHOPPERS, PRODUCTS) and np.array_equal(np.unique(labels), clusters)
    if not (whole and (bits <= 1).all()):
        reason = (
            f": it does not have {SHOPPERS} rows of a label 1 to {CLUSTERS} and {PRODUCTS} bits"
        )
        raise _not_original(path, "Purchase-100", reason, "npz")
    names = tuple(f"product {number}" for number in range(1, PRODUCTS + 1))
    records = Records(bits.astype(np.float32), labels.astype(np.int64) - 1)
    return of_features(source.name, records, CLUSTERS, names, bits, frozenset(names))


def read_purchases(path: Path, content: bytes) -> npt.NDArray[np.uint8]:
    """Return the labels and bits [N, 1 + F] of the authors' text file. InputError for another."""

    def refusal(reason: str) -> InputError:
        return _not_original(path, "Purchase-100", f": {reason}", "npz")

    with reading.damage(refusal):
        return np.loadtxt(io.BytesIO(content), delimiter=",", dtype=np.uint8, ndmin=2)


def digits(source: DataConfig) -> Dataset:
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


def breast_cancer(source: DataConfig) -> Dataset:
    """Return 569 tumours with 30 measurements, each scaled from 0 to 1."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415  (only this dataset needs it)

    bunch = load_breast_cancer()
    values, names = bunch.data, tuple(map(str, bunch.feature_names))
    low, high = values.min(axis=0), values.max(axis=0)
    features = ((values - low) / (high - low)).astype(np.float32)
    records = Records(features, bunch.target.astype(np.int64))
    return of_features(source.name, records, 2, names, values)


@contextlib.contextmanager
def _fetching(source: DataConfig) -> Iterator[None]:
    """Report a failed download in one line, and keep standard output clean for JSON."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"cannot download {source.name} to '{source.root}' ({reason}); put its files there "
            "yourself"
        ) from None


def _not_original(path: Path, title: str, reason: str, own: str) -> InputError:
    return InputError(
        f"'{path}' is damaged or not the original {title}{reason}; put the original in its place, "
        f'or read your own data with data.name = "{own}"'
    )
