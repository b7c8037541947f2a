"""A grid of settings, with one run at every point."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adversaries.errors import InputError, InterruptedRunError
from adversaries.statistics.intervals import Interval, mean_interval
from fedsim import configuration
from fedsim.audits.results import report as results
from fedsim.audits.results.report import Report
from fedsim.common import private_files
from fedsim.configuration import KNOWN_KEYS, Scalar
from fedsim.federation.runs.run_directory import SUMMARY, RunDirectory
from fedsim.reports.document.wording import plain

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.server.plan import Plan

Runs = Callable[[Sequence["Plan"]], AbstractContextManager[Callable[["Plan"], RunDirectory]]]
"""Begins runs; yields a function that returns the directory of one of them when it is finished."""

OF_A_RUN = ("run.out", "run.name")
"""Keys with another value in every run of a grid."""

BOUND_COLUMN = "at_least_"
"""Prefix of the columns with lower bounds on epsilon."""

ESTIMATES = {
    "epsilon_from_advantage": "advantage",
    "epsilon_from_belief": "belief",
    "epsilon_from_sensitivities": "sensitivities",
}
"""The paper's estimates of epsilon, which prove nothing: column and source of each."""


@dataclass(frozen=True)
class Point:
    """One run of the grid."""

    name: str
    values: Mapping[str, Scalar]


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    Attributes:
        report: of the run; None if it failed.
        failure: why it failed; "" if it did not.
        accuracies: [E], accuracy of each evaluated training's final model on the held-out records.
    """

    point: Point
    report: Report | None
    failure: str = ""
    accuracies: tuple[float, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """The mean over the trainings; None if none was evaluated, or if one diverged."""
        mean = math.fsum(self.accuracies) / max(1, len(self.accuracies))
        return mean if self.accuracies and math.isfinite(mean) else None

    def accuracy_interval(self, confidence: float) -> Interval | None:
        """Return the interval of the mean accuracy over trainings, on the same records.

        Args:
            confidence: in (0, 1).

        Returns:
            The interval; None for fewer than two trainings, or if all are equal, since equal
            values do not show how much they vary.
        """
        if self.accuracy is None or len(set(self.accuracies)) < 2:
            return None
        interval = mean_interval(self.accuracies, confidence)
        return Interval(max(0.0, interval.low), min(1.0, interval.high), confidence)


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


def carry_out(
    points: Sequence[Point],
    plans: Sequence["Plan"],
    several: Runs,
    say: Callable[[str], None],
) -> list[RunOutcome]:
    """Carry out every run, and return the outcomes.

    Args:
        several: carries out the runs, or the rest of them.
        say: prints which run begins, and which run failed and why.
    """
    outcomes = []
    summary = plans[0].path.parent / SUMMARY
    if not summary.exists():  # marks the folder as one of several runs from the beginning
        private_files.write_private(
            summary, "".join(f"{point.name}\n" for point in points).encode()
        )
    try:
        with several(plans) as finish:
            for count, (point, plan) in enumerate(zip(points, plans, strict=True), start=1):
                say(f"{count}/{len(points)}: {point.name}")
                try:
                    outcomes.append(_read(point, finish(plan)))
                except (InputError, RuntimeError, FloatingPointError) as error:
                    failure = " ".join(str(error).split())
                    say(f"{point.name} failed: {failure}")
                    outcomes.append(RunOutcome(point, None, failure))
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted; give the same command again to continue") from None
    return outcomes


def _read(point: Point, directory: RunDirectory) -> RunOutcome:
    """Return the outcome of a finished run. Raises InputError."""
    arrays = directory.read_arrays("transcript.npz", {"accuracies"})
    with directory.reading("transcript.npz"):
        final = arrays["accuracies"][-1].astype(float)
    return RunOutcome(point, results.read(directory), accuracies=tuple(final.tolist()))
