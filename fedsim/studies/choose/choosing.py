"""The search for a setting, as the command line and the Python API call it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adversaries.errors import InputError
from fedsim.api import configured, console
from fedsim.common import report_directory
from fedsim.config import Config, Scalar
from fedsim.experiment import with_absolute_paths
from fedsim.privacy.trust.model import Vantage

if TYPE_CHECKING:  # torch, which takes a second
    from matplotlib.figure import Figure
    from rich.console import Console

    from fedsim.studies.choose.choose_search import ChoiceRequest, Load, Result
    from fedsim.studies.choose.rule import Choice, Least, Limit


@dataclass(frozen=True)
class Selection:
    """The result of a search for a setting.

    Attributes:
        path: directory with the page, and config.toml of the chosen setting.
        config: of the chosen setting; None if no setting was chosen.
        choice: the chosen and all other settings, with their bounds and measurements.
    """

    path: Path
    config: Config | None
    choice: "Choice"
    _result: "Result" = field(repr=False)

    def figures(self) -> dict[str, "Figure"]:
        """Return the figure "frontier", the model's criterion against the adversary."""
        from fedsim.studies.choose import choose_report  # noqa: PLC0415

        return {"frontier": choose_report.frontier(self._result)}

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415
        from fedsim.studies.choose import choose_report  # noqa: PLC0415

        return html.fragment(choose_report.summary(self._result))


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
) -> Selection:
    """Return the least noise that meets a limit on the adversary, as `fedsim choose` finds it.

    The same search in the same directory continues after an interruption.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults.
        max_belief: limit on the adversary's belief, in (0.5, 1). Give one of the three limits.
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

    Returns:
        The selection; its config is None if no setting meets the request.

    Raises:
        InputError: the request cannot be searched for. Raised before the first training.
    """
    from fedsim.studies.choose.choose_search import ChoiceRequest  # noqa: PLC0415

    request = ChoiceRequest(
        limit=limit(max_belief, max_advantage, max_risk, baseline_risk),
        least=least(min_accuracy, min_balanced_accuracy, min_auc),
        against=None if against is None else Vantage(against),
        over=over or {},
        common=overrides or {},
    )
    result, directory = carry_out(
        request,
        None if out is None else Path(out),
        lambda values: configured(config, values, None),
        console(progress),
    )
    chosen = result.config if result.choice.chosen else None
    return Selection(directory, chosen, result.choice, result)


def limit(
    max_belief: float | None,
    max_advantage: float | None,
    max_risk: float | None = None,
    baseline_risk: float | None = None,
) -> "Limit":
    """Return the one limit that is not None.

    Raises:
        InputError: none or several limits are set, a value is out of range, or a baseline stands
            without a risk.
    """
    from fedsim.studies.choose.rule import ADVANTAGE, BELIEF, RISK, Limit  # noqa: PLC0415

    limits = {BELIEF: max_belief, ADVANTAGE: max_advantage, RISK: max_risk}
    chosen = [(key, value) for key, value in limits.items() if value is not None]
    if len(chosen) > 1:
        raise InputError(
            "several limits are given; give one of --max-belief, --max-advantage and --max-risk"
        )
    if not chosen:
        raise InputError(
            "the limit on the adversary is missing; give --max-belief, such as 0.75, "
            "--max-advantage, such as 0.2, or --max-risk, such as 0.005"
        )
    if baseline_risk is None:
        return Limit(*chosen[0])
    if max_risk is None:
        raise InputError("--baseline-risk needs --max-risk; give both, or leave it out")
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


def carry_out(
    request: "ChoiceRequest", out: Path | None, load: "Load", shown: "Console"
) -> tuple["Result", Path]:
    """Search, write the report, and return the result and its directory."""
    from fedsim.studies.choose import choose_report, choose_search  # noqa: PLC0415

    result, directory = choose_search.search(
        request,
        out,
        load=lambda values: with_absolute_paths(load(values)),
        say=lambda text: shown.print(text, highlight=False, markup=False),
    )
    with report_directory.refusing(directory):
        choose_report.write_choice(result, directory)
    return result, directory
