"""Values that stand for a missing value, such as 999 in a column of months."""

from collections import Counter
from collections.abc import Sequence
from datetime import date

CODES = frozenset({-1.0, *(sign * (10.0**n - 1) for n in range(1, 10) for sign in (-1, 1))})
"""Numbers that often stand for a missing value: -1, 9, 99, 999, and so on, and their negatives."""

DAYS = frozenset(
    float(date.fromisoformat(day).toordinal())
    for day in ("1899-12-30", "1900-01-01", "1901-01-01", "1970-01-01", "2099-12-31", "9999-12-31")
)
"""Dates that often stand for a missing one, in days since year 1."""

FEWEST_RECORDS = 10
"""A value in fewer records is not named, unless it is a code: it could be one person's."""

FEWEST_OTHERS = 3
"""Fewest different other values against which a value can lie far outside."""


def found(values: Sequence[float], codes: frozenset[float] = CODES) -> dict[float, int]:
    """Return the values that look like placeholders, at most one at either end, with their counts.

    The smallest or the largest value is a placeholder if it is farther from the others than these
    are apart; or if it is a code that is alone below 0, or that has two digits or more and is at
    least three times as frequent as its neighbour.
    """
    counts = Counter(values)
    ordered = sorted(counts)
    if len(ordered) <= FEWEST_OTHERS:
        return {}
    placeholders = {}
    for value, neighbour, last in (
        (ordered[0], ordered[1], ordered[-1]),
        (ordered[-1], ordered[-2], ordered[0]),
    ):
        count, code = counts[value], value in codes
        far = abs(value - neighbour) > abs(neighbour - last)
        frequent = count >= max(FEWEST_RECORDS, 3 * counts[neighbour]) and abs(value) > 9
        if (far and (code or count >= FEWEST_RECORDS)) or (
            code and (value < 0 <= neighbour or frequent)
        ):
            placeholders[value] = count
    return placeholders
