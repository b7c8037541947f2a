"""The one rule for δ, the probability with which a guarantee may fail, where nobody gives it.

Where the records are counted, it is a tenth of one over their number. One over their number is the
largest δ that says anything: a mechanism that publishes one record at random meets
(0, 1/n)-differential privacy. Elsewhere it is `ASSUMED`. Every stated epsilon has its δ beside it.
"""

ASSUMED = 1e-5
"""Where nobody knows how many records there are."""

BELOW = 10
"""How far δ lies below one over the records."""


def of_records(count: int) -> float:
    """Return δ for so many records, at least two: 1/(10 n)."""
    return 1 / (BELOW * count)
