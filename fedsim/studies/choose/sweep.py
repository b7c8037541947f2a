"""The table of all settings: the answer of `fedsim choose` without a limit."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError, InterruptedRunError
from adversaries.statistics.intervals import mean_interval
from fedsim.audits.results import report as results
from fedsim.audits.results.report import Report
from fedsim.common import private_files
from fedsim.common.strict_json import strict_json
from fedsim.federation.runs.run_directory import SUMMARY, RunDirectory
from fedsim.reports.document import blocks as doc
from fedsim.reports.document.wording import number, plain, span
from fedsim.reports.sections.section import TITLES
from fedsim.studies.choose.grid import Point
from fedsim.studies.page import StudyPage

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.server.plan import Plan

KIND = "sweep"
"""Value of `kind` in report.json."""

Runs = Callable[[Sequence["Plan"]], AbstractContextManager[Callable[["Plan"], RunDirectory]]]
"""Begins runs; yields a function that returns the directory of one of them when it is finished."""

COLUMNS = (
    *("trials", "advantage", "advantage_low", "advantage_high", "confidence", "predicted"),
    *("rho_alpha", "epsilon", "delta", "epsilon_released", "epsilon_at_least", "bound"),
    *("accuracy", "accuracy_low", "accuracy_high", "majority"),
)

LABEL = (
    "Each interval and bound holds by itself. The costs of all trainings on the same people add "
    "up. Accuracies are means over trainings on the same records. Measurements concern one "
    "target; limits are from theory."
)


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
    def contradicts(self) -> bool:
        """Whether a measurement contradicts theory."""
        return self.report is not None and bool(self.report.contradictions)


def carry_out(
    points: Sequence[Point], plans: Sequence["Plan"], several: Runs, say: Callable[[str], None]
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


def rows(outcomes: Sequence[RunOutcome]) -> list[dict[str, Any]]:
    """Return a row for each run, all with the same columns; a value is None if unknown or refused.

    The columns, in order: run, the keys that vary, status ("done", or why the run failed), and
    `COLUMNS`. epsilon is of one training, epsilon_released of all trainings of the run, None
    without a guarantee. epsilon_at_least is the lower bound that the report leads with, and bound
    its name. The accuracy is of the final models, with an interval over trainings.
    """
    return [
        {
            "run": one.point.name,
            **one.point.values,
            "status": one.failure or "done",
            **(dict.fromkeys(COLUMNS) if one.report is None else _reported(one, one.report)),
        }
        for one in outcomes
    ]


def _reported(outcome: RunOutcome, report: Report) -> dict[str, Any]:
    measured, attack = report.empirical, report.attack
    leading = measured.lower_bounds[measured.leading]
    low, high = attack.interval or (None, None)
    accuracy, least, most = _accuracy(outcome.accuracies, attack.confidence)
    values = (
        *(report.trials, attack.advantage, low, high, attack.confidence),
        *(report.prediction.advantage, report.here.limit.rho_alpha, report.here.limit.epsilon),
        *(report.bounds.delta, None if report.released is None else report.released.epsilon),
        *(None if leading.reason else leading.epsilon, measured.leading),
        *(accuracy, least, most, report.utility.majority),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _accuracy(
    values: Sequence[float], confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Return the mean over the trainings and the ends of its interval.

    The mean is None if no training was evaluated, or if one diverged. Equal values do not show how
    much they vary, so that they have no interval.
    """
    if not values or not all(map(math.isfinite, values)):
        return None, None, None
    mean = math.fsum(values) / len(values)
    if len(set(values)) < 2:
        return mean, None, None
    interval = mean_interval(values, confidence)
    return mean, max(0.0, interval.low), min(1.0, interval.high)


def page(name: str, outcomes: Sequence[RunOutcome]) -> StudyPage:
    """Return what was run, and what contradicts theory, with the table."""
    contradicted = [one.point.name for one in outcomes if one.contradicts]
    answer = [f"Measurements contradict theory: {'; '.join(contradicted)}."] if contradicted else []
    answer.append(
        f"{len(outcomes)} settings were run. To pick a setting, give fedsim choose a limit on the "
        "adversary, such as --max-belief 0.75."
    )
    links: list[doc.Words] = [
        f"{one.point.name}: {one.failure}"
        if one.failure
        else doc.Link(one.point.name, f"{one.point.name}/report.html")
        for one in outcomes
    ]
    return StudyPage(
        kind="Settings",
        name=name,
        data=", ".join(sorted({one.report.data.name for one in outcomes if one.report})),
        answer=answer,
        alarming=bool(contradicted),
        table=_table(outcomes),
        label=LABEL,
        limits=LABEL,
        document=strict_json({"kind": KIND, "name": name, "runs": rows(outcomes)}),
        steps=["Train the model with a setting: fedsim train takes the same keys."],
        sections=[doc.Heading("The runs"), doc.Bullets(links)],
    )


def failures(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return how many runs failed, and why the first did; nothing if none failed."""
    failed = [each for each in outcomes if each.failure]
    return [
        f"{len(failed)} of {len(outcomes)} runs failed. The first is {each.point.name}: "
        f"{each.failure}"
        for each in failed[:1]
    ]


def _table(outcomes: Sequence[RunOutcome]) -> doc.Table:
    varied = [key.rpartition(".")[2] for key in outcomes[0].point.values]
    headings = [*varied, "trials", "accuracy", "advantage", "predicted", "ρα", "ε", "ε at least"]
    return doc.tabulated(
        headings,
        [
            [
                *map(plain, one.point.values.values()),
                "failed" if one.failure else plain(row["trials"]),
                _with_ends(row, "accuracy"),
                _with_ends(row, "advantage"),
                *(number(row[name]) for name in ("predicted", "rho_alpha", "epsilon")),
                number(row["epsilon_at_least"])
                + ((row["bound"] and f"\n{TITLES[row['bound']]}") or ""),
            ]
            for one, row in zip(outcomes, rows(outcomes), strict=True)
        ],
    )


def _with_ends(row: Mapping[str, Any], name: str) -> str:
    """Return a measured number, with its interval, if any, in a second line."""
    ends = row[f"{name}_low"], row[f"{name}_high"]
    between = "" if None in ends else f"\n{span(ends, '{:.2f}'.format)}"
    return f"{number(row[name])}{between}"


def write(name: str, outcomes: Sequence[RunOutcome], directory: Path) -> Path:
    """Write summary.csv, report.json and report.html; return the path of the page.

    Raises:
        InputError: the directory holds another kind of report.
        OSError: a file cannot be written.
    """
    shown = page(name, outcomes)
    private_files.write_private(directory / SUMMARY, as_csv(shown.document["runs"]).encode())
    return shown.write(directory)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as comma-separated values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
