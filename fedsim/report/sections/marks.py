"""How lower bounds on epsilon stand to the epsilon of theory."""

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Mark


def beside_theory(
    report: Report, alarm: str, value: float, limit: float, chance: float | None = None
) -> Mark:
    """Return how a lower bound on epsilon stands to the limit.

    Args:
        chance: how often chance alone puts the bound above the limit; None if unknown.
    """
    if alarm in report.contradictions:
        return Mark("alarm", "Above theory")
    if value > limit:
        often = "" if chance is None else f" (p = {chance:.2g})"
        return Mark("caution", f"Above theory, within chance{often}")
    return Mark("good", "Consistent")
