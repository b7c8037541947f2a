"""What an audited training function gets and returns, and data sets that differ in one record.

    def train(features, labels, seed): ...

The function trains on `features` [n, ...] (float32) and `labels` [n], both PyTorch tensors. It
returns what it releases, in one of these forms:

- a `torch.nn.Module`, a state dict or a vector [P]: the model;
- an array [k, P]: every released step;
- None: only the steps of Opacus's optimizer, which the audit observes.

Where Opacus is observed and a model is returned, the steps count as released, as its accountant
assumes.

A module counts as its state dict: save `model.state_dict()`, since a pickled module also has
attributes, which no audit reads. A state dict may also have integer tensors.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.attacks.poisoning import clipbkd_point
from adversaries.errors import InputError
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.common.randomness import StreamRole, generator
from fedsim.learning.data import BUNDLED, arrays, load
from fedsim.privacy.mechanism import Neighbouring

Tensor = npt.NDArray[Any]
Function = Callable[[Any, Any, int], Any]

RETURNED = "of what the loop returned"
UNREADABLE = (
    "the loop returned no array of numbers ({}); return the model alone, as a module or a state "
    "dict, or every released step as an array [k, P]"
)


def loaded(name: str) -> Function:
    function = imported(name)
    if not callable(function) or len(inspect.signature(function).parameters) < 3:
        raise InputError(f"'{name}' is no function of three parameters: features, labels, seed")
    return function


def imported(name: str) -> Any:
    """Return an attribute of a module, whose folder, or this directory, gets on the path."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InputError(
            f"'{name}' is not of the form MODULE:NAME; write for example mine:train, or "
            "path/to/mine.py:train"
        )
    folder, module = Path.cwd(), place
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise InputError(f"there is no file '{place}'; name the file that has the function")
        folder, module = path.parent, path.stem
    sys.path.insert(0, str(folder))
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise InputError(
            f"'{name}' cannot be imported: {type(error).__name__}: {error}; name its file, or a "
            "module in this directory or on PYTHONPATH"
        ) from error


def tensors(value: Any) -> dict[str, Tensor]:
    """Return the named tensors of what a function returned."""
    is_module = callable(getattr(value, "state_dict", None)) and not hasattr(value, "shape")
    state = value.state_dict() if is_module else value
    if not isinstance(state, Mapping):
        return {RETURNED: _numpy(state)}
    if not all(hasattr(each, "shape") for each in state.values()):
        raise AppFailedError(UNREADABLE.format("a mapping of numbers is no state dict"))
    return {str(name): _numpy(each) for name, each in state.items()}


def array(value: Any) -> Floats:
    """Return the result of a function as float64: a model [P], or an array's own shape."""
    try:
        named = {name: each.astype(np.float64) for name, each in tensors(value).items()}
    except (TypeError, ValueError) as error:
        raise AppFailedError(UNREADABLE.format(error)) from None
    if [*named] == [RETURNED]:
        numbers = named[RETURNED]
    else:
        numbers = np.concatenate([np.empty(0), *(each.ravel() for each in named.values())])
    if not numbers.size:
        raise AppFailedError("the loop released nothing; return the model, or every released step")
    if not np.isfinite(numbers).all():
        raise AppFailedError("the loop released numbers that are not finite; there is no verdict")
    return numbers


def carried(named: Mapping[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """Return names and checksums of the integer tensors in a model's state, in order."""
    whole = {name: each for name, each in named.items() if each.dtype.kind != "f"}
    return tuple(sorted((f"integer tensor {name}", _checksum(whole[name])) for name in whole))


def _numpy(value: Any) -> Tensor:
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    return np.asarray(value)


def _checksum(numbers: Tensor) -> str:
    described = f"{numbers.dtype}{numbers.shape}".encode()
    return hashlib.sha256(described + numbers.tobytes()).hexdigest()[:16]


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

    @property
    def rows(self) -> Tensor:
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
    last, worlds = len(data) - 1, {"a real record": data}
    if target == "real":
        last = _unlike(data)
    else:
        point = crafted_features(data, seed)
        rare, common = rare_and_common(data)
        blank = Data(np.zeros_like(data.features), np.full_like(data.labels, common))
        worlds = {
            "a crafted record among blank ones": blank.with_record(last, LOUD * point, rare),
            "a larger crafted record among blank ones": blank.with_record(
                last, VERY_LOUD * point, rare
            ),
            "a crafted record among real ones": data.with_record(last, point, rare),
        }
    found = []
    for name, present in worlds.items():
        other = 0 if last else 1
        absent = present.without(last)
        if neighbouring is Neighbouring.REPLACE:
            absent = present.with_record(last, present.features[other], present.labels[other])
        found.append(Neighbours(neighbouring, name, present, absent, last, data))
    return tuple(found)


def crafted_features(data: Data, seed: int) -> Tensor:
    """Return the features [...] of ClipBKD's poison, with the mean norm of a record."""
    towards: Tensor = generator(seed, StreamRole.CRAFTED).standard_normal(data.rows[0].shape)
    point: Tensor = np.asarray(clipbkd_point(data.rows, towards))
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
