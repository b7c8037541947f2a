"""Gaussian noise in a filter of NVFlare, in two ways."""

import math

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable


class GaussianPrivacy(DXOFilter):
    """Adds what the filter of this name does that NVFlare's research examples come with.

    Its noise is a share of a percentile of the very update, which it does not clip.
    """

    def __init__(self, sigma0: float = 0.1, max_percentile: float = 95.0) -> None:
        super().__init__([DataKind.WEIGHT_DIFF], [DataKind.WEIGHT_DIFF])
        self.sigma0, self.max_percentile = sigma0, max_percentile

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        """Return the update with noise."""
        sizes = np.abs(np.concatenate([array.ravel() for array in dxo.data.values()]))
        std = self.sigma0 * np.percentile(sizes[sizes > 0], self.max_percentile)
        dxo.data = _noised(dxo.data, float(std))
        return dxo


class ClippedGaussian(DXOFilter):
    """The Gaussian mechanism: clips the whole update, and adds noise that does not depend on it."""

    def __init__(self, clipping_norm: float, noise_std: float) -> None:
        super().__init__([DataKind.WEIGHT_DIFF], [DataKind.WEIGHT_DIFF])
        self.clipping_norm, self.noise_std = clipping_norm, noise_std

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        """Return the update, clipped and with noise."""
        length = math.sqrt(sum(float((array**2).sum()) for array in dxo.data.values()))
        share = min(1.0, self.clipping_norm / length) if length else 1.0
        clipped = {name: share * array for name, array in dxo.data.items()}
        dxo.data = _noised(clipped, self.noise_std)
        return dxo


def _noised(data: dict[str, np.ndarray], std: float) -> dict[str, np.ndarray]:
    generator = np.random.default_rng()
    return {name: array + generator.normal(0, std, array.shape) for name, array in data.items()}
