"""The rows of a report's page, and how each measurement stands to its limit."""

from dataclasses import dataclass

from fedsim.report.report_values import Interval, Report, is_clipped, is_pac

Entries = list[tuple[str, str]]


@dataclass(frozen=True)
class Label:
    """What every reader must know before the numbers."""

    title: str
    text: str


@dataclass(frozen=True)
class Mark:
    """How a measurement stands to its limit; kind is good, caution or alarm."""

    kind: str
    text: str


@dataclass(frozen=True)
class Row:
    """One measured thing, its limit, and what both mean."""

    name: str
    answer: str
    limit: str
    reading: str
    detail: str = ""
    mark: Mark | None = None


def against(
    report: Report, name: str, interval: Interval | None, limit: float | None
) -> Mark | None:
    """Return how a confidence interval stands to its limit; None without either."""
    if interval is None or limit is None:
        return None
    if limit >= 1:
        without_clipping = "No protection" if is_clipped(report) else "No guarantee"
        return Mark("caution", "No limit at this budget" if is_pac(report) else without_clipping)
    if name in report["alarms"]:
        return Mark("alarm", "Above the limit")
    if interval[0] > limit:
        return Mark("caution", "Above the limit, within chance")
    if interval[1] < limit:
        return Mark("good", "Below the limit")
    return Mark("good", "Compatible with the limit")


def beside_theory(
    report: Report, alarm: str, value: float, limit: float, chance: float | None = None
) -> Mark:
    """Return how a lower bound on epsilon stands to the limit.

    alarm: its name among the alarms; chance: how often chance alone puts it above the limit.
    """
    if alarm in report["alarms"]:
        return Mark("alarm", "Above theory")
    if value > limit:
        often = "" if chance is None else f" (p = {chance:.2g})"
        return Mark("caution", f"Above theory, within chance{often}")
    return Mark("good", "Consistent")


def gap(mark: Mark | None, unlimited: bool, few: str) -> str:
    """Say what lies between a lower bound and its limit; few: what there may be too few of."""
    if unlimited:
        return "Differential privacy sets no limit here that it could be held to."
    if mark is not None and mark.kind == "alarm":
        return "Chance does this rarely: repeat with another seed, then doubt the noise."
    if mark is not None and mark.kind == "caution":
        return "It is above its limit, within what chance alone gives."
    return f"What it lacks of the limit is slack, or too few {few} to tell."
