"""Numbers as strict JSON, which has neither infinity nor NaN."""

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

INFINITIES = "Infinity", "-Infinity"


def real_json(number: float) -> float | str:
    """Return a number of a report for JSON: a float, or one of INFINITIES; else ArithmeticError."""
    if math.isnan(number):
        raise ArithmeticError("a number of the report is NaN")
    return INFINITIES[number < 0] if math.isinf(number) else float(number)


def report_json(value: Any) -> Any:
    """Return nested data for report.json, with INFINITIES. Raises ArithmeticError for NaN."""
    return _encoded(value, real_json)


def strict_json(value: Any) -> Any:
    """Return nested data as strict JSON, None for infinity. Raises ArithmeticError for NaN."""
    return _encoded(value, _finite)


def _finite(number: float) -> float | None:
    written = real_json(number)
    return None if isinstance(written, str) else written


def _encoded(value: Any, number: Callable[[float], Any]) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _encoded(item, number) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(item, number) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return value.value
    return number(value) if isinstance(value, float) else value
