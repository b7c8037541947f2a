"""The two worlds of a loop: data with a target record, and without it.

Crafted pairs are the worst that an adversary may choose: differential privacy allows it to know all
other records. Pilots find which pair reveals most about a loop.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks.poisoning import clipbkd_point
from adversaries.errors import InputError
from fedsim.audits.loop.contract import imported
from fedsim.common.randomness import Role, generator
from fedsim.learning.data import BUNDLED, load
from fedsim.learning.data.loaders import npz
from fedsim.privacy.mechanism import Neighbouring

LOUD, VERY_LOUD = 3.0, 30.0
"""Norms of a loud target over the records' mean norm; both are long enough to be clipped.

A louder target reveals more of a loop with wrong clipping. In a correct loop it reveals less, since
the noise in the model turns the direction of the target's gradient.
"""


@dataclass(frozen=True)
class Data:
    """Records: features float32 [n, ...], and labels int64 or float32 [n]."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.generic]

    def __len__(self) -> int:
        return len(self.labels)

    def without(self, place: int) -> "Data":
        return Data(np.delete(self.features, place, 0), np.delete(self.labels, place, 0))

    def with_record(self, place: int, feature: npt.ArrayLike, label: Any) -> "Data":
        features, labels = self.features.copy(), self.labels.copy()
        features[place], labels[place] = feature, label
        return Data(features, labels)


@dataclass(frozen=True)
class Pair:
    """D, and the data sets that differ from it.

    Attributes:
        present: D, with the target.
        absent: D', by the audited neighbouring relation.
        place: index of the target in D.
        other: features [...] of the record that replaces it in twins.
        labels: labels of that record, in turn.
        real: features [n, ...] of the data that the pair was made of.
    """

    name: str
    present: Data
    absent: Data
    place: int
    other: npt.NDArray[np.float32]
    labels: npt.NDArray[np.generic]
    real: npt.NDArray[np.float32]

    def stranger(self) -> Data:
        """Return D with other features of every record, and the same labels in another order.

        The model before the first step must be the same as for D.
        """
        return Data(self.real[::-1].copy(), np.roll(self.present.labels, 1))

    def twin(self, number: int = 0) -> Data:
        """Return D with another record in the target's place; D' itself if it has the same size.

        With the size of D, a run with the same seed draws the same numbers. The difference to D is
        the target's influence less the other record's. Over all labels of one record, gradients of
        a cross-entropy nearly cancel, so that the other record hardly matters.
        """
        if len(self.absent) == len(self.present):
            return self.absent
        label = self.labels[number % len(self.labels)]
        return self.present.with_record(self.place, self.other, label)


def pairs(data: Data, target: str, neighbouring: Neighbouring, seed: int) -> tuple[Pair, ...]:
    """Return the pairs among which pilots choose."""
    if len(data) < 3:
        raise InputError(f"{len(data)} records are too few for an audit; give at least 3")
    if target == "real":
        return (_pair("real", data, _unlike(data), data, neighbouring),)
    flat = data.features.reshape(len(data), -1).astype(np.float64)
    towards = generator(seed, Role.CRAFTED).standard_normal(flat.shape[1])
    point = clipbkd_point(flat, towards).reshape(data.features.shape[1:])
    if not np.isfinite(point).all() or not np.any(point):  # all records are zeros
        point = (towards / np.linalg.norm(towards)).reshape(point.shape)
    rare, common = _labels(data.labels)
    last, zeros = len(data) - 1, np.zeros_like(data.features)
    blank = Data(zeros, np.full_like(data.labels, common))
    return tuple(
        _pair(name, crafted, last, data, neighbouring)
        for name, crafted in (
            ("loud among blank others", blank.with_record(last, LOUD * point, rare)),
            ("very loud among them", blank.with_record(last, VERY_LOUD * point, rare)),
            ("poison", data.with_record(last, point, rare)),
        )
    )


def _pair(name: str, data: Data, place: int, real: Data, neighbouring: Neighbouring) -> Pair:
    other = 0 if place else 1
    absent = data.without(place)
    if neighbouring is Neighbouring.REPLACE:
        absent = data.with_record(place, data.features[other], data.labels[other])
    labels = np.unique(real.labels)
    return Pair(name, data, absent, place, real.features[other], labels, real.features)


def _unlike(data: Data) -> int:
    """Return the index of the record that is farthest from the mean of its label, or of all."""
    flat = data.features.reshape(len(data), -1).astype(np.float64)
    distances = np.empty(len(data))
    labels = data.labels
    if np.issubdtype(labels.dtype, np.floating):  # a regression has no classes
        labels = np.zeros(len(data))
    for label in np.unique(labels):
        own = labels == label
        # A record with a label of its own is as unlike as possible.
        distances[own] = (
            np.linalg.norm(flat[own] - flat[own].mean(axis=0), axis=1) if own.sum() > 1 else np.inf
        )
    return int(distances.argmax())


def _labels(labels: npt.NDArray[np.generic]) -> tuple[Any, Any]:
    """Return the target's label, the rarest, and the commonest; the extremes of a regression."""
    values, counts = np.unique(labels, return_counts=True)
    if len(values) == 1:
        return values[0], values[0]
    if np.issubdtype(labels.dtype, np.floating):
        return values[-1], values[0]
    rare = int(counts.argmin())
    counts[rare] = -1
    return values[rare], values[int(counts.argmax())]


def drawn(source: str, records: int, seed: int) -> Data:
    whole = _all(source)
    if not 0 < records <= len(whole):
        raise InputError(
            f"--records is {records}; '{source}' has {len(whole)} records, so give at most that"
        )
    places = generator(seed, Role.CANDIDATES).permutation(len(whole))[:records]
    return Data(whole.features[places], whole.labels[places])


def _all(source: str) -> Data:
    if source in BUNDLED:
        bundled = load(source).train
        return _checked(bundled.features, bundled.labels, source)
    if source.endswith(".npz"):
        arrays = npz.arrays(Path(source))
        if arrays.keys() >= {"features", "labels"} and arrays["labels"].dtype.kind == "f":
            return _checked(arrays["features"], arrays["labels"], source)
        images = load("npz", source).train
        return _checked(images.features, images.labels, source)
    if ":" in source:
        return _own(source)
    raise InputError(
        f"--data is '{source}'; give {' or '.join(BUNDLED)}, a file of features and labels, such "
        "as mine.npz, or a pair of arrays in your code, such as mine.py:data"
    )


def _own(source: str) -> Data:
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
