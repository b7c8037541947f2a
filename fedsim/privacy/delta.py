"""The default δ, the probability with which a guarantee may fail: a tenth of one over the records.

One over their number is the largest δ that says anything: a mechanism that publishes one record at
random meets (0, 1/n)-differential privacy.
"""

ASSUMED = 1e-5
"""δ where the number of records is unknown."""


def of_records(count: int) -> float:
    """Return δ = 1/(10 n) for n records, at least two."""
    return 1 / (10 * count)
