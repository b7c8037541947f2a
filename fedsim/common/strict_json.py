"""Numbers as strict JSON can hold them, which has neither infinity nor NaN."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def strict_json(value: Any) -> Any:
    """Return nested data as strict JSON values.

    Args:
        value: mappings, lists, tuples and scalars; infinity becomes None, a NumPy scalar a plain
            one.

    Raises:
        ArithmeticError: NaN, which is never an answer.
    """
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if math.isnan(value):
            raise ArithmeticError("a number of the report is not a number")
        return None if math.isinf(value) else value
    return value
