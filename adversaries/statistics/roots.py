"""Roots of functions of one number.

The same steps as `scipy.optimize.brentq`, whose import takes longer than all roots of a run.
"""

import math
from collections.abc import Callable

PRECISION = 4 * 2.0**-52
"""Least relative tolerance that rounding allows."""

MOST_STEPS = 100


def find_root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = 2e-12,
    rtol: float = PRECISION,
) -> float:
    """Return a root within xtol + rtol |root|, by Brent's method.

    Brent, *Algorithms for Minimization Without Derivatives*, 1973, chapter 4.

    Args:
        function: continuous.
        low: an end of an interval at whose ends the function has different signs.
        high: the other end.
        xtol: absolute tolerance, above 0.
        rtol: relative tolerance, at least `PRECISION`.

    Raises:
        ValueError: equal signs, or a value that is NaN.
        RuntimeError: no root after `MOST_STEPS`.
    """
    before, now, across = low, high, 0.0
    at_before, at_now, at_across = _checked(function, low), _checked(function, high), 0.0
    if at_before == 0 or at_now == 0:
        return before if at_before == 0 else now
    if _negative(at_before) == _negative(at_now):
        raise ValueError(f"the function has the same sign at {low} and {high}")
    last = step = 0.0
    for _ in range(MOST_STEPS):
        # The root lies between `now`, the best point, and `across`, on the other side of it.
        if at_before != 0 and at_now != 0 and _negative(at_before) != _negative(at_now):
            across, at_across = before, at_before
            last = step = now - before
        if abs(at_across) < abs(at_now):
            before, now, across = now, across, now
            at_before, at_now, at_across = at_now, at_across, at_now
        tolerance = (xtol + rtol * abs(now)) / 2
        middle = (across - now) / 2
        if at_now == 0 or abs(middle) < tolerance:
            return now
        tried = math.inf
        if abs(last) > tolerance and abs(at_now) < abs(at_before):
            if before == across:  # a secant through two points
                tried = -at_now * (now - before) / (at_now - at_before)
            else:  # an inverse parabola through three
                here = (at_before - at_now) / (before - now)
                there = (at_across - at_now) / (across - now)
                top = -at_now * (at_across * there - at_before * here)
                bottom = there * here * (at_across - at_before)
                tried = top / bottom if bottom else math.inf
        # Bisect unless the other step is short and shrinks fast enough.
        if 2 * abs(tried) < min(abs(last), 3 * abs(middle) - tolerance):
            last, step = step, tried
        else:
            last = step = middle
        before, at_before = now, at_now
        now += step if abs(step) > tolerance else math.copysign(tolerance, middle)
        at_now = _checked(function, now)
    raise RuntimeError(f"no root after {MOST_STEPS} steps")


def _checked(function: Callable[[float], float], place: float) -> float:
    if math.isnan(value := float(function(place))):
        raise ValueError(f"the function is not a number at {place}")
    return value


def _negative(value: float) -> bool:
    return math.copysign(1.0, value) < 0
