"""`fedsim.choose`: the least noise for a limit and the best model with it, or a table of all."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adversaries.errors import InputError
from fedsim.commands.answer import Answer, of_study
from fedsim.commands.settings import (
    Arrays,
    Change,
    Given,
    Network,
    Over,
    Progress,
    changed,
    configured,
    console,
)
from fedsim.common import report_directory
from fedsim.configuration import Config, Scalar
from fedsim.privacy.trust import Vantage

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.commands.terminal import Terminal
    from fedsim.studies.choose.choose_search import ChoiceRequest
    from fedsim.studies.choose.rule import Least, Limit

LoadJob = Callable[[Mapping[str, Scalar], str | None], Config]
"""Returns the configuration with other values of some keys, for a job; None for its own."""

NOT_CHOSEN = 1
"""Exit status if no setting meets the request, or if it cannot be told."""


def choose(
    config: Given,
    /,
    *changes: Change,
    max_belief: float | None = None,
    max_advantage: float | None = None,
    max_risk: float | None = None,
    baseline_risk: float | None = None,
    min_accuracy: float | None = None,
    min_balanced_accuracy: float | None = None,
    min_auc: float | None = None,
    against: Literal["server", "participant", "released-model"] | None = None,
    over: Over = None,
    model: Network = None,
    data: Arrays = None,
    out: Path | None = None,
    progress: Progress = None,
) -> Answer:
    """Find the strictest setting within a limit on the adversary that is nearly as good as any.

    Searches model, rounds, learning rate and clipping norm at several levels of noise around the
    limit. KEY=VALUE fixes a key, and --over KEY=V1,V2 gives its values. Models are compared by what
    fits the task: AUC of two classes; of more, balanced accuracy if they are uneven, else accuracy;
    the error of a number. The answer is the strictest setting measured at most half a point below
    the best that meets the limit; with --min-auc, for example, the strictest sure to reach it.
    Theory decides what meets the limit.

    Without a limit, it trains every combination of --over, and lists them in a table.

    The directory gets report.html, report.json, summary.csv, and config.toml of the chosen setting.
    The same command again continues. Exit status 1: no setting can be chosen, or it cannot be told.

    Examples: fedsim choose digits --max-belief 0.75 --min-accuracy 0.7

    fedsim choose digits --max-risk 0.005 --baseline-risk 0.001

    fedsim choose digits --over privacy.rho-beta=0.75,0.9 --out settings

    Args:
        config: experiment file (TOML), or bundled name. In Python also a configuration, or dotted
            keys over the defaults.
        changes: keys with the value that all settings take, as KEY=VALUE. In Python also mappings.
        max_belief: limit on the adversary's belief, 0.5 (a guess) to 1. Give at most one limit.
        max_advantage: limit on the adversary's advantage over guessing, 0 to 1.
        max_risk: largest success of any attack with the release, such as 0.005.
        baseline_risk: success of an attack without the release, such as 0.001 for naming one of
            1,000 people. Default: 0.001.
        min_accuracy: lowest acceptable accuracy of the model, 0 to 1. Give at most one of three.
        min_balanced_accuracy: lowest acceptable mean recall of the classes, 0 to 1.
        min_auc: lowest acceptable area under the ROC curve, 0 to 1.
        against: vantage point of the adversary. Default: federation.vantage.
        over: values to try of a key, as KEY=V1,V2,... May be repeated. In Python also a mapping.
        model: class of a network, or a function that builds one, as for `run`.
        data: (features, labels), as for `run`.
        out: directory of the search. Default: fedsim-runs/NAME-choose-LIMIT.
        progress: whether to show lines of progress; None: only in a terminal or a notebook.

    Returns:
        The answer; its details are the `Result` of the search.

    Raises:
        InputError: the request cannot be searched for, or a setting cannot be run. Raised before
            the first training.
    """
    from fedsim.studies.choose import grid  # noqa: PLC0415
    from fedsim.studies.choose.choose_search import ChoiceRequest  # noqa: PLC0415

    bound = _limit(max_belief, max_advantage, max_risk, baseline_risk)
    lowest = _least(min_accuracy, min_balanced_accuracy, min_auc)
    varied = over if isinstance(over, Mapping) else grid.axes(over or ())
    common = changed(changes, {"model.name": model, "data.name": data})
    load = partial(configured, config)
    place = None if out is None else Path(out)
    shown = console(progress)
    vantage = None if against is None else Vantage(against)
    return _searched(load, ChoiceRequest(bound, lowest, vantage, varied, common), place, shown)


def _searched(
    load: LoadJob, request: "ChoiceRequest", out: Path | None, shown: "Terminal"
) -> Answer:
    """Search for the setting that meets a limit, or list all, and write the search's directory."""
    from fedsim.experiment import with_absolute_paths  # noqa: PLC0415
    from fedsim.studies.choose import choose_report as told  # noqa: PLC0415
    from fedsim.studies.choose import choose_search  # noqa: PLC0415

    result, directory = choose_search.search(
        request,
        out,
        load=lambda values: with_absolute_paths(load(values, None)),
        say=lambda text: shown.print(text, highlight=False, markup=False),
    )
    with report_directory.refusing(directory):
        told.write(result, directory)
    return of_study(
        told.told(result, directory),
        table=told.rows(result),
        status=0 if result.choice.chosen or request.limit is None else NOT_CHOSEN,
        path=directory,
        page=directory / "report.html",
        details=result,
    )


def _limit(
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
    chosen = _only(limits, "limits", "--max-belief, --max-advantage and --max-risk")
    if baseline_risk is not None and max_risk is None:
        raise InputError("--baseline-risk needs --max-risk; give both, or leave it out")
    if chosen is None:
        return None
    return Limit(*chosen) if baseline_risk is None else Limit(*chosen, baseline_risk)


def _only(named: Mapping[str, float | None], what: str, options: str) -> tuple[str, float] | None:
    """Return the name and value that is not None; None without one. Raises InputError."""
    given = [(name, value) for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"several {what} are given; give one of {options}")
    return given[0] if given else None


def _least(
    accuracy: float | None, balanced_accuracy: float | None, auc: float | None
) -> "Least | None":
    """Return the one least value of a measure; None without one. Raises InputError for several."""
    from fedsim.learning.training.criterion import ACCURACY, AUC, BALANCED  # noqa: PLC0415

    named = {ACCURACY: accuracy, BALANCED: balanced_accuracy, AUC: auc}
    return _only(named, "least values", "--min-accuracy, --min-balanced-accuracy and --min-auc")
