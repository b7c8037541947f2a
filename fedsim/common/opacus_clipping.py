"""What an optimizer of Opacus should do: its clipped sum, from single records, and its noise.

This module does not import Opacus: the caller's optimizer has loaded it.
"""

import math
import sys
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from adversaries.arrays import Floats

AGREE = 1e-2
"""Largest difference of a sum from the expected one, in clipping norms, for float32 rounding."""


FLOAT32 = 4
"""Bytes of a number. Norms of shorter numbers are computed in this precision."""


def sensitivities(optimizer: Any) -> Floats:
    """Return the largest L2 norm of a record's gradient after each clipping of `clipped_sums`."""
    by_layer = getattr(optimizer, "max_grad_norms", None)
    if by_layer:
        return np.array([np.linalg.norm(by_layer)])
    norm = float(optimizer.max_grad_norm)
    return np.array([norm, norm * len(optimizer.params) ** 0.5])


def clipped_sums(optimizer: Any) -> Floats | None:
    """Return the clipped sum of records' gradients, [clippings, P]; None without them."""
    rows, norms = _rows(optimizer), gradient_norms(optimizer)
    if rows is None or norms is None:
        return None
    by_layer = getattr(optimizer, "max_grad_norms", None)
    if by_layer:
        clippings = [np.asarray(by_layer, np.float64)[:, None] / (norms + 1e-6)]
    else:
        whole = np.broadcast_to(np.linalg.norm(norms, axis=0), norms.shape)
        clippings = [float(optimizer.max_grad_norm) / (each + 1e-6) for each in (whole, norms)]
    return np.array(
        [
            flat([row.new_tensor(each) @ row for each, row in zip(factors, rows, strict=True)])
            for factors in np.minimum(1, clippings)
        ]
    )


def gradient_norms(optimizer: Any) -> Floats | None:
    """Return the norm of each record's gradient, [layers, batch]; None where it is not visible."""
    rows = _rows(optimizer)
    if rows is not None:
        return np.array([each.norm(dim=1).cpu().double().numpy() for each in rows])
    # Ghost clipping keeps the norms alone.
    norms: list[Any] = [getattr(each, "_norm_sample", None) for each in optimizer.params]
    if not norms or any(each is None for each in norms):
        return None
    return np.array([each.detach().cpu().double().numpy().ravel() for each in norms])


def _rows(optimizer: Any) -> list[Any] | None:
    gradients = optimizer.grad_samples
    if not gradients or any(each is None for each in gradients):
        return None
    rows = [each.detach().reshape(len(each), math.prod(each.shape[1:])) for each in gradients]
    return [each.float() if each.element_size() < FLOAT32 else each for each in rows]


def clipped_to(expected: Floats, summed: Floats, limits: Floats) -> float | None:
    """Return the largest contribution of a record to a sum; None: the sum is not as expected."""
    agree = np.linalg.norm(expected - summed, axis=1) <= AGREE * limits[0]
    return float(limits[agree.argmax()]) if agree.any() else None


def flat(tensors: list[Any]) -> Floats:
    return np.concatenate([each.detach().cpu().double().numpy().ravel() for each in tensors])


def adds_opacus_noise(optimizer: Any) -> bool:
    """Return whether Opacus's own code draws the noise of an optimizer."""
    torch = sys.modules["torch"]
    add_noise = type(optimizer).add_noise
    draw = getattr(add_noise, "__globals__", {}).get("_generate_noise")
    names = [getattr(each, "__globals__", {}).get("__name__", "") for each in (add_noise, draw)]
    return (
        "add_noise" not in vars(optimizer)
        and all(each.startswith("opacus.") for each in names)
        and isinstance(torch.normal, BuiltinFunctionType)
    )
