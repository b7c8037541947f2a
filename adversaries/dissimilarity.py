"""Dissimilarity of records: what dataset sensitivity compares instead of gradients.

A measure maps features a [A, *shape] and b [B, *shape] to the distances of all pairs, float64
[A, B]. Beside that result, memory grows with A + B only. Source: Bernau et al., section 6.1.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from fedsim.errors import InputError
from fedsim.registry import lookup

Features = npt.NDArray[np.floating[Any]]
Distances = npt.NDArray[np.float64]

SSIM_WINDOW = 7
"""Side of the uniform window, as in scikit-image."""

SSIM_LUMINANCE, SSIM_CONTRAST = 0.01**2, 0.03**2
"""C1 = (K1 R)^2 and C2 = (K2 R)^2 of Wang et al. (2004) for a data range R of 1."""

BLOCK_VALUES = 2**19
"""Window values of one block of SSIM pairs: 4 MiB an array stays in cache (5 us for 28x28)."""

BLOCK_ROWS = 8
"""Images of `a` in one block, enough for a matrix product to be efficient."""


def ssim(a: Features, b: Features) -> Distances:
    """Return 1 - SSIM of all pairs of images [N, H, W] or [N, C, H, W], pixel values in [0, 1].

    The structural similarity of `skimage.metrics.structural_similarity` with its defaults (uniform
    7x7 window, sample covariance, K1 = .01, K2 = .03) and data_range = 1; channels are averaged.
    Where 7 does not fit, the window is the largest odd one that does. Raises InputError if the
    records are not images, or are smaller than 3x3. Source: Wang et al. (2004), Eq. 13.
    """
    if a.ndim not in (3, 4) or min(a.shape[-2:]) < 3:
        raise InputError(
            f"ssim compares images of at least 3x3, but a record has shape {a.shape[1:]}; choose "
            f"another measure: {', '.join(name for name in MEASURES if name != 'ssim')}"
        )
    height, width = a.shape[-2:]
    window = min(SSIM_WINDOW, (min(height, width) - 1) // 2 * 2 + 1)
    windows = (height - window + 1) * (width - window + 1)
    distances = np.empty((len(a), len(b)))
    for rows in _slices(len(a), BLOCK_ROWS):
        for columns in _slices(len(b), max(1, BLOCK_VALUES // (BLOCK_ROWS * windows))):
            similarity = _mean_ssim(_channels(a[rows]), _channels(b[columns]), window)
            distances[rows, columns] = 1 - similarity.numpy()
    return distances


def _mean_ssim(a: Tensor, b: Tensor, window: int) -> Tensor:
    """Return the SSIM of all pairs, [A, B], of images [C, A, H, W] and [C, B, H, W]."""
    per_channel = [_channel_ssim(a[c], b[c], window) for c in range(len(a))]
    return torch.stack(per_channel).mean(0)


def _channel_ssim(a: Tensor, b: Tensor, window: int) -> Tensor:
    """Return the SSIM of all pairs, [A, B], of images [A, H, W] and [B, H, W].

    The mean over windows is the matrix product `down @ image @ across.T`, so that the mean of x * y
    needs no product of images: weighting `across` by the pixels of a turns it into a product of
    matrices too. Axes are [row, A, column, B] from there on, B last for contiguous arithmetic.
    """
    height, width = a.shape[-2:]
    down, across = _window_means(height, window), _window_means(width, window)
    unbiased = window**2 / (window**2 - 1)

    def moments(images: Tensor) -> tuple[Tensor, Tensor]:
        mean = down @ images @ across.T
        variance = unbiased * (down @ images.square() @ across.T - mean.square())
        return mean, variance

    mean_a, variance_a = (m.permute(1, 0, 2).unsqueeze(3) for m in moments(a))
    mean_b, variance_b = (m.permute(1, 2, 0).contiguous().unsqueeze(1) for m in moments(b))

    weighted = a.permute(1, 0, 2).unsqueeze(2) * across
    along_rows = weighted.flatten(1, 2) @ b.permute(1, 2, 0).contiguous()
    mean_ab = (down @ along_rows.flatten(1)).reshape(len(down), len(a), len(across), len(b))

    # In place: another array of a block's size would not stay in cache.
    means = mean_a * mean_b
    covariance = mean_ab.sub_(means).mul_(unbiased)
    ratio = covariance.mul_(2).add_(SSIM_CONTRAST).mul_(means.mul_(2).add_(SSIM_LUMINANCE))
    ratio.div_(torch.add(mean_a.square() + SSIM_LUMINANCE, mean_b.square(), out=means))
    ratio.div_(torch.add(variance_a + SSIM_CONTRAST, variance_b, out=means))
    return ratio.mean((0, 2))


def _window_means(side: int, window: int) -> Tensor:
    """Return the matrix [side - window + 1, side] that averages each window of a line of pixels."""
    ones = torch.ones(side - window + 1, side, dtype=torch.float64)
    return ones.triu().tril(window - 1) / window


def _channels(images: Features) -> Tensor:
    """Return images [N, H, W] or [N, C, H, W] as float64 [C, N, H, W]."""
    values = torch.from_numpy(images.astype(np.float64))
    return values.unsqueeze(0) if values.ndim == 3 else values.transpose(0, 1)


def hamming(a: Features, b: Features) -> Distances:
    """Return the number of features that differ, for binary features.

    Raises InputError if a feature is neither 0 nor 1.
    """
    x, y = _flat(a), _flat(b)
    if not all(np.isin(features, (0, 1)).all() for features in (x, y)):
        raise InputError(
            "hamming counts differing binary features, but some are neither 0 nor 1; choose "
            "another measure, for example manhattan, which is the same on binary features"
        )
    ones: Distances = np.add.outer(x.sum(axis=1), y.sum(axis=1))
    return ones - 2 * (x @ y.T)


def manhattan(a: Features, b: Features) -> Distances:
    """Return the sum of absolute differences."""
    distances: Distances = cdist(_flat(a), _flat(b), "cityblock")
    return distances


def euclidean(a: Features, b: Features) -> Distances:
    """Return the root of the sum of squared differences."""
    distances: Distances = cdist(_flat(a), _flat(b), "euclidean")
    return distances


def cosine(a: Features, b: Features) -> Distances:
    """Return 1 - cos of the angle between two records.

    A zero record has no direction: its distance is 1 to any other, 0 to another zero record.
    """
    x, y = _directions(a), _directions(b)
    both_zero = np.outer(~x.any(axis=1), ~y.any(axis=1))
    return 1 - np.where(both_zero, 1.0, np.clip(x @ y.T, -1, 1))


def _directions(features: Features) -> Distances:
    """Return the records scaled to length 1, [N, size]; zeros stay zeros."""
    values = _flat(features)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    np.divide(values, norms, out=values, where=norms > 0)
    return values


def _flat(features: Features) -> Distances:
    return features.reshape(len(features), -1).astype(np.float64)


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


Measure = Callable[[Features, Features], Distances]
MEASURES: dict[str, Measure] = {
    "ssim": ssim,
    "hamming": hamming,
    "manhattan": manhattan,
    "euclidean": euclidean,
    "cosine": cosine,
}
"""Measures by name."""


def measure(name: str) -> Measure:
    """Return the named measure. Raises InputError."""
    return lookup(MEASURES, name, "challenge.dissimilarity")
