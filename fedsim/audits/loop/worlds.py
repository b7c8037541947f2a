"""The data of a loop's audit, and the pairs of data sets that differ in one record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks.poisoning import clipbkd_point
from adversaries.errors import InputError
from fedsim.audits.loop.contract import imported
from fedsim.common.randomness import StreamRole, generator
from fedsim.learning.data import BUNDLED, arrays, load
from fedsim.privacy.mechanism import Neighbouring

LOUD, VERY_LOUD = 3.0, 30.0
"""Norms of a loud target over the records' mean norm; both are long enough to be clipped.

A louder target reveals more of a loop with wrong clipping. In a correct loop it reveals less, since
the noise in the model turns the direction of the target's gradient.
"""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Data:
    """Records: features float32 [n, ...], and labels int64 or float32 [n]."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.generic]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> Array:
        """Features as float64 [n, P]."""
        return self.features.reshape(len(self), -1).astype(np.float64)

    @property
    def regression(self) -> bool:
        return np.issubdtype(self.labels.dtype, np.floating)

    def without(self, place: int) -> "Data":
        return Data(np.delete(self.features, place, 0), np.delete(self.labels, place, 0))

    def with_record(self, place: Any, feature: npt.ArrayLike, label: Any) -> "Data":
        """Return the data with another record at a place, or others at several [k] places."""
        features, labels = self.features.copy(), self.labels.copy()
        features[place], labels[place] = feature, label
        return Data(features, labels)


@dataclass(frozen=True)
class Neighbours:
    """D, and the data sets that differ from it.

    Attributes:
        absent: D', by the audited neighbouring relation.
        real: the data that the pair was made of.
    """

    neighbouring: Neighbouring

    name: str
    present: Data
    absent: Data
    place: int
    real: Data

    @property
    def other(self) -> int:
        """Index of the record that replaces the target in twins."""
        return 0 if self.place else 1

    def stranger(self) -> Data:
        """Return D with other features of every record, and the same labels in another order.

        The model before the first step must be the same as for D.
        """
        return Data(self.real.features[::-1].copy(), np.roll(self.present.labels, 1))

    def twin(self, number: int = 0) -> Data:
        """Return D with another record in the target's place; D' itself if it has the same size.

        With the size of D, a run with the same seed draws the same numbers. The difference to D is
        the target's influence less the other record's. Over all labels of one record, gradients of
        a cross-entropy nearly cancel, so that the other record hardly matters.
        """
        if len(self.absent) == len(self.present):
            return self.absent
        labels = np.unique(self.real.labels)
        label = labels[number % len(labels)]
        return self.present.with_record(self.place, self.real.features[self.other], label)


def pairs(data: Data, target: str, neighbouring: Neighbouring, seed: int) -> tuple[Neighbours, ...]:
    """Return the pairs of worlds among which pilots choose the one that reveals most about a loop.

    Crafted pairs are the worst that an adversary may choose: differential privacy allows it to know
    all other records.
    """
    if len(data) < 3:
        raise InputError(f"{len(data)} records are too few for an audit; give at least 3")
    last, worlds = len(data) - 1, {"real": data}
    if target == "real":
        last = _unlike(data)
    else:
        point = crafted_features(data, seed)
        rare, common = rare_and_common(data)
        blank = Data(np.zeros_like(data.features), np.full_like(data.labels, common))
        worlds = {
            "loud among blank records": blank.with_record(last, LOUD * point, rare),
            "very loud among blank records": blank.with_record(last, VERY_LOUD * point, rare),
            "poison": data.with_record(last, point, rare),
        }
    found = []
    for name, present in worlds.items():
        other = 0 if last else 1
        absent = present.without(last)
        if neighbouring is Neighbouring.REPLACE:
            absent = present.with_record(last, present.features[other], present.labels[other])
        found.append(Neighbours(neighbouring, name, present, absent, last, data))
    return tuple(found)


def crafted_features(data: Data, seed: int) -> Array:
    """Return the features [...] of ClipBKD's poison, with the mean norm of a record."""
    towards: Array = generator(seed, StreamRole.CRAFTED).standard_normal(data.rows[0].shape)
    point: Array = np.asarray(clipbkd_point(data.rows, towards))
    if not (np.isfinite(point).all() and np.any(point)):  # all records are zeros
        point = np.asarray(towards / np.linalg.norm(towards))
    return point.reshape(data.features.shape[1:])


def rare_and_common(data: Data) -> tuple[Any, Any]:
    """Return the target's label, the rarest, and the commonest; the extremes of a regression."""
    values, counts = np.unique(data.labels, return_counts=True)
    if len(values) == 1:
        return values[0], values[0]
    if data.regression:
        return values[-1], values[0]
    rare = int(counts.argmin())
    counts[rare] = -1
    return values[rare], values[int(counts.argmax())]


def _unlike(data: Data) -> int:
    """Return the index of the record that is farthest from the mean of its label, or of all."""
    rows, distances = data.rows, np.empty(len(data))
    labels = np.zeros(len(data)) if data.regression else data.labels
    for label in np.unique(labels):
        own = labels == label
        # A record with a label of its own is as unlike as possible.
        alone = own.sum() == 1
        distances[own] = np.inf if alone else np.linalg.norm(rows[own] - rows[own].mean(0), axis=1)
    return int(distances.argmax())


def drawn(source: str, records: int, seed: int) -> Data:
    """Return so many records of a bundled data set, a file, or a pair of arrays in own code."""
    whole = _all(source)
    if not 0 < records <= len(whole):
        raise InputError(
            f"--records is {records}; '{source}' has {len(whole)} records, so give at most that"
        )
    places = generator(seed, StreamRole.CANDIDATES).permutation(len(whole))[:records]
    return Data(whole.features[places], whole.labels[places])


def _all(source: str) -> Data:
    if source in BUNDLED:
        bundled = load(source).train
        return _checked(bundled.features, bundled.labels, source)
    if source.endswith(".npz"):
        saved = arrays.arrays(Path(source))
        if saved.keys() >= {"features", "labels"} and saved["labels"].dtype.kind == "f":
            return _checked(saved["features"], saved["labels"], source)
        images = load("npz", source).train
        return _checked(images.features, images.labels, source)
    if ":" not in source:
        raise InputError(
            f"--data is '{source}'; give {' or '.join(BUNDLED)}, a file of features and labels, "
            "such as mine.npz, or a pair of arrays in your code, such as mine.py:data"
        )
    own = imported(source)
    try:
        features, labels = own() if callable(own) else own
        return _checked(np.asarray(features), np.asarray(labels), source)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"'{source}' gives no data ({type(error).__name__}: {error}); it must be a pair "
            "(features, labels) of arrays, or a function without parameters that returns one"
        ) from error


def _checked(features: Any, labels: Any, source: str) -> Data:
    numbers = features.dtype.kind in "buif" and labels.dtype.kind in "buif"
    if not numbers or features.ndim < 2 or labels.shape != features.shape[:1]:
        raise InputError(
            f"'{source}' has features {features.dtype} {features.shape} and labels {labels.dtype} "
            f"{labels.shape}; give numbers [n, ...] and [n]"
        )
    features = features.astype(np.float32)
    labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64)
    if not (np.isfinite(features).all() and np.isfinite(labels).all()):
        raise InputError(f"'{source}' has numbers that are not finite; leave those records out")
    return Data(features, labels)
