"""The one rule for δ, the probability with which a guarantee may fail, where nobody gives it.

Where the people in the data are known, it is one over their number, as in the experiments of Bernau
et al. (2021): the largest with which a guarantee says anything, since a mechanism that publishes
one record at random meets (0, 1/n)-differential privacy. Elsewhere it is `ASSUMED`, and whoever
states an epsilon states it too.
"""

ASSUMED = 1e-5
"""Where nobody knows how many people there are."""


def of_people(count: int) -> float:
    """Return δ for so many people, at least two: one over their number.

    Args:
        count: of the records, or of the clients where a client is the unit.
    """
    return 1 / count
