"""The default δ, the probability with which a guarantee may fail: a tenth of one over the records.

One over their number is the largest δ that says anything: a mechanism that publishes one record at
random meets (0, 1/n)-differential privacy.
"""

ASSUMED = 1e-5
"""δ where the number of records is unknown."""


def of_records(count: int) -> float:
    """Return δ = 1/(10 n) for n records, at least two."""
    return 1 / (10 * count)


def too_large(delta: float, count: int, unit: str) -> str:
    """Return a warning for a δ above one over the units; "" for another.

    Args:
        count: number of records, or of clients.
        unit: of privacy: "record" or "client".
    """
    if delta <= 1 / count:
        return ""
    return (
        f"Delta is {delta:g}, above 1/{count}. A mechanism that publishes one of {count} {unit}s "
        "at random would keep such a guarantee. For people, choose a smaller privacy.delta."
    )
