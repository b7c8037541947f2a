"""Checks of a run against theory: what a report's alarms are, and how many chance could raise."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check that was made, whatever came of it.

    Attributes:
        name: of the alarm that it may raise.
        alarm: what contradicts theory, in whole sentences with the likely cause; None where nothing
            does. An honest run raises it with probability at most 1 - ALARM_CONFIDENCE.
        by_chance: false where what is checked is no statistic, so that an honest run never raises
            it.
    """

    name: str
    alarm: str | None
    by_chance: bool = True


def alarms(checks: Iterable[Check]) -> dict[str, str]:
    return {check.name: check.alarm for check in checks if check.alarm}


def chance_alarms(checks: Iterable[Check]) -> int:
    """Return how many alarms chance could raise: one for each check that is a statistic.

    As many times 1 - ALARM_CONFIDENCE bounds how often a report accuses an honest mechanism.
    """
    return sum(check.by_chance for check in checks)
