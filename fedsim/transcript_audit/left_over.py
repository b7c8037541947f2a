"""What is left over of an aggregate without the updates that are known, reduced to few numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from adversaries.attacks.noisy_means import FINGERPRINT, Contribution, Release
from fedsim.transcripts.records import Arrays, ObservedRound

Floats = npt.NDArray[np.float64]


def contribution(weight: float, update: Floats, noise: Floats) -> Contribution:
    norm, projection = float(np.linalg.norm(update)), float(noise @ update)
    return Contribution(weight, weight * norm, weight * projection)


def reduced(
    round: int,
    noise: Floats,
    dither: Floats,
    contributions: dict[int, Contribution],
    sizes: Mapping[str, int],
    units: Floats,
    roundings: float,
    clipping_norm: float | None,
    claimed_std: float | None,
    count_std: float | None = None,
    mean_length: float = 0.0,
    along_mean: float = 0.0,
) -> Release:
    """Return what is kept of a round; units [P]: in the last place, rounded so many times."""
    by_array, position = {}, 0
    for name, size in sizes.items():
        of = slice(position, position + size)
        position = of.stop
        by_array[name] = size, float(noise[of] @ noise[of]), rounding_of(units[of], roundings)
    return Release(
        round,
        noise.size,
        claimed_std,
        float(noise @ noise),
        rounding_of(units, roundings),
        clipping_norm,
        contributions,
        by_array,
        (noise[:FINGERPRINT] + dither).astype(np.float32),
        count_std,
        rounding_of(units[:FINGERPRINT], roundings),
        mean_length,
        along_mean,
    )


def weights(observed: ObservedRound, weighting: str) -> dict[int, float] | None:
    """Return each node's weight in the mean; None if the nodes did not say their examples."""
    if weighting == "uniform":
        return dict.fromkeys(observed.replies, 1 / len(observed.replies))
    examples = {node: reply.num_examples for node, reply in observed.replies.items()}
    total = sum(count or 0.0 for count in examples.values())
    if None in examples.values() or not 0 < total < math.inf:
        return None
    return {node: (count or 0.0) / total for node, count in examples.items()}


def aligned(
    arrays: Arrays, names: Iterable[str], shapes: Iterable[tuple[int, ...]]
) -> Floats | None:
    """Return these arrays as one vector, None if one is missing or has another shape."""
    parts = [np.zeros(0)]
    for name, shape in zip(names, shapes, strict=True):
        array = arrays.get(name)
        if array is None or array.shape != shape:
            return None
        parts.append(array.ravel())
    return np.concatenate(parts, dtype=np.float64)


def units_of(before: Floats, after: Floats, model: Arrays, names: Sequence[str]) -> Floats:
    """Return the unit in the last place [P] of each parameter, of the larger of two values."""
    parts, position = [np.zeros(0)], 0
    for name in names:
        part = slice(position, position + model[name].size)
        position = part.stop
        sizes = np.maximum(np.abs(before[part]), np.abs(after[part]))
        limits = np.finfo(model[name].dtype)
        parts.append(np.spacing(np.minimum(sizes, float(limits.max)).astype(model[name].dtype)))
    return np.concatenate(parts, dtype=np.float64)


def rounding_of(units: Floats, roundings: float) -> float:
    """Return the root mean square that so many roundings leave over.

    A rounding to the nearest is off by up to half a unit in the last place, evenly: 1/sqrt(12).
    """
    return math.sqrt(roundings * float(units @ units) / 12 / max(1, units.size))
