"""The contract of a training function.

    def train(features, labels, seed): ...

The function trains on `features` [n, ...] (float32) and `labels` [n], both PyTorch tensors. It
returns what it releases, in one of these forms:

- a `torch.nn.Module`, a state dict or a vector [P]: the model;
- a list of modules or state dicts: the model after each step;
- an array [k, P]: every released step, or the model after each step;
- None: only the steps of Opacus's optimizer, which the audit observes.

Where Opacus is observed and a model is returned, the steps count as released, as its accountant
assumes. A function whose third parameter is called `seeds` trains one model for each of T seeds at
once, and returns [T, P] or [T, k, P].

A module counts as its state dict: save `model.state_dict()`, since a pickled module also has
attributes, which no audit reads. Besides floating-point numbers a state dict may have integer
tensors. `carried` returns their names with a checksum of each.
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
from fedsim.learning.data import BUNDLED, load
from fedsim.learning.data.loaders import npz
from fedsim.privacy.mechanism import Neighbouring


@dataclass(frozen=True)
class Function:
    """A training function; `many`: it trains a model for each of several seeds at once."""

    call: Callable[..., Any]
    many: bool


def loaded(name: str) -> Function:
    function = imported(name)
    if not callable(function):
        raise InputError(f"'{name}' is not a function; name one that takes features, labels, seed")
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) < 3:
        raise InputError(f"'{name}' takes {', '.join(parameters)}; give it features, labels, seed")
    return Function(function, parameters[2] == "seeds")


def imported(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InputError(
            f"'{name}' is not of the form MODULE:NAME; write for example mine:train, or "
            "path/to/mine.py:train"
        )
    module_name = _on_path(place)
    try:
        module = importlib.import_module(module_name)
        return getattr(module, attribute)
    except Exception as error:
        raise InputError(
            f"'{name}' cannot be imported: {type(error).__name__}: {error}; name its file, or a "
            "module in this directory or on PYTHONPATH"
        ) from error


def _on_path(place: str) -> str:
    """Return the module's name, and put its folder, or this directory, on the path."""
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise InputError(f"there is no file '{place}'; name the file that has the function")
        sys.path.insert(0, str(path.parent))
        return path.stem
    sys.path.insert(0, str(Path.cwd()))
    return place


def array(value: Any) -> Floats:
    """Return the result of a function as float64: a model [P], or an array's own shape."""
    if several(value):
        return _stacked([array(each) for each in value])
    value = _state(value)
    try:
        if isinstance(value, Mapping):
            if not all(hasattr(each, "shape") for each in value.values()):
                raise TypeError("a mapping of numbers is not a state dict")
            parts = [_numbers(each).ravel() for each in value.values()]
            numbers = np.concatenate(parts) if parts else np.empty(0)
        else:
            numbers = _numbers(value)
    except (TypeError, ValueError) as error:
        raise AppFailedError(
            f"the loop returned no arrays of numbers ({error}); return only the model, or only "
            "every released step [k, P]"
        ) from None
    if not numbers.size:
        raise AppFailedError("the loop released nothing; return the model, or every released step")
    if not np.isfinite(numbers).all():
        raise AppFailedError("the loop released numbers that are not finite; there is no verdict")
    return numbers


def several(value: Any) -> bool:
    """Return whether a function returned a list of models, each a module or a state dict."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(
            isinstance(each, Mapping)
            or (hasattr(each, "state_dict") and not hasattr(each, "shape"))
            for each in value
        )
    )


def _stacked(models: list[Floats]) -> Floats:
    if len({each.size for each in models}) > 1:
        raise AppFailedError("the loop returned models of several sizes; audit one at a time")
    rows = np.array(models)
    if len(rows) > 1 and (rows == rows[0]).all():
        raise AppFailedError(
            f"the loop returned one model {len(rows)} times; append a copy of it after each step: "
            "copy.deepcopy(model.state_dict())"
        )
    return rows


def tensors(value: Any) -> dict[str, Floats]:
    """Return the named tensors of a model, or of every model of a list."""
    if several(value):
        return {
            f"{name} of model {place + 1}": each
            for place, model in enumerate(value)
            for name, each in tensors(model).items()
        }
    value = _state(value)
    named = value if isinstance(value, Mapping) else {"of what the loop returned": value}
    return {str(name): _numbers(each) for name, each in named.items()}


def _numbers(value: Any) -> Floats:
    detach = getattr(value, "detach", None)
    if callable(detach):
        value = detach().cpu().double().numpy()
    return np.asarray(value, np.float64)


def carried(value: Any) -> tuple[tuple[str, str], ...]:
    """Return names and checksums of the integer tensors in a model's state, in order."""
    if several(value):
        return tuple(
            (f"{name} of model {place + 1}", checksum)
            for place, each in enumerate(value)
            for name, checksum in carried(each)
        )
    named = _state(value)
    if not isinstance(named, Mapping):
        return ()
    whole = {
        name: each for name, each in named.items() if hasattr(each, "shape") and not _floating(each)
    }
    return tuple(sorted((f"integer tensor {name}", _checksum(whole[name])) for name in whole))


def _state(value: Any) -> Any:
    """Return the state dict of a module; anything else is returned as it is."""
    state = getattr(value, "state_dict", None)
    return state() if callable(state) and not hasattr(value, "shape") else value


def _floating(tensor: Any) -> bool:
    method = getattr(tensor, "is_floating_point", None)
    return bool(method()) if callable(method) else np.asarray(tensor).dtype.kind == "f"


def _checksum(tensor: Any) -> str:
    detach = getattr(tensor, "detach", None)
    numbers = np.asarray(detach().cpu().numpy() if callable(detach) else tensor)
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


def pairs(data: Data, target: str, neighbouring: Neighbouring, seed: int) -> tuple[Neighbours, ...]:
    """Return the pairs of worlds among which pilots choose the one that reveals most about a loop.

    Crafted pairs are the worst that an adversary may choose: differential privacy allows it to know
    all other records.
    """
    if len(data) < 3:
        raise InputError(f"{len(data)} records are too few for an audit; give at least 3")
    if target == "real":
        return (_pair("real", data, _unlike(data), data, neighbouring),)
    point = crafted_features(data, seed)
    rare, common = rare_and_common(data.labels)
    last, zeros = len(data) - 1, np.zeros_like(data.features)
    blank = Data(zeros, np.full_like(data.labels, common))
    return tuple(
        _pair(name, crafted, last, data, neighbouring)
        for name, crafted in (
            ("loud among blank records", blank.with_record(last, LOUD * point, rare)),
            ("very loud among blank records", blank.with_record(last, VERY_LOUD * point, rare)),
            ("poison", data.with_record(last, point, rare)),
        )
    )


def crafted_features(data: Data, seed: int) -> npt.NDArray[Any]:
    """Return the features [...] of ClipBKD's poison, with the mean norm of a record."""
    flat = data.features.reshape(len(data), -1).astype(np.float64)
    towards = generator(seed, StreamRole.CRAFTED).standard_normal(flat.shape[1])
    point = clipbkd_point(flat, towards).reshape(data.features.shape[1:])
    if np.isfinite(point).all() and np.any(point):
        return np.asarray(point)
    return np.asarray((towards / np.linalg.norm(towards)).reshape(point.shape))  # all are zeros


def _pair(name: str, data: Data, place: int, real: Data, neighbouring: Neighbouring) -> Neighbours:
    other = 0 if place else 1
    absent = data.without(place)
    if neighbouring is Neighbouring.REPLACE:
        absent = data.with_record(place, data.features[other], data.labels[other])
    labels = np.unique(real.labels)
    return Neighbours(name, data, absent, place, real.features[other], labels, real.features)


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


def rare_and_common(labels: npt.NDArray[np.generic]) -> tuple[Any, Any]:
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
    places = generator(seed, StreamRole.CANDIDATES).permutation(len(whole))[:records]
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
