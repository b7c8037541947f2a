"""The search for the most dissimilar pair: pairs per second, memory, and whether it is exact.

D against all other records, by each measure, beside SciPy's `cdist` over the same pairs and a loop
of scikit-image over a sample of them.
"""

import gzip
import statistics
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from memory import added
from scipy.spatial.distance import cdist
from skimage.metrics import structural_similarity
from tables import Table

from adversaries.neighbours.dataset_sensitivity import select
from fedsim.common import device
from fedsim.learning import data

Features = npt.NDArray[np.float32]
METRICS = {
    "hamming": "hamming",
    "manhattan": "cityblock",
    "euclidean": "euclidean",
    "cosine": "cosine",
}
SSIM = {
    "ssim": {},
}
CDIST_PAIRS = 2**18
"""Pairs of one call of `cdist`: its result stays small."""

TURNS = 3
"""How often the search and its reference take turns; medians are shown."""

NOTE = (
    "The whole search for Eq. 20's argmax, on all threads, against the same by the reference on "
    "its one thread: cdist over all pairs, scikit-image in a loop over a sample of them. Peak: "
    "resident memory that the search adds. Same: whether the search finds the reference's pair, "
    "among all pairs or those of the sample."
)


@dataclass(frozen=True)
class Case:
    """D [n, ...] and the pool [p, ...] of a data set; columns: of each feature, if tabular."""

    name: str
    members: Features
    pool: Features
    measures: tuple[str, ...]
    columns: npt.NDArray[np.int64] | None = None


def measure(smoke, mnist, adult):
    """Yield a row for each measure on each data set. Folders are those of the original files."""
    device.single_threaded_kernels()
    columns = ("data", "|D|", "pool", "measure", "s", "pairs/s", "reference", "its pairs/s")
    rows = []
    for case in _cases(smoke, mnist, adult):
        rows += [_row(case, name, 30 if smoke else 1000) for name in case.measures]
    yield Table("The search for the pair", (*columns, "ratio", "peak MiB", "same"), rows, NOTE)


def _row(case, name, sample):
    n, p, threads = len(case.members), len(case.pool), device.threads(0)

    def search(members, pool):
        return select(members, pool, name, "replace", columns=case.columns, threads=threads)[0]

    members, pool = case.members, case.pool
    if name in SSIM:
        members, pool = members[:10], pool[: sample // 10]
    found = search(members, pool)

    def refer():
        if name in SSIM:
            return _scikit_image(members, pool, **SSIM[name])
        weights = _half_of_one_hot(case.columns) if name == "gower" else None
        return _cdist(members, pool, METRICS.get(name, "cityblock"), weights)

    own, theirs = [], []
    for _ in range(TURNS):
        begun = time.perf_counter()
        best = refer()
        theirs.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        search(case.members, case.pool)
        own.append(time.perf_counter() - begun)
    seconds, rate = statistics.median(own), n * p / statistics.median(own)
    its = len(members) * len(pool) / statistics.median(theirs)
    peak = added(lambda: search(case.members, case.pool))
    same = "yes" if (found.record, found.replacement) == best else f"no: {best}"
    reference = "scikit-image" if name in SSIM else f"cdist {METRICS.get(name, 'cityblock')}"
    return (case.name, n, p, name, seconds, rate, reference, its, rate / its, peak, same)


def _scikit_image(members, pool, **options):
    a, b = (images.reshape(len(images), *images.shape[-2:]) for images in (members, pool))
    distances = np.array(
        [[1 - structural_similarity(x, y, data_range=1.0, **options) for y in b] for x in a]
    )
    i, j = np.unravel_index(distances.argmax(), distances.shape)
    return int(i), int(j)


def _cdist(members, pool, metric, weights):
    """Return the first of the largest distances, to 12 digits, of all pairs."""
    a = members.reshape(len(members), -1).astype(np.float64)
    a = a if weights is None else a * weights
    best, found = -1.0, (0, 0)
    step = max(1, CDIST_PAIRS // len(a))
    for start in range(0, len(pool), step):
        b = pool[start : start + step].reshape(-1, a.shape[1]).astype(np.float64)
        distances = cdist(a, b if weights is None else b * weights, metric)
        largest = float(distances.max())
        i, j = divmod(int((distances >= largest * (1 - 1e-12)).argmax()), distances.shape[1])
        here, tied = (i, start + j), abs(largest - best) <= 1e-12 * best
        if (tied and here < found) or (largest > best and not tied):
            best, found = largest, here
    return found


def _half_of_one_hot(columns):
    assert columns is not None
    return np.where(np.bincount(columns)[columns] > 1, 0.5, 1.0)


def _cases(smoke, mnist, adult):
    images = ("ssim", "manhattan", "euclidean", "cosine")
    random = np.random.default_rng(0)
    small, many = (5, 40) if smoke else (100, 69_900)
    if mnist is None or smoke:
        pixels = random.random((small + many, 1, 28, 28), dtype=np.float32)
        yield Case("random 28×28", pixels[:small], pixels[small:], images)
    else:
        known = data.load("mnist", str(mnist))
        assert known.test is not None
        every = np.concatenate([known.train.features, known.test.features])
        every = every[random.permutation(len(every))]
        yield Case("MNIST", every[:small], every[small:], images)
    small, many = (5, 40) if smoke else (1000, 44_222)
    bits = random.integers(0, 2, (small + many, 600)).astype(np.float32)
    yield Case("random bits", bits[:small], bits[small:], ("hamming",))
    if adult is None or smoke:
        table = _mixed(small + many, random)
        name = "random, mixed"
    else:
        table, name = _adult(adult), "Adult"
    features, columns = table
    features = features[random.permutation(len(features))]
    measures = ("manhattan", "gower", "euclidean", "cosine")
    yield Case(name, features[:small], features[small:], measures, columns)


def _mixed(count, random):
    """Return records of six numbers and eight categories, as wide as Adult's."""
    numbers = random.random((count, 6))
    categories = [random.integers(0, 12, count).astype(str) for _ in range(8)]
    return _encoded([*numbers.T, *categories])


def _adult(folder):
    """Return Adult's rows without missing values, from the original files or their .gz."""
    lines = []
    for name in ("adult.data", "adult.test"):
        plain = folder / name
        packed = folder / f"{name}.gz"
        text = (
            plain.read_text() if plain.exists() else gzip.decompress(packed.read_bytes()).decode()
        )
        lines += [line for line in text.splitlines() if line.count(",") == 14 and "?" not in line]
    values = np.array([line.split(", ") for line in lines])[:, :14].T
    numbers = (0, 2, 4, 10, 11, 12)
    return _encoded([v.astype(float) if i in numbers else v for i, v in enumerate(values)])


def _encoded(values):
    """Return numbers scaled to [0, 1] and categories one-hot, and the column of each feature."""
    parts = []
    for column in values:
        if column.dtype.kind == "f":
            numbers = column.astype(np.float64)
            parts.append(((numbers - numbers.min()) / np.ptp(numbers))[:, None])
        else:
            parts.append(column[:, None] == np.unique(column))
    of = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    return np.concatenate(parts, axis=1).astype(np.float32), of
