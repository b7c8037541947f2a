"""`fedsim choose`: which epsilon, for a limit on the adversary."""

from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory
from fedsim.experiment import in_process, prepare, with_absolute_paths
from fedsim.trust.model import Vantage

NOT_CHOSEN = 1
"""Exit status where no setting meets what was asked for, or nobody can tell."""


def choose(
    config_file: Annotated[Path, typer.Argument(metavar="CONFIG", help="Experiment file (TOML).")],
    max_belief: Annotated[
        float | None, typer.Option(help="Limit on the adversary's belief, 0.5 (a coin) to 1.")
    ] = None,
    max_advantage: Annotated[
        float | None, typer.Option(help="Limit on its advantage over a coin, 0 to 1.")
    ] = None,
    min_accuracy: Annotated[
        float | None, typer.Option(help="Accuracy that the model is to have, 0 to 1.")
    ] = None,
    against: Annotated[
        Vantage | None, typer.Option(help="Who the adversary is; default: federation.vantage.")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2,...",
            help="Values to try, of rounds, clipping norm, ...; repeated, all combinations.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Trainings of each setting, all evaluated; default 40.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override any key in all settings."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: fedsim-runs/NAME-choose.")
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no answer.")] = False,
) -> None:
    """Find the least noise that meets a limit on the adversary, and how accurate the model is then.

    Tries noise around the limit, and every value of --over besides; --over privacy.epsilon=1,2,4
    tries these in place of that. With --min-accuracy the strictest setting is chosen of which the
    accuracy is surely as high. Theory says what meets the limit; the trials measure accuracy, and
    the adversary beside it.

    DIR gets report.html with the frontier, report.json, summary.csv, every run, and config.toml of
    the chosen setting. The same command again continues. Exit status 1: nothing meets what was
    asked for, or more trials are needed to tell.

    Example: fedsim choose configs/digits.toml --max-belief 0.75 --min-accuracy 0.7
    """
    from fedsim.studies import choose_report, choose_search, grid  # noqa: PLC0415  (torch)
    from fedsim.studies.choose import ADVANTAGE, BELIEF, Limit  # noqa: PLC0415

    limits = {BELIEF: max_belief, ADVANTAGE: max_advantage}
    asked = [Limit(key, value) for key, value in limits.items() if value is not None]
    if len(asked) != 1:
        raise InputError(
            "what may the adversary achieve? Give one of --max-belief, such as 0.75, and "
            "--max-advantage, such as 0.2"
        )
    console = Terminal(stderr=True, quiet=quiet)
    request = choose_search.Request(
        limit=asked[0],
        min_accuracy=min_accuracy,
        against=against,
        over=grid.axes(over or ()),
        trials=trials,
        common=configuration.parse_overrides(set_),
    )
    found, directory = choose_search.search(
        request,
        out,
        load=lambda values: with_absolute_paths(
            configuration.load(config_file, values, "experiment")
        ),
        prepare=prepare,
        run=lambda plan: in_process(plan, console),
        say=lambda text: console.print(text, highlight=False),
    )
    with report_directory.refusing(directory):
        page = choose_report.write(found, directory)
    if as_json:
        print_json(choose_report.document(found, found.config.run.name))
    console.print(choose_report.table(found))
    for sentence in choose_report.sentences(found):
        console.print(sentence, highlight=False)
    console.print(choose_report.cost_in_short(found), highlight=False)
    if found.choice.chosen:
        console.print(f"Run it: {choose_report.command(directory)}", soft_wrap=True)
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    grid.complain(found.outcomes)
    if found.choice.chosen is None:
        raise typer.Exit(NOT_CHOSEN)
