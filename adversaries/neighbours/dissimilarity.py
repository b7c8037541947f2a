"""Dissimilarity of records, which dataset sensitivity compares instead of gradients.

A measure maps features a [A, *shape] and b [B, *shape] to the distances of all pairs, float64
[A, B]. Besides that result, memory grows with A + B only. Source: Bernau et al., section 6.1.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.registry import lookup

Features = npt.NDArray[np.floating[Any]]
Distances = Floats
Columns = npt.NDArray[np.integer[Any]]
"""For each feature, the number of the column that it encodes; one-hot features share theirs."""

SSIM_WINDOW = 7
"""Side of the uniform window, as in scikit-image."""

SSIM_LUMINANCE, SSIM_CONTRAST = 0.01**2, 0.03**2
"""C1 = (K1 R)^2 and C2 = (K2 R)^2 of Wang et al. (2004) for a data range R of 1."""

BLOCK_VALUES = 2**18
"""Window values in a block of SSIM pairs: 2 MiB an array stays in cache."""

BLOCK_ROWS = 8
"""Images of `a` in a block, enough for an efficient matrix product."""


def ssim(a: Features, b: Features) -> Distances:
    """Return 1 - SSIM of all pairs of images, [A, B].

    It equals `skimage.metrics.structural_similarity` with its defaults (uniform 7x7 window, sample
    covariance, K1 = .01, K2 = .03) and data_range = 1; channels are averaged. For smaller images
    the window is the largest odd one that fits.

    Args:
        a: images [A, H, W] or [A, C, H, W], pixel values in [0, 1].
        b: images [B, ...] of the same shape.

    Raises InputError for no images, or smaller than 3x3. Source: Wang et al. (2004), Eq. 13.
    """
    if a.ndim not in (3, 4) or min(a.shape[-2:]) < 3:
        raise InputError(
            f"ssim compares images of at least 3x3, but a record has shape {a.shape[1:]}; choose "
            f"another measure: {', '.join(other for other in MEASURES if other != 'ssim')}"
        )
    window = min(SSIM_WINDOW, (min(a.shape[-2:]) - 1) // 2 * 2 + 1)
    # n/(n - 1) turns the variance over a window of n pixels into the sample variance.
    unbiased = window**2 / (window**2 - 1)
    # The mean over windows is `down @ image @ across.T`. Weighting `across` by the pixels of a
    # makes the mean of x * y a matrix product too, without products of images. From there on axes
    # are [row, A, column, B], with B last for contiguous arithmetic.
    height, width = a.shape[-2:]
    down, across = _window_means(height, window), _window_means(width, window)
    weights_across = 2 * unbiased * across

    windows = len(down) * len(across)
    most = max(1, BLOCK_VALUES // (BLOCK_ROWS * windows))
    size = min(BLOCK_ROWS, len(a)) * len(across) * min(most, len(b))
    # Allocated once: new memory for every block would cost more than the arithmetic.
    along_rows = torch.empty(height * size, dtype=torch.float64)
    ratios, scratch = (torch.empty(len(down) * size, dtype=torch.float64) for _ in range(2))

    def channel(first: list[Tensor], second: list[Tensor]) -> Tensor:
        """Return the sum over windows, [A, B], of images [A, H, W] and [row, column, B]."""
        x, *moments_x = first
        y, *moments_y = second
        mean_x, variance_x = (m.permute(1, 0, 2).unsqueeze(3).contiguous() for m in moments_x)
        mean_y, variance_y = (m.unsqueeze(1) for m in moments_y)
        shape = (len(down), len(x), len(across), y.shape[2])
        weighted = (x.permute(1, 0, 2).unsqueeze(2) * weights_across).flatten(1, 2)
        products = _part(along_rows, (*weighted.shape[:2], shape[3]))
        torch.bmm(weighted, y, out=products)
        ratio, other = _part(ratios, shape), _part(scratch, shape)
        torch.mm(down, products.flatten(1), out=ratio.view(len(down), -1))

        # (2 cov + C2) (2 mean mean + C1), divided by the sums of squared means and of variances.
        torch.mul(mean_x, mean_y, out=other)
        ratio.sub_(other, alpha=2 * unbiased).add_(SSIM_CONTRAST)
        ratio.mul_(other.mul_(2).add_(SSIM_LUMINANCE))
        ratio.div_(torch.add(mean_x.square() + SSIM_LUMINANCE, mean_y.square(), out=other))
        ratio.div_(torch.add(variance_x + SSIM_CONTRAST, variance_y, out=other))
        return ratio.sum(0).sum(1)

    moments = partial(_with_moments, down=down, across=across, unbiased=unbiased)
    left = [moments(x) for x in _channels(a)]
    distances = np.empty((len(a), len(b)))
    for columns in _slices(len(b), most):
        right = [
            [part.permute(1, 2, 0).contiguous() for part in moments(y)]
            for y in _channels(b[columns])
        ]
        for rows in _slices(len(a), BLOCK_ROWS):
            sums = [
                channel([part[rows] for part in first], second)
                for first, second in zip(left, right, strict=True)
            ]
            distances[rows, columns] = 1 - torch.stack(sums).sum(0).numpy() / (windows * len(left))
    return distances


def _with_moments(images: Tensor, down: Tensor, across: Tensor, unbiased: float) -> list[Tensor]:
    """Return images, and their means and variances over windows."""
    mean = down @ images @ across.T
    variance = unbiased * (down @ images.square() @ across.T - mean.square())
    return [images, mean, variance]


def _part(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the beginning of a flat buffer as a tensor of this shape."""
    return buffer[: int(np.prod(shape))].view(shape)


def _window_means(side: int, window: int) -> Tensor:
    """Return the matrix [side - window + 1, side] that averages each window of a line of pixels."""
    means = torch.zeros(side - window + 1, side, dtype=torch.float64)
    # Row i has the window's pixels i, i + 1, ...
    pixels = torch.arange(len(means)).unsqueeze(1) + torch.arange(window)
    return means.scatter_(1, pixels, 1 / window)


def _channels(images: Features) -> Tensor:
    """Return images [N, H, W] or [N, C, H, W] as float64 [C, N, H, W]."""
    values = torch.from_numpy(images.astype(np.float64))
    return values.unsqueeze(0) if values.ndim == 3 else values.transpose(0, 1)


def hamming(a: Features, b: Features) -> Distances:
    """Return the number of features that differ, [A, B].

    Args:
        a: binary features [A, *shape].
        b: binary features [B, *shape].

    Raises InputError for a feature that is neither 0 nor 1.
    """
    if not (_is_binary(a).all() and _is_binary(b).all()):
        raise InputError(
            "hamming counts differing binary features, but a feature is neither 0 nor 1; choose "
            "another measure, for example manhattan, which equals hamming on binary features"
        )
    x, y = _flat(a), _flat(b)
    # |x - y| = x + y - 2 x y of bits: a matrix product, exact in whole numbers.
    distances: Distances = (-2 * x) @ y.T
    distances += x.sum(axis=1)[:, None]
    distances += y.sum(axis=1)
    return distances


def manhattan(a: Features, b: Features) -> Distances:
    """Return the sum of absolute differences, [A, B].

    Args:
        a: features [A, *shape].
        b: features [B, *shape].
    """
    return _distances(_flat(a), _flat(b), "cityblock")


def gower(a: Features, b: Features, columns: Columns | None = None) -> Distances:
    """Return Gower's distance of mixed records: the mean difference over columns, [A, B].

    A number differs by its absolute difference over the column's range, which must have been scaled
    to 1, a category by 0 or 1.

    Args:
        a: features [A, *shape] in [0, 1].
        b: features [B, *shape] in [0, 1].
        columns: int [features], the column of each; None or empty if every feature is separate.

    Raises InputError for features outside [0, 1]. Source: Gower (1971), Biometrics 27.
    """
    x, y = _flat(a), _flat(b)
    if min(x.min(), y.min()) < 0 or max(x.max(), y.max()) > 1:
        raise InputError(
            "gower compares features that are scaled to [0, 1], but a feature lies outside; choose "
            "another measure, for example euclidean"
        )
    column_of = np.arange(x.shape[1]) if columns is None or not len(columns) else columns
    _, sizes = np.unique(column_of, return_counts=True)
    # Another category changes two one-hot features of its column, so each counts half.
    weights = np.where(np.isin(column_of, np.unique(column_of)[sizes > 1]), 0.5, 1.0)
    return _distances(x * weights, y * weights, "cityblock") / len(sizes)


def _distances(x: Distances, y: Distances, metric: str) -> Distances:
    from scipy.spatial.distance import cdist  # noqa: PLC0415  (slow to import)

    distances: Distances = cdist(x, y, metric)
    return distances


def _is_binary(features: Features) -> Bools:
    flat = features.reshape(len(features), -1)
    return ((flat == 0) | (flat == 1)).all(axis=0)


def euclidean(a: Features, b: Features) -> Distances:
    """Return the root of the sum of squared differences, [A, B].

    Args:
        a: features [A, *shape].
        b: features [B, *shape].
    """
    return _distances(_flat(a), _flat(b), "euclidean")


def cosine(a: Features, b: Features) -> Distances:
    """Return 1 - cos of the angle between two records, [A, B].

    Args:
        a: features [A, *shape].
        b: features [B, *shape].
    """
    x, y = _flat(a), _flat(b)
    distances = _distances(x, y, "cosine")
    # Two zero records are equal; a zero record has distance 1 from all others.
    empty, other = ~x.any(axis=1), ~y.any(axis=1)
    distances[empty], distances[:, other] = 1, 1
    distances[np.ix_(empty, other)] = 0
    return distances


def _flat(features: Features) -> Distances:
    return features.reshape(len(features), -1).astype(np.float64)


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


Measure = Callable[..., Distances]
"""Features [A, *shape] and [B, *shape] -> distances [A, B]; some also take `columns`."""

MEASURES: dict[str, Measure] = {
    "ssim": ssim,
    "hamming": hamming,
    "manhattan": manhattan,
    "euclidean": euclidean,
    "cosine": cosine,
    "gower": gower,
}
"""Measures by name."""

BY_COLUMN = frozenset({"gower"})
"""Measures that also take the column of each feature."""

OF_RAW_FEATURES = frozenset({"ssim", "hamming", "gower"})
"""Measures of pixels, bits or columns, which embeddings do not have."""


def measure(name: str, columns: Columns | None = None) -> Callable[[Features, Features], Distances]:
    """Return a measure by its name.

    Args:
        name: one of `MEASURES`, or a user's own "package.module:name".
        columns: int [features], the column of each; only measures in `BY_COLUMN` take them.

    Raises InputError for an unknown name, or code that is not allowed.
    """
    chosen = lookup(MEASURES, name, "challenge.dissimilarity")
    return partial(chosen, columns=columns) if name in BY_COLUMN else chosen
