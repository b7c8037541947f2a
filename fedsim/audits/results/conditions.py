"""Conditions on the numbers of a report, under which a release gate shuts.

A condition is PATH OP NUMBER, such as "advantage.low > .1". The path leads into report.json, with
dots between its parts, or is a short name of that kind of report. The gate also shuts where a
condition cannot be told, for example because its number was not measured.
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
COUNT = "#"
"""Last part of a path that counts the entries of a list or an object."""

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
"""Short names behind rows.OBSERVER in every report, and what each stands for.

By itself, such a name stands for the row of the report's `vantage`.
"""

FURTHER: Mapping[str, tuple[str, ...]] = {
    # Epsilon of everything released together, where the seed does not repeat the noise.
    "epsilon": ("released.epsilon", "details.released.epsilon"),
    "accuracy": ("utility.accuracy.mean.-1",),
    "alarms": ("alarms",),
    "missed": ("details.missed",),
}
"""Further paths of a short name, which go before that of the row."""

OF_A_TRAINING: Mapping[str, tuple[str, ...]] = {
    "epsilon": ("rounds.-1.epsilon",),
    "accuracy": ("rounds.-1.accuracy",),
    "alarms": ("alarms",),
}
"""Short names of a training's report, which has no rows."""

LACKING: Mapping[str, Sequence[str]] = {
    # A run compares at its own confidence; its noise is under residuals.noise.
    RUN: ("proven", "noise.low", "noise.high", "missed"),
    TRAINING: (),
    # An attack on code counts its correct decisions, and computes no belief.
    APP: ("belief", "delta_prime", "accuracy", "missed"),
    LOOP: ("belief", "delta_prime", "accuracy", "missed"),
    # A recording has one training, and no trials of the identification game.
    TRANSCRIPT: (
        *("advantage", "advantage.low", "advantage.high", "delta_prime", "accuracy", "missed"),
    ),
    LIVE: ("accuracy",),
    # Canaries of one training show neither its noise nor its mechanism.
    SCORES: (
        *("rho_alpha", "rho_beta", "advantage", "advantage.low", "advantage.high", "belief"),
        *("delta_prime", "noise.low", "noise.high", "detects", "accuracy", "missed", "epsilon"),
    ),
}
"""Short names that a kind of report has no number of."""


def names(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the short names of a kind of report.

    A name stands for paths, of which the first that leads to a number counts; {vantage} stands for
    the configured vantage.
    """
    if kind == TRAINING:
        return dict(OF_A_TRAINING)
    rows = {name: (f"rows.{{vantage}}.{path}",) for name, path in OF_A_ROW.items()}
    further = {name: (*paths, *rows.get(name, ())) for name, paths in FURTHER.items()}
    lacking = LACKING.get(kind, ())
    return {name: paths for name, paths in (rows | further).items() if name not in lacking}


OPERATORS = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

NULL = ": it was not measured, or has no limit"

GRAMMAR = re.compile(
    r"\s*(?P<path>[^<>=!]*[^<>=!\s])\s*(?P<operator>[<>=!]=|[<>])"
    r"\s*(?P<limit>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
)


@dataclass(frozen=True)
class Condition:
    """A condition under which a gate shuts; path is one in report.json, or a short name."""

    path: str
    operator: str
    limit: float

    def __str__(self) -> str:
        return f"{self.path} {self.operator} {self.limit:.12g}"


def parse(text: str, kinds: Sequence[str]) -> Condition:
    """Return the condition that a user wrote."""
    match = GRAMMAR.fullmatch(text)
    if match is None or not math.isfinite(float(match["limit"])):
        raise InputError(
            f"--fail-if '{text}' is not a condition; write PATH OP NUMBER, with OP one of "
            f"{', '.join(OPERATORS)}, as in 'advantage.low > .1'"
        )
    condition = Condition(match["path"], match["operator"], float(match["limit"]))
    known = {name for kind in kinds for name in names(kind)}
    short = {*OF_A_ROW, *FURTHER}
    if condition.path not in known and ("." not in condition.path or condition.path in short):
        raise InputError(
            f"--fail-if: the report of a {' or '.join(kinds)} has no number '{condition.path}'; it "
            f"has {', '.join(sorted(known))}, and paths into report.json with dots"
        )
    return condition


def complaint(condition: Condition, report: Mapping[str, Any]) -> str:
    """Return in one line why the gate shuts, with the number; "" where it stays open."""
    number = _number(report, condition.path)
    if isinstance(number, str):
        return f"cannot tell whether {condition}: {number}"
    if OPERATORS[condition.operator](number, condition.limit):
        return f"{condition}: it is {number:.6g}"
    return ""


def number_at(report: Mapping[str, Any], path: str) -> float | None:
    """Return the number at a path or under a short name; None where there is none."""
    number = _number(report, path)
    return None if isinstance(number, str) else number


def readings(report: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a report by their short names; None where there is no number."""
    found = {name: number_at(report, name) for name in names(kind_of(report))}
    others = (each for each in report.get("rows", {}) if each != report.get("vantage"))
    wide = [f"rows.{each}.{name}" for each in others for name in ("epsilon", "rho_alpha")]
    return found | {path: number_at(report, path) for path in wide}


def kind_of(report: Mapping[str, Any]) -> str:
    return str(report.get("kind", RUN))


def _number(report: Mapping[str, Any], path: str) -> float | str:
    kind = kind_of(report)
    if path in LACKING.get(kind, ()):
        return f"the report of a {kind} has no such number"
    vantage = str(report.get("vantage"))
    entry = names(kind).get(path, (_spelled_out(path),))
    paths = [[each.replace("{vantage}", vantage) for each in name.split(".")] for name in entry]
    values = [_value(report, each) for each in paths]
    return next((value for value in values if isinstance(value, float)), values[-1])


def _spelled_out(path: str) -> str:
    """Return rows.OBSERVER.NAME as the path in report.json; other paths as they are."""
    table, _, rest = path.partition(".")
    observer, _, name = rest.partition(".")
    return f"rows.{observer}.{OF_A_ROW[name]}" if table == "rows" and name in OF_A_ROW else path


def _value(report: Any, parts: Sequence[str]) -> float | str:
    value, walked = report, "report.json"
    for part in parts:
        if part == COUNT and isinstance(value, Mapping | list):
            value = len(value)
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and re.fullmatch(r"-?\d+", part):
            if not -len(value) <= int(part) < len(value):
                return f"its '{walked}' has {len(value)} entries"
            value = value[int(part)]
        elif value is None:
            return f"its '{walked}' is null{NULL}"
        else:
            return f"{walked} has no '{part}'"
        walked = part if walked == "report.json" else f"{walked}.{part}"
    if value in INFINITIES or (isinstance(value, int | float) and not isinstance(value, bool)):
        return float(value)  # also "Infinity"
    return f"its '{walked}' is {'null' + NULL if value is None else 'not a number'}"
