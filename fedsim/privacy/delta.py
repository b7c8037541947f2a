"""The one rule for δ, the probability with which a guarantee may fail, where nobody gives it.

Where the records are counted, it is one over their number, as in the experiments of Bernau et al.
(2021): the largest with which a guarantee says anything, since a mechanism that publishes one
record at random meets (0, 1/n)-differential privacy. Elsewhere it is `ASSUMED`, and whoever states
an epsilon states it too.
"""

ASSUMED = 1e-5
"""Where nobody knows how many records there are."""


def of_records(count: int) -> float:
    """Return δ for so many records, at least two: one over their number."""
    return 1 / count
