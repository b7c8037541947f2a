"""A grid of settings, and one experiment carried out at every point of it."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adversaries.errors import InputError, InterruptedRunError
from adversaries.statistics.intervals import Interval, mean_interval
from fedsim import config as configuration
from fedsim.audits.results import report as results
from fedsim.audits.results.report import Report
from fedsim.common import private_files
from fedsim.config import KNOWN_KEYS, Scalar
from fedsim.federation.runs.run_directory import SUMMARY, RunDirectory
from fedsim.report.document.wording import plain

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.server.plan import Plan

OF_A_RUN = ("run.out", "run.name")
"""Keys that every run of a grid gets a value of its own for."""

BOUND_COLUMN = "at_least_"
"""What the columns of the lower bounds on epsilon begin with."""

ESTIMATES = {
    "epsilon_from_advantage": "advantage",
    "epsilon_from_belief": "belief",
    "epsilon_from_sensitivities": "sensitivities",
}
"""The paper's estimates of epsilon, which prove nothing, and from what each is."""


@dataclass(frozen=True)
class Point:
    """One run of the grid."""

    name: str
    values: Mapping[str, Scalar]


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        failure: why not, else "".
        accuracies: [E], of the final model of each evaluated training on the held-out records; of
            a pair of trainings with common random numbers their mean.
        singles: the same of every single training.
    """

    point: Point
    report: Report | None
    failure: str = ""
    accuracies: tuple[float, ...] = ()
    singles: tuple[float, ...] = ()

    @property
    def band(self) -> tuple[float, float] | None:
        """Between which accuracies nine in ten single trainings were; None where one diverged."""
        if len(self.singles) < 2 or not all(map(math.isfinite, self.singles)):
            return None
        low, high = np.quantile(self.singles, (0.05, 0.95))
        return float(low), float(high)

    @property
    def accuracy(self) -> float | None:
        """The mean over the trainings; None where none was evaluated, or one diverged."""
        mean = math.fsum(self.accuracies) / max(1, len(self.accuracies))
        return mean if self.accuracies and math.isfinite(mean) else None

    def accuracy_interval(self, confidence: float) -> Interval | None:
        """Return the interval of the mean over trainings like these, on the same records.

        Args:
            confidence: in (0, 1).

        Returns:
            The interval; None for fewer than two trainings, and where all are alike: what did not
            vary does not say how much it varies.
        """
        if self.accuracy is None or len(set(self.accuracies)) < 2:
            return None
        found = mean_interval(self.accuracies, confidence)
        return Interval(max(0.0, found.low), min(1.0, found.high), confidence)


def axes(over: Sequence[str]) -> dict[str, list[Scalar]]:
    """Return the values of each key that a grid is over.

    Args:
        over: each `KEY=V1,V2,...`.

    Raises:
        InputError: another form; a key that is unknown, given twice or the run's folder; a value
            given twice, or that is no number.
    """
    found: dict[str, list[Scalar]] = {}
    for text in over:
        key, equals, values = text.partition("=")
        key, listed = key.strip(), [value.strip() for value in values.split(",")]
        if not equals or not all(listed):
            raise InputError(
                f"--over {text!r} is not KEY=V1,V2,...; give for example "
                "--over privacy.rho-beta=0.75,0.9"
            )
        if key in found or key in OF_A_RUN:
            raise InputError(
                f"--over {key} " + ("is given twice" if key in found else "is no axis")
            )
        if key not in KNOWN_KEYS:
            configuration.from_run_config({key: ""})  # which says so, and the nearest one
        found[key] = [configuration.parse_override(f"{key}={value}")[1] for value in listed]
        if len(set(found[key])) < len(listed):
            raise InputError(f"--over {text!r} has a value twice; give each once")
    given = itertools.chain.from_iterable(found.values())
    if any(isinstance(value, float) and math.isnan(value) for value in given):
        raise InputError("--over has a value that is not a number (nan); give one")
    return found


def grid(varied: Mapping[str, Sequence[Scalar]]) -> list[Point]:
    """Return every combination of values, the last key varying fastest.

    A folder is named for the last parts of the keys and the values.

    Raises:
        InputError: values that no folder can be named for apart.
    """
    combined = [
        dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())
    ]
    points = [Point(_folder(values), values) for values in combined]
    if len({point.name for point in points}) < len(points):
        raise InputError("two of the runs would have one folder; rename what --over varies")
    return points


def refuse_overlap(common: Mapping[str, Scalar], varying: Mapping[str, object]) -> None:
    """Refuse what is given for all runs and is every run's own.

    Raises:
        InputError: --set gives one of them, or a run's folder or name.
    """
    if repeated := set(common) & set(varying):
        raise InputError(f"--set and --over both give {min(repeated)}; drop one of them")
    if own := set(common).intersection(OF_A_RUN):
        raise InputError(f"--set {min(own)}: every run of a grid has its own; give --out DIR")


def carry_out(
    points: Sequence[Point],
    plans: Sequence["Plan"],
    run: Callable[["Plan"], RunDirectory],
    say: Callable[[str], None],
) -> list[Outcome]:
    """Carry out every run, one after the other; one that has finished is only read.

    Args:
        run: carries out a plan, and returns the directory of the finished run.
        say: is told which run begins, and which has failed and why.
    """
    outcomes = []
    summary = plans[0].path.parent / SUMMARY
    if not summary.exists():  # from the beginning the folder is one of several runs
        private_files.write(summary, "".join(f"{point.name}\n" for point in points).encode())
    for count, (point, plan) in enumerate(zip(points, plans, strict=True), start=1):
        say(f"{count}/{len(points)}: {point.name}")
        try:
            outcomes.append(_read(point, run(plan)))
        except (InputError, RuntimeError, FloatingPointError) as error:
            failure = " ".join(str(error).split())
            say(f"{point.name} failed: {failure}")
            outcomes.append(Outcome(point, None, failure))
        except KeyboardInterrupt:
            raise InterruptedRunError(
                "interrupted; give the same command again to go on where it was"
            ) from None
    return outcomes


def complain(outcomes: Sequence[Outcome]) -> None:
    """Raise RuntimeError, with the first failure, where any run failed."""
    if failed := [outcome for outcome in outcomes if outcome.failure]:
        raise RuntimeError(
            f"{len(failed)} of {len(outcomes)} runs failed, the first of them "
            f"{failed[0].point.name}: {failed[0].failure}"
        )


def _read(point: Point, directory: RunDirectory) -> Outcome:
    """Return what a finished run found. Raises InputError."""
    found = directory.read_arrays("transcript.npz", {"accuracies"})
    with directory.reading("transcript.npz"):
        final = found["accuracies"][-1].astype(float)
    singles = tuple(final.tolist())
    if directory.config.trials.in_pairs:  # trials 2i and 2i + 1 are no two independent ones
        final = final[: len(final) // 2 * 2].reshape(-1, 2).mean(axis=1)
    return Outcome(
        point, results.read(directory), accuracies=tuple(final.tolist()), singles=singles
    )


def _folder(values: Mapping[str, Scalar]) -> str:
    parts = (f"{key.rpartition('.')[2]}={plain(value)}" for key, value in values.items())
    return re.sub(r"[^\w.=,+-]", "_", ",".join(parts))
