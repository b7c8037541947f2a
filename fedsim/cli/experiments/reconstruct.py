"""`fedsim reconstruct`: which record, or which value of a column, did the training use?"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli.options import TRIALS, AsJson, ConfigFile, Seed, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory

CONTRADICTED = 4
"""Exit status where the measurement contradicts theory, on the scale of audits."""


def reconstruct(
    config_file: ConfigFile,
    candidates: Annotated[
        int | None,
        typer.Option(
            help="Number of records, of which the training uses one. At most 1000. Default: 100."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Guess the target's value of this column instead: a column of a table, or label.",
        ),
    ] = None,
    prior: Annotated[
        Literal["uniform", "data"],
        typer.Option(
            help="Probability of the column's values: all alike, or their shares outside D."
        ),
    ] = "uniform",
    trials: Annotated[int, typer.Option(min=1, help=f"{TRIALS}.")] = 1000,
    seed: Seed = None,
    set_: SetOption = None,
    json_: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the report. Default: fedsim-runs/NAME-reconstruction-TIME.",
        ),
    ] = None,
) -> None:
    """Measure how often a participant guesses which record, or which value of a column, a training
    used.

    In every trial one of the candidates, drawn at random, is in the training data. The adversary
    computes the exact posterior over all candidates from the released sums. The report compares its
    success with guessing, with a prediction, and with the limit that the noise sets to any attack.

    Exit status: 0 no contradiction; 2 bad input; 4 the measurement contradicts theory.

    Examples:

    fedsim reconstruct configs/digits.toml --candidates 100

    fedsim reconstruct configs/digits.toml --column label --trials 400
    """
    from fedsim import api_answers  # noqa: PLC0415  (torch)
    from fedsim.report.document import terminal  # noqa: PLC0415
    from fedsim.studies.reconstruction import candidate_report  # noqa: PLC0415

    overrides = configuration.parse_overrides(set_)
    if "trials.count" in overrides:
        raise InputError("--set trials.count has no effect here; give --trials")
    overrides |= {} if seed is None else {"run.seed": seed}
    name = configuration.load(config_file, overrides).run.name
    directory = out or report_directory.timed(f"{name}-reconstruction")
    answer = api_answers.reconstruct(
        config_file,
        candidates=candidates,
        column=column,
        prior=prior,
        trials=trials,
        out=directory,
        overrides=overrides,
    )
    console = Terminal(stderr=True)
    if json_:
        print_json(answer.report)
    console.print(terminal.shown(*candidate_report.blocks(answer.report)))
    console.print(f"Report: {answer.page}", soft_wrap=True, highlight=False)
    if answer.report["alarms"]:
        raise typer.Exit(CONTRADICTED)
