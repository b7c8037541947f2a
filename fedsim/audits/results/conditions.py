"""Conditions on the numbers of a report, under which a release gate shuts.

A condition is NAME OP NUMBER, such as "advantage.low > .1". A name is one of a row's numbers, and
stands for the observer that the report judges; rows.OBSERVER.NAME stands for another observer. The
gate also shuts where a number was not measured.
"""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adversaries.errors import InputError
from fedsim.common.strict_json import INFINITIES

RUN = "run"
TRAINING = "training"
APP = "app audit"
LOOP = "loop audit"
TRANSCRIPT = "transcript audit"
LIVE = "live audit"
SCORES = "canary scores"
GATED = RUN, TRAINING, APP, LOOP, TRANSCRIPT, LIVE, SCORES
"""Kinds of reports with numbers that a gate reads."""

OF_A_ROW: Mapping[str, str] = {
    "epsilon": "limit.epsilon",
    "rho_alpha": "limit.rho_alpha",
    "rho_beta": "limit.rho_beta",
    "advantage": "attack.advantage",
    "advantage.low": "attack.interval.0",
    "advantage.high": "attack.interval.1",
    "belief": "attack.belief",
    "delta_prime": "attack.delta_prime",
    "epsilon.low": "attack.epsilon_at_least",
    "proven": "attack.proven",
    "noise.low": "noise.low",
    "noise.high": "noise.high",
    "detects": "detects",
}
"""Names of a row's numbers, and the path of each in the row."""

OF_A_REPORT: Mapping[str, tuple[str, ...]] = {
    # Epsilon of everything released together, where the seed does not repeat the noise.
    "epsilon": ("details.released.epsilon", "details.released_epsilon"),
    "accuracy": ("details.utility.accuracy.mean.-1", "details.rounds.-1.accuracy"),
    "alarms": ("alarms",),
    "missed": ("details.missed",),
}
"""Names of a report's own numbers, which go before those of the row."""

OF_A_TRAINING = frozenset({"epsilon", "rho_alpha", "rho_beta", "accuracy", "alarms"})
"""Names that a training can have, of which no attack is made."""

OPERATORS = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

GRAMMAR = re.compile(
    r"\s*(?P<name>[^<>=!]*[^<>=!\s])\s*(?P<operator>[<>=!]=|[<>])"
    r"\s*(?P<limit>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
)


@dataclass(frozen=True)
class Condition:
    """A condition under which a gate shuts."""

    name: str
    operator: str
    limit: float

    def __str__(self) -> str:
        return f"{self.name} {self.operator} {self.limit:.12g}"


def parse(text: str, kinds: Sequence[str]) -> Condition:
    """Return the condition that a user wrote."""
    match = GRAMMAR.fullmatch(text)
    if match is None or not math.isfinite(float(match["limit"])):
        raise InputError(
            f"--fail-if '{text}' is not a condition; write NAME OP NUMBER, with OP one of "
            f"{', '.join(OPERATORS)}, as in 'advantage.low > .1'"
        )
    condition = Condition(match["name"], match["operator"], float(match["limit"]))
    known = OF_A_TRAINING if [*kinds] == [TRAINING] else {*OF_A_ROW, *OF_A_REPORT}
    own = re.sub(r"^rows\.[^.]*\.", "", condition.name)
    if own not in known or not _paths(condition.name, ""):
        raise InputError(
            f"--fail-if: the report of a {' or '.join(kinds)} has no number '{condition.name}'; it "
            f"has {', '.join(sorted(known))}, and rows.OBSERVER.NAME"
        )
    return condition


def complaint(condition: Condition, report: Mapping[str, Any]) -> str:
    """Return in one line why the gate shuts, with the number; "" where it stays open."""
    number = number_at(report, condition.name)
    if number is None:
        return f"cannot tell whether {condition}: it was not measured, or has no limit"
    if OPERATORS[condition.operator](number, condition.limit):
        return f"{condition}: it is {number:.6g}"
    return ""


def number_at(report: Mapping[str, Any], name: str) -> float | None:
    """Return the number that a name stands for; None where there is none."""
    paths = _paths(name, str(report.get("vantage")))
    found = (_value(report, path.split(".")) for path in paths)
    return next((each for each in found if each is not None), None)


def readings(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that a report has, by the names that a condition takes."""
    others = (each for each in report.get("rows", {}) if each != report.get("vantage"))
    wide = [f"rows.{each}.{name}" for each in others for name in ("epsilon", "rho_alpha")]
    found = {name: number_at(report, name) for name in (*OF_A_ROW, *OF_A_REPORT, *wide)}
    return {name: number for name, number in found.items() if number is not None}


def kind_of(report: Mapping[str, Any]) -> str:
    return str(report.get("kind", RUN))


def _paths(name: str, vantage: str) -> tuple[str, ...]:
    """Return the paths of a name in a report, of which the first with a number counts."""
    observer, own = vantage, name
    if name.startswith("rows."):
        observer, _, own = name.removeprefix("rows.").partition(".")
    in_row = (f"rows.{observer}.{OF_A_ROW[own]}",) if own in OF_A_ROW else ()
    return OF_A_REPORT.get(name, ()) + in_row


def _value(report: Any, parts: Sequence[str]) -> float | None:
    value = report
    for part in parts:
        if isinstance(value, list):
            place = int(part) if part.removeprefix("-").isdigit() else len(value)
            value = value[place] if value and place < len(value) else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number or value in INFINITIES else None
