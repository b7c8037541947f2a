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
    """Return a warning for a δ that says nothing; "" for a smaller one.

    Args:
        count: number of records, or of clients.
        unit: of privacy: "record" or "client".
    """
    if delta * count < 1:
        return ""
    return (
        f"δ = {delta:.3g} is not below 1/{count}: a mechanism that publishes one {unit} at random "
        "meets it. Set privacy.delta far below."
    )
