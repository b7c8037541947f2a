"""The global seeds that the code of an app or a loop may draw from."""

import random
import sys

import numpy as np


def set_seeds(seed: int) -> None:
    """Set the global seeds that an app's noise may come from: Python's, NumPy's, PyTorch's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (Flower draws its noise from it)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
