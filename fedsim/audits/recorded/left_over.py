"""The aggregate less the known updates, reduced to few numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adversaries.attacks.noisy_means import FINGERPRINT, Contribution, Release
from fedsim.federation.transcripts.records import Arrays

Floats = npt.NDArray[np.float64]
LARGEST = 1e30
SIMULATION_SEED = 0x7EA1


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
            largest = float(np.finfo(self.dtypes[name]).max)
            parts.append(np.spacing(np.minimum(sizes, largest).astype(self.dtypes[name])))
        return np.concatenate(parts, dtype=np.float64)


def believable(*vectors: Floats | None) -> bool:
    """Return whether all vectors exist, with numbers whose squares do not overflow."""
    return all(one is not None and bool(np.abs(one).max() < LARGEST) for one in vectors)


class Dither:
    """Uniform noise over one unit in the last place, since noise held in a model is discrete."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng([SIMULATION_SEED, 0, 1])  # apart from bystanders'

    def draw(self, units: Floats) -> Floats:
        size = units[:FINGERPRINT].size
        return units[:FINGERPRINT] * self._generator.uniform(-0.5, 0.5, size)


@dataclass(frozen=True)
class Rounding:
    """The rounding of a round's numbers.

    Attributes:
        units: unit in the last place of each parameter [P].
        times: number of roundings of each; partial sums count as parts of one.
        dither: dither of the fingerprint, [min(P, FINGERPRINT)], within half a unit.
    """

    units: Floats
    times: float
    dither: Floats

    def of(self, part: slice = slice(None)) -> float:
        """Return the root mean square of these parameters' rounding errors.

        An error is uniform up to half a unit in the last place, with standard deviation 1/sqrt(12).
        """
        units = self.units[part]
        return math.sqrt(self.times * float(units @ units) / 12 / max(1, units.size))


@dataclass(frozen=True)
class Claims:
    """The stated mechanism of a round.

    Attributes:
        clipping_norm: largest L2 norm of an update; None where no clipping is known.
        std: standard deviation of the noise on every coordinate; None where it is unstated.
        count_std: noise on a count of clipped updates, 0 where unrecorded; None where no count is
            released.
    """

    clipping_norm: float | None
    std: float | None
    count_std: float | None = None


def contribution(weight: float, update: Floats, noise: Floats) -> Contribution:
    """Return one client's part in a mean."""
    norm, projection = float(np.linalg.norm(update)), float(noise @ update)
    return Contribution(weight, weight * norm, weight * projection)


def reduced(
    round: int,
    noise: Floats,
    contributions: dict[int, Contribution],
    layout: Layout,
    rounding: Rounding,
    claims: Claims,
    mean: Floats | None = None,
) -> Release:
    """Return the few numbers that are kept of a round."""
    length = 0.0 if mean is None else math.sqrt(mean @ mean)
    along = 0.0 if mean is None else float(noise @ mean) / (length or 1.0)
    first = slice(FINGERPRINT)
    return Release(
        round=round,
        size=noise.size,
        claimed_std=claims.std,
        energy=float(noise @ noise),
        rounding=rounding.of(),
        clipping_norm=claims.clipping_norm,
        contributions=contributions,
        by_array={
            name: (noise[part].size, float(noise[part] @ noise[part]), rounding.of(part))
            for name, part in layout.slices().items()
        },
        fingerprint=(noise[first] + rounding.dither).astype(np.float32),
        count_std=claims.count_std,
        fingerprint_rounding=rounding.of(first),
        mean_length=length,
        along_mean=along,
    )
