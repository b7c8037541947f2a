"""`fedsim choose`: the noise that meets a limit on the adversary."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsim import config as configuration
from fedsim.cli import elsewhere
from fedsim.cli.options import AsJson, ConfigFile, Quiet, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory.options import BaselineRisk, MaxRisk
from fedsim.config import Config, Scalar
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.choose import choosing

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.studies.choose.choose_search import Result

NOT_CHOSEN = 1
"""Exit status if no setting meets the request, or if the trials cannot tell."""


def choose(
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
        float | None, typer.Option(help="Least accuracy of the model, 0 to 1.")
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
    trials: Annotated[
        int | None, typer.Option(help="Number of trials of each setting. Default: 40.")
    ] = None,
    set_: SetOption = None,
    workers: elsewhere.Settings = None,
    cluster: elsewhere.Cluster = None,
    cluster_tls: elsewhere.ClusterTls = None,
    insecure: elsewhere.Insecure = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory of the search. Default: fedsim-runs/NAME-choose-LIMIT."
        ),
    ] = None,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Find the least noise that meets a limit on the adversary, and the model's accuracy with it.

    Tries noise around the limit with every value of --over. With --over privacy.epsilon=1,2,4 it
    tries these values of epsilon instead. With --min-accuracy it chooses the strictest setting that
    certainly reaches this accuracy. Theory decides what meets the limit. The trials measure
    accuracy and the adversary.

    DIR gets report.html with the frontier, report.json, summary.csv, every run, and config.toml of
    the chosen setting. Give the same command again to continue, or with more --trials to add
    trials. Exit status 1: no setting meets the limits, or more trials are needed to decide.

    Examples:

    fedsim choose configs/digits.toml --max-belief 0.75 --min-accuracy 0.75

    fedsim choose configs/digits.toml --max-risk 0.005 --baseline-risk 0.001
    """
    from fedsim.studies.choose import choose_report, grid  # noqa: PLC0415  (torch)
    from fedsim.studies.choose.choose_search import Request  # noqa: PLC0415

    console = Terminal(stderr=True, quiet=quiet)
    placed = elsewhere.named(workers, cluster, cluster_tls, insecure)
    request = Request(
        limit=choosing.limit(max_belief, max_advantage, max_risk, baseline_risk),
        min_accuracy=min_accuracy,
        against=against,
        over=grid.axes(over or ()),
        trials=trials,
        common=configuration.parse_overrides(set_),
    )

    def load(values: Mapping[str, Scalar]) -> Config:
        return configuration.load(config_file, values, "experiment")

    result, directory = choosing.carry_out(request, out, load, console, placed)
    if json_:
        print_json(choose_report.document(result))
    else:
        _print(result, directory, console)
    grid.complain(result.outcomes)
    if result.choice.chosen is None:
        raise typer.Exit(NOT_CHOSEN)


def _print(result: "Result", directory: Path, console: Terminal) -> None:
    from fedsim.studies.choose import choose_report, choose_words  # noqa: PLC0415

    console.print(choose_report.table(result))
    for sentence in (*choose_words.sentences(result), choose_words.cost_in_short(result)):
        console.print(sentence, highlight=False)
    if result.choice.chosen:
        for what, command in choose_report.commands(result, directory):
            console.print(f"{what}: {command}", soft_wrap=True, highlight=False)
    console.print(f"Report: {directory / 'report.html'}", soft_wrap=True, highlight=False)
