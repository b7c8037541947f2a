"""How measurements stand to their limits."""

from fedsim.pages.blocks import Mark
from fedsim.report.sections.facts import is_clipped, is_pac
from fedsim.results.numbers import Ends
from fedsim.results.report import Report


def against(report: Report, name: str, interval: Ends | None, limit: float | None) -> Mark | None:
    """Return how a confidence interval stands to its limit; None without either.

    Args:
        report: whose alarms decide whether the interval is above.
        name: of the alarm where it is.
        interval: in units of the limit.
        limit: an advantage or a probability; from 1 on it limits nothing.
    """
    if interval is None or limit is None:
        return None
    if limit >= 1:
        without_clipping = "No protection" if is_clipped(report) else "No guarantee"
        return Mark("caution", "No limit at this budget" if is_pac(report) else without_clipping)
    if name in report.alarms:
        return Mark("alarm", "Above the limit")
    if interval[0] > limit:
        return Mark("caution", "Above the limit, within chance")
    if interval[1] < limit:
        return Mark("good", "Below the limit")
    return Mark("open", "Not contradicted")


def beside_theory(
    report: Report, alarm: str, value: float, limit: float, chance: float | None = None
) -> Mark:
    """Return how a lower bound on epsilon stands to the limit.

    Args:
        report: whose alarms decide whether the bound is above.
        alarm: its name among the alarms.
        value: the lower bound.
        limit: the epsilon of theory.
        chance: how often chance alone puts the bound above the limit; None if unknown.
    """
    if alarm in report.alarms:
        return Mark("alarm", "Above theory")
    if value > limit:
        often = "" if chance is None else f" (p = {chance:.2g})"
        return Mark("caution", f"Above theory, within chance{often}")
    return Mark("good", "Consistent")


def gap(mark: Mark | None, unlimited: bool, few: str) -> str:
    """Return a sentence about what lies between a lower bound and its limit.

    Args:
        mark: how the bound stands to it.
        unlimited: whether the limit is infinite.
        few: what there may be too few of, "trials" or "canaries".
    """
    if unlimited:
        return "Differential privacy sets no limit here that it could be held to."
    if mark is not None and mark.kind == "alarm":
        return "Chance does this rarely: repeat with another seed, then doubt the noise."
    if mark is not None and mark.kind == "caution":
        return "It is above its limit, within what chance alone gives."
    return f"What it lacks of the limit is slack, or too few {few} to tell."
