"""A grid of settings, with one run at every point."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.configuration import KNOWN_KEYS, Scalar
from fedsim.reports.document.wording import plain

OF_A_RUN = ("run.out", "run.name")
"""Keys with another value in every run of a grid."""


@dataclass(frozen=True)
class Point:
    """One run of the grid."""

    name: str
    values: Mapping[str, Scalar]


def axes(over: Sequence[str]) -> dict[str, list[Scalar]]:
    """Return the keys of a grid with their values.

    Args:
        over: each `KEY=V1,V2,...`.

    Raises:
        InputError: an entry has another form, an unknown key, `run.out`, `run.name`, a key or value
            twice, or a value that is not a number.
    """
    axes: dict[str, list[Scalar]] = {}
    for text in over:
        key, equals, values = text.partition("=")
        key, listed = key.strip(), [value.strip() for value in values.split(",")]
        if not equals or not all(listed):
            raise InputError(
                f"--over {text!r} is not KEY=V1,V2,...; give for example "
                "--over privacy.rho-beta=0.75,0.9"
            )
        if key in axes:
            raise InputError(f"--over {key} is given twice; list all its values in one --over")
        if key in OF_A_RUN:
            raise InputError(f"--over {key}: every run of a grid has its own; give --out DIR")
        if key not in KNOWN_KEYS:
            configuration.from_run_config({key: ""})  # raises InputError with the nearest key
        axes[key] = [configuration.parse_override(f"{key}={value}")[1] for value in listed]
        if len(set(axes[key])) < len(listed):
            raise InputError(f"--over {text!r} has a value twice; give each once")
    every = itertools.chain.from_iterable(axes.values())
    if any(isinstance(value, float) and math.isnan(value) for value in every):
        raise InputError("--over has a value that is not a number (nan); replace it by a number")
    return axes


def grid(varied: Mapping[str, Sequence[Scalar]]) -> list[Point]:
    """Return every combination of values; the last key varies fastest.

    The name of a run's folder consists of the last parts of the keys and of the values.

    Raises:
        InputError: two runs would have the same folder.
    """
    points = []
    for combination in itertools.product(*varied.values()):
        values = dict(zip(varied, combination, strict=True))
        parts = (f"{key.rpartition('.')[2]}={plain(value)}" for key, value in values.items())
        points.append(Point(re.sub(r"[^\w.=,+-]", "_", ",".join(parts)), values))
    if len({point.name for point in points}) < len(points):
        raise InputError("two of the runs would have the same folder; change the values of --over")
    return points


def refuse_overlap(common: Mapping[str, Scalar], varying: Mapping[str, object]) -> None:
    """Raise InputError if a fixed key is one that --over varies, or a run's folder or name."""
    if repeated := set(common) & set(varying):
        raise InputError(f"{min(repeated)} is fixed, and --over varies it; drop one of them")
    if own := set(common).intersection(OF_A_RUN):
        raise InputError(f"{min(own)}: every run of a grid has its own; give --out DIR")
