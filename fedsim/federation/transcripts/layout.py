"""The arrays of a model as one vector."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Floats
from fedsim.federation.transcripts.records import Arrays


@dataclass(frozen=True)
class Layout:
    """The places of a model's floating-point arrays in one vector of P parameters.

    Attributes:
        shapes: shape of each array by name, in the order of the model.
        dtypes: precision of each array, which decides the size of its rounding.
    """

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[np.floating]]

    @classmethod
    def of(cls, model: Arrays) -> "Layout":
        floats = {name: array for name, array in model.items() if array.dtype.kind == "f"}
        return cls(
            {name: array.shape for name, array in floats.items()},
            {name: array.dtype for name, array in floats.items()},
        )

    def slices(self) -> dict[str, slice]:
        places, position = {}, 0
        for name, shape in self.shapes.items():
            places[name] = slice(position, position + math.prod(shape))
            position = places[name].stop
        return places

    def vector(self, arrays: Arrays) -> Floats | None:
        """Return these arrays as one vector [P]; None if one is missing or has another shape."""
        parts = [np.zeros(0)]
        for name, shape in self.shapes.items():
            array = arrays.get(name)
            if array is None or array.shape != shape:
                return None
            parts.append(array.ravel())
        return np.concatenate(parts, dtype=np.float64)

    def units(self, before: Floats, after: Floats) -> Floats:
        """Return the unit in the last place [P] of each parameter, of the larger of two values."""
        parts = [np.zeros(0)]
        for name, part in self.slices().items():
            sizes = np.maximum(np.abs(before[part]), np.abs(after[part]))
            # A float64 sum may be beyond the type's range, where spacing is not a number.
            largest = float(np.finfo(self.dtypes[name]).max)
            parts.append(np.spacing(np.minimum(sizes, largest).astype(self.dtypes[name])))
        return np.concatenate(parts, dtype=np.float64)
