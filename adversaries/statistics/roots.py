"""Roots of functions of one number."""

from collections.abc import Callable


def find_root(
    function: Callable[[float], float], low: float, high: float, **tolerances: float
) -> float:
    """Return a root by Brent's method, `scipy.optimize.brentq`.

    Args:
        function: continuous.
        low: an end of an interval at whose ends the function has different signs.
        high: the other end.
        tolerances: xtol and rtol of SciPy's function.

    Raises:
        ValueError: equal signs, or a value that is NaN.
        RuntimeError: no root after 100 steps.
    """
    from scipy.optimize import brentq  # noqa: PLC0415  (slow; a client needs no root)

    return float(brentq(function, low, high, **tolerances))
