"""`fedsim choose`: several settings of an experiment or a training."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsim import config as configuration
from fedsim.api import configured
from fedsim.cli.elsewhere import SettingsElsewhere
from fedsim.cli.options import AsJson, ConfigFile, Quiet, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory.options import BaselineRisk, MaxRisk
from fedsim.common import reading
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.choose import choosing

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.studies.choose.choose_search import Result


NOT_CHOSEN = 1
"""Exit status if no setting meets the request, or if the trials cannot tell."""


def choose(
    *,
    config_file: ConfigFile,
    max_belief: Annotated[
        float | None, typer.Option(help="Limit on the adversary's belief, 0.5 (a guess) to 1.")
    ] = None,
    max_advantage: Annotated[
        float | None, typer.Option(help="Limit on the adversary's advantage over guessing, 0 to 1.")
    ] = None,
    max_risk: MaxRisk = None,
    baseline_risk: BaselineRisk = None,
    min_accuracy: Annotated[
        float | None, typer.Option(help="Lowest acceptable accuracy of the model, 0 to 1.")
    ] = None,
    min_balanced_accuracy: Annotated[
        float | None,
        typer.Option(help="Lowest acceptable mean recall of the classes, 0 to 1."),
    ] = None,
    min_auc: Annotated[
        float | None,
        typer.Option("--min-auc", help="Lowest acceptable area under the ROC curve, 0 to 1."),
    ] = None,
    against: Annotated[
        Vantage | None,
        typer.Option(help="Vantage point of the adversary. Default: federation.vantage."),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2,...",
            help="Values to try of a key, separated by commas. Repeat it to try all combinations.",
        ),
    ] = None,
    set_: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the search. Default with a limit: fedsim-runs/NAME-choose-LIMIT.",
        ),
    ] = None,
    elsewhere: SettingsElsewhere,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Find the least noise that meets a limit on the adversary, and the best model with it.

    Searches model, rounds, learning rate and clipping norm at several levels of noise around the
    limit; --set fixes a key, and --over KEY=V1,V2 gives its values. Models are compared by what
    fits the task: AUC or balanced accuracy where classes are uneven, accuracy where they are even,
    the error of a number. With --min-auc, for example, it chooses the strictest setting that
    certainly reaches it. Theory decides what meets the limit.

    Without a limit, it runs every combination of --over with the adversary of fedsim run, and
    compares them in a table. --workers spreads these runs.

    DIR gets report.html, report.json, summary.csv, and config.toml of the chosen setting. Give the
    same command again to continue. Exit status 1: no setting can be chosen, or it cannot be told.

    Examples:

    fedsim choose configs/digits.toml --max-belief 0.75 --min-accuracy 0.75

    fedsim choose configs/digits.toml --max-risk 0.005 --baseline-risk 0.001

    fedsim choose configs/digits.toml --over privacy.rho-beta=0.75,0.9 --out settings
    """
    from fedsim.studies.choose import choose_report, grid, sweep  # noqa: PLC0415  (torch)

    console = Terminal(stderr=True, quiet=quiet)
    found = choosing.answered(
        partial(configured, config_file),
        choosing.limit(max_belief, max_advantage, max_risk, baseline_risk),
        choosing.least(min_accuracy, min_balanced_accuracy, min_auc),
        against,
        grid.axes(over or ()),
        configuration.parse_overrides(set_),
        out,
        console,
        elsewhere.named(),
    )
    if found.result is None:
        console.print(sweep.table(found.outcomes))
        for sentence in sweep.sentences(found.outcomes):
            console.print(sentence, highlight=False)
        console.print(f"Report: {found.path / 'report.html'}", soft_wrap=True, highlight=False)
        if json_:
            print_json(reading.json_object(found.path / "report.json"))
        grid.complain(found.outcomes)
        return
    if json_:
        print_json(choose_report.document(found.result))
    else:
        _print(found.result, found.path, console)
    if found.config is None:
        raise typer.Exit(NOT_CHOSEN)


def _print(result: "Result", directory: Path, console: Terminal) -> None:
    from fedsim.report.document import terminal  # noqa: PLC0415
    from fedsim.studies.choose import choose_report, choose_words  # noqa: PLC0415

    console.print(choose_report.table(result))
    console.print(terminal.shown(*choose_report.towards(result)))
    last = list(choose_words.for_a_manager(result))
    for sentence in choose_words.sentences(result):
        if sentence not in last:
            console.print(sentence, highlight=False)
    for what, command in choose_report.commands(result, directory):
        console.print(f"{what}: {command}", soft_wrap=True, highlight=False)
    console.print(f"Report: {directory / 'report.html'}", soft_wrap=True, highlight=False)
    for sentence in last:
        console.print(sentence, highlight=False)
