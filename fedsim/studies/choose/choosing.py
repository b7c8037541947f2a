"""The search for a setting, or the table of all, as the command line and the Python API call it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adversaries.errors import InputError
from fedsim import experiment
from fedsim.api import configured, console
from fedsim.common import report_directory
from fedsim.config import Config, Scalar
from fedsim.experiment import with_absolute_paths
from fedsim.privacy.trust.model import Vantage

if TYPE_CHECKING:  # torch, which takes a second
    from matplotlib.figure import Figure
    from rich.console import Console

    from fedsim.federation.runtimes.places import Workers
    from fedsim.studies.choose.choose_search import Result
    from fedsim.studies.choose.grid import RunOutcome
    from fedsim.studies.choose.rule import Choice, Least, Limit


LoadJob = Callable[[Mapping[str, Scalar], str | None], Config]
"""Returns the configuration with other values of some keys, for a job; None for its own."""


@dataclass(frozen=True)
class Selection:
    """The result of a search for a setting, or of a table of all settings.

    Attributes:
        path: directory with the page, and config.toml of the chosen setting.
        config: of the chosen setting; None if no setting was chosen.
        choice: the chosen and all other settings, with their bounds and measurements; None without
            a limit.
        outcomes: without a limit: report of each run, or why it failed, in the order of the grid.
        result: of the search; None without a limit.
    """

    path: Path
    config: Config | None = None
    choice: "Choice | None" = None
    outcomes: tuple["RunOutcome", ...] = ()
    result: "Result | None" = field(default=None, repr=False)

    def figures(self) -> dict[str, "Figure"]:
        """Return the figure "frontier", the model's criterion against the adversary."""
        from fedsim.studies.choose import choose_report  # noqa: PLC0415

        return (
            {} if self.result is None else {"frontier": choose_report.frontier(self.result).figure}
        )

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415
        from fedsim.report.document.blocks import tabulated  # noqa: PLC0415
        from fedsim.studies.choose import choose_report, sweep  # noqa: PLC0415

        if self.result is not None:
            return html.fragment(choose_report.summary(self.result))
        return html.fragment([tabulated(sweep.headings(self.outcomes), sweep.cells(self.outcomes))])


def choose(
    config: Path | str | Config | Mapping[str, Any],
    *,
    max_belief: float | None = None,
    max_advantage: float | None = None,
    max_risk: float | None = None,
    baseline_risk: float | None = None,
    min_accuracy: float | None = None,
    min_balanced_accuracy: float | None = None,
    min_auc: float | None = None,
    against: Literal["server", "participant", "released-model"] | None = None,
    over: Mapping[str, Sequence[Scalar]] | None = None,
    out: Path | str | None = None,
    overrides: Mapping[str, Scalar] | None = None,
    progress: bool | None = None,
    workers: "Workers | None" = None,
) -> Selection:
    """Return the least noise that meets a limit on the adversary, as `fedsim choose` finds it.

    Without a limit, it runs every combination of `over` and compares them. The same call in the
    same directory continues after an interruption.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults.
        max_belief: limit on the adversary's belief, in (0.5, 1). Give one of the three limits, or
            none for a table of all settings.
        max_advantage: limit on the adversary's advantage over a coin, in (0, 1).
        max_risk: limit on the success of any attack, in (baseline_risk, 1).
        baseline_risk: success of the attack without the model, such as 1/n for naming one of n
            people; None for 0.001.
        min_accuracy: least accuracy of the model, in (0, 1). Give at most one of the three; None
            for the best model.
        min_balanced_accuracy: least mean share of right answers in a class.
        min_auc: least area under the ROC curve.
        against: vantage point of the adversary; None as configured.
        over: dotted keys with the values to try, instead of the search's own.
        out: directory; None for one named after experiment and limit, such as
            fedsim-runs/NAME-choose-belief-0.75.
        overrides: dotted keys with the value that all settings take.
        progress: whether to show lines of progress; None: only in a terminal or a notebook.
        workers: without a limit: number of processes that run the settings, or
            `fedsim.cluster(...)`; None for this process.

    Returns:
        The selection; its config is None if no setting meets the request.

    Raises:
        InputError: the request cannot be searched for, or a setting cannot be run. Raised before
            the first training.
    """
    return answered(
        partial(configured, config),
        limit(max_belief, max_advantage, max_risk, baseline_risk),
        least(min_accuracy, min_balanced_accuracy, min_auc),
        None if against is None else Vantage(against),
        over or {},
        overrides or {},
        None if out is None else Path(out),
        console(progress),
        workers,
    )


def answered(
    load: LoadJob,
    bound: "Limit | None",
    lowest: "Least | None",
    against: Vantage | None,
    over: Mapping[str, Sequence[Scalar]],
    common: Mapping[str, Scalar],
    out: Path | None,
    shown: "Console",
    workers: "Workers | None",
) -> Selection:
    """Do the same as `choose`, with progress on a console."""
    if bound is None:
        return _table_of_all(load, lowest, against, over, common, out, shown, workers)
    from fedsim.studies.choose import choose_report, choose_search  # noqa: PLC0415

    if workers is not None:
        raise InputError("--workers and --cluster are for a table of all settings; drop the limit")
    result, directory = choose_search.search(
        choose_search.ChoiceRequest(bound, lowest, against, over, common),
        out,
        load=lambda values: with_absolute_paths(load(values, None)),
        say=lambda text: shown.print(text, highlight=False, markup=False),
    )
    with report_directory.refusing(directory):
        choose_report.write_choice(result, directory)
    chosen = result.config if result.choice.chosen else None
    return Selection(directory, chosen, result.choice, result=result)


def _table_of_all(
    load: LoadJob,
    lowest: "Least | None",
    against: Vantage | None,
    over: Mapping[str, Sequence[Scalar]],
    common: Mapping[str, Scalar],
    out: Path | None,
    shown: "Console",
    workers: "Workers | None",
) -> Selection:
    """Run every combination of settings, and write the table of all.

    All settings are checked before the first run. The same call again continues.

    Raises:
        InputError: a setting cannot be run. Raised before anything is written.
    """
    from fedsim.config.training import refuse_unless_classified  # noqa: PLC0415
    from fedsim.studies.choose import grid as grids  # noqa: PLC0415
    from fedsim.studies.choose import sweep as sweeps  # noqa: PLC0415

    if not over:
        raise InputError(
            "the limit on the adversary is missing; give --max-belief, such as 0.75, "
            "--max-advantage, such as 0.2, or --max-risk, such as 0.005; or give --over "
            "KEY=V1,V2,... for a table of all settings"
        )
    if lowest is not None or against is not None:
        raise InputError(
            "a lowest accuracy and --against need a limit on the adversary; give --max-belief, or "
            "leave them out"
        )
    if out is None:
        raise InputError("a table of all settings needs a directory; name it with --out")
    points = grids.grid(over)
    grids.refuse_overlap(common, over)
    first = load({**common, **points[0].values}, "experiment")
    refuse_unless_classified(first.model.task, "fedsim choose without a limit")
    name = first.run.name
    report_directory.check_new(out, replacing=sweeps.KIND)
    plans = []
    for point in points:
        own = {"run.out": str(out / point.name), "run.name": f"{name} {point.name}"}
        try:
            setting = load({**common, **point.values, **own}, "experiment")
            plans.append(experiment.prepare(setting, workers=workers))
        except InputError as error:
            raise InputError(f"{point.name}: {error}") from None
    experiment.check_several(plans, workers)
    report_directory.create(out)
    outcomes = grids.carry_out(
        points,
        plans,
        lambda begun: experiment.several(begun, workers, shown),
        lambda text: shown.print(text, highlight=False),
    )
    with report_directory.refusing(out):
        sweeps.write_sweep(name, outcomes, out)
    return Selection(out, outcomes=tuple(outcomes))


def limit(
    max_belief: float | None,
    max_advantage: float | None,
    max_risk: float | None = None,
    baseline_risk: float | None = None,
) -> "Limit | None":
    """Return the one limit that is not None; None without a limit.

    Raises:
        InputError: several limits are set, a value is out of range, or a baseline stands
            without a risk.
    """
    from fedsim.studies.choose.rule import ADVANTAGE, BELIEF, RISK, Limit  # noqa: PLC0415

    limits = {BELIEF: max_belief, ADVANTAGE: max_advantage, RISK: max_risk}
    chosen = [(key, value) for key, value in limits.items() if value is not None]
    if len(chosen) > 1:
        raise InputError(
            "several limits are given; give one of --max-belief, --max-advantage and --max-risk"
        )
    if baseline_risk is not None and max_risk is None:
        raise InputError("--baseline-risk needs --max-risk; give both, or leave it out")
    if not chosen:
        return None
    if baseline_risk is None:
        return Limit(*chosen[0])
    return Limit(*chosen[0], baseline_risk)


def least(
    accuracy: float | None, balanced_accuracy: float | None, auc: float | None
) -> "Least | None":
    """Return the one least value of a measure; None without one. Raises InputError for several."""
    from fedsim.learning.training.criterion import ACCURACY, AUC, BALANCED  # noqa: PLC0415

    named = {ACCURACY: accuracy, BALANCED: balanced_accuracy, AUC: auc}
    given = [(name, value) for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise InputError(
            "several least values are given; give one of --min-accuracy, "
            "--min-balanced-accuracy and --min-auc"
        )
    return given[0] if given else None
