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
COUNT = "#"
"""Last part of a path that counts the entries of a list or an object."""

OF_TRIALS: Mapping[str, tuple[str, ...]] = {
    "advantage": ("empirical.advantage",),
    "advantage.low": ("empirical.advantage_interval.0",),
    "advantage.high": ("empirical.advantage_interval.1",),
}

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
    "detects": "detects",
}
"""Short names behind rows.OBSERVER in the report of a run, and what each stands for."""

NO_TRIALS = "a training plays no trials of the identification game; fedsim run plays them"
ONE_RECORDING = "a transcript has one training, and no trials of the identification game"
COUNTED = "the attack counts its correct decisions, and computes no belief"
NO_RECORDS = "the audit has no held-out records to evaluate a model on"

ATTACKED: Mapping[str, tuple[str, ...] | str] = {
    "advantage": ("measured.advantage.point",),
    "advantage.low": ("measured.advantage.interval.low",),
    "advantage.high": ("measured.advantage.interval.high",),
    "belief": COUNTED,
    "epsilon": ("theory.epsilon",),
    "epsilon.low": ("measured.epsilon_lower_bound",),
    "accuracy": NO_RECORDS,
    "alarms": ("alarms",),
}

NAMES: Mapping[str, Mapping[str, tuple[str, ...] | str]] = {
    RUN: {
        **{name: (f"rows.{{vantage}}.{OF_A_ROW[name]}",) for name in (*OF_TRIALS, "belief")},
        "epsilon.low": (f"rows.{{vantage}}.{OF_A_ROW['epsilon.low']}",),
        # Epsilon of everything released together, where the seed does not repeat the noise.
        "epsilon": ("released.epsilon", "rows.{vantage}.limit.epsilon"),
        "accuracy": ("utility.accuracy.mean.-1",),
        "alarms": ("alarms",),
    },
    TRAINING: {
        **dict.fromkeys((*OF_TRIALS, "belief", "epsilon.low"), NO_TRIALS),
        "epsilon": ("rounds.-1.epsilon",),
        "accuracy": ("rounds.-1.accuracy",),
        "alarms": ("alarms",),
    },
    APP: ATTACKED,
    LOOP: ATTACKED,
    TRANSCRIPT: {
        **dict.fromkeys((*OF_TRIALS, "belief"), ONE_RECORDING),
        "epsilon": ("release.proven.epsilon_at_most",),
        "epsilon.low": ("release.epsilon_at_least", "canary.epsilon_all_rounds.low"),
        "accuracy": NO_RECORDS,
        "alarms": ("alarms",),
    },
    LIVE: {
        **OF_TRIALS,
        "belief": ("belief.highest",),
        "epsilon": ("released.epsilon", "bounds.epsilon"),
        "epsilon.low": ("epsilon_at_least",),
        "accuracy": NO_RECORDS,
        "alarms": ("alarms",),
        "missed": ("missed",),
        "seen_below": ("seen_below",),
    },
}
"""The short names of every kind of report.

A name maps to paths, of which the first that leads to a number counts; {vantage} stands for the
configured vantage. A name may map to text instead: why this kind of report has no such number.
"""

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
    names = {name for kind in kinds for name, paths in NAMES[kind].items() if paths_of(paths)}
    if condition.path in names:
        return condition
    reasons = [reason for kind in kinds if (reason := _reason(kind, condition.path))]
    if reasons or "." not in condition.path:
        what = " or ".join(kinds)
        why = f": {'; '.join(dict.fromkeys(reasons))}" if reasons else ""
        raise InputError(
            f"--fail-if: the report of a {what} has no number '{condition.path}'{why}; it has "
            f"{', '.join(sorted(names))}, and paths into report.json with dots"
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


def kind_of(report: Mapping[str, Any]) -> str:
    return str(report.get("kind", RUN))


def _number(report: Mapping[str, Any], path: str) -> float | str:
    if reason := _reason(kind_of(report), path):
        return reason
    names = paths_of(NAMES.get(kind_of(report), {}).get(path, ()))
    vantage = str(report.get("vantage"))
    paths = [name.replace("{vantage}", vantage) for name in names] or [_spelled_out(path)]
    values = [_value(report, each.split(".")) for each in paths]
    return next((value for value in values if isinstance(value, float)), values[-1])


def _spelled_out(path: str) -> str:
    """Return rows.OBSERVER.NAME as the path in report.json; other paths as they are."""
    table, _, rest = path.partition(".")
    observer, _, name = rest.partition(".")
    return f"rows.{observer}.{OF_A_ROW[name]}" if table == "rows" and name in OF_A_ROW else path


def paths_of(entry: tuple[str, ...] | str) -> tuple[str, ...]:
    return () if isinstance(entry, str) else entry


def _reason(kind: str, path: str) -> str:
    entry = NAMES.get(kind, {}).get(path, ())
    return entry if isinstance(entry, str) else ""


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
