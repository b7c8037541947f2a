"""Checks of a run against theory: the source of a report's alarms."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """A check that was made, with its alarm if it raised one.

    Attributes:
        name: name of the alarm that it may raise.
        alarm: contradiction of theory, in whole sentences with the likely cause; None without one.
            An honest run raises it with probability at most 1 - ALARM_CONFIDENCE.
        by_chance: False where the checked number is not a statistic, so that an honest run never
            raises the alarm.
    """

    name: str
    alarm: str | None
    by_chance: bool = True


def alarms(checks: Iterable[Check]) -> dict[str, str]:
    return {check.name: check.alarm for check in checks if check.alarm}


def chance_alarms(checks: Iterable[Check]) -> int:
    """Return the number of alarms that chance could raise: one for each check of a statistic.

    This number times 1 - ALARM_CONFIDENCE bounds how often a report accuses an honest mechanism.
    """
    return sum(check.by_chance for check in checks)
