"""`fedsim one-run`: the steps of a one-run audit, each as a command."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from adversaries.statistics.intervals import check_positive_delta
from fedsim import config as configuration
from fedsim.audits import one_run
from fedsim.cli.options import (
    DATA_ROOT,
    DEFAULT_CONFIDENCE,
    AsJson,
    Confidence,
    ConfigFile,
    Delta,
    SetOption,
)
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import private_files
from fedsim.privacy.delta import ASSUMED


def draw(
    config_file: ConfigFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Path of the new file (JSON).")],
    set_: SetOption = None,
    json_: AsJson = False,
) -> None:
    """Write the canaries of a configuration: their clients, and the coins of every trial.

    They depend on run.seed only: a run of the same configuration plants the same canaries. The file
    contains the coins, so do not use it to make guesses.

    Example: fedsim one-run draw configs/one-run.toml --out canaries.json
    """
    from fedsim.game import federation  # noqa: PLC0415  (torch takes a second)

    config = configuration.load(config_file, configuration.parse_overrides(set_))
    document = one_run.drawn(config.game, federation.load(config.experiment))
    _write_new(out, json.dumps(document) + "\n")
    _print_counts(out, config.canaries.count, config.trials.count, json_)


def score(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run directory, or transcript of an auditor (.fedt)."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Path of the new file (CSV), with the columns trial, canary, included and score.",
        ),
    ],
    data_root: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help=f"{DATA_ROOT}, for canaries whose scores need records."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Write the score of every canary: its evidence in the released sums of all rounds.

    For a run directory, these are the scores that the server computed when it released the sums.
    For a transcript of an auditor, they are computed from the sums that the auditor's node
    received.

    Example: fedsim one-run score fedsim-runs/one-run --out scores.csv
    """
    scored = one_run.scored(source, data_root)
    rows = [",".join(one_run.COLUMNS)]
    for trial, coins, values in zip(
        scored.trials.tolist(), scored.included.tolist(), scored.scores.tolist(), strict=True
    ):
        rows += [
            f"{trial},{canary},{int(coin)},{value!r}"
            for canary, (coin, value) in enumerate(zip(coins, values, strict=True))
        ]
    _write_new(out, "\n".join(rows) + "\n")
    _print_counts(out, scored.scores.shape[1], len(scored.trials), json_)


def _print_counts(out: Path, canaries: int, trials: int, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(out), "canaries": canaries, "trials": trials})
    else:
        Terminal(stderr=True).print(f"{out}: {canaries} canaries, {trials} trials")


def estimate(
    scores_file: Annotated[
        Path,
        typer.Argument(
            metavar="SCORES", help="CSV file with the columns included (0 or 1) and score."
        ),
    ],
    delta: Delta = None,
    confidence: Confidence = None,
    guesses: Annotated[
        int,
        typer.Option(
            help="Number of canaries to guess. Choose it before you see the scores. 0: one "
            "in eight; -1: try several numbers and correct for it."
        ),
    ] = 0,
    trial: Annotated[
        int | None,
        typer.Option(
            help="Number of the trial to audit. Choose it before you see the scores. "
            "Default: the first."
        ),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Compute lower bounds on ε from the canaries' scores, and an estimate of ε.

    A bound holds with the stated confidence if the coins were fair, the scores were made without
    them, and the bound's printed assumptions hold. Each bound holds by itself: the largest of
    several has a lower confidence. The estimate has no confidence statement.

    Example: fedsim one-run estimate scores.csv --delta 1e-5
    """
    delta = ASSUMED if delta is None else delta
    confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
    check_positive_delta(delta)
    scores = one_run.read_scores(scores_file, trial)
    estimated = one_run.estimate(*scores, delta, confidence, guesses)
    if json_:
        document = {
            "trial": estimated.trial,
            "canaries": estimated.scores.size,
            "included": int(estimated.included.sum()),
            "bounds": {name: asdict(bound) for name, bound in estimated.bounds.items()},
            "estimate": asdict(estimated.estimate),
        }
        print_json(document)
        return
    table = Table(*one_run.HEADINGS, title=estimated.title, caption=estimated.caption)
    for row in estimated.rows():
        table.add_row(*row)
    Terminal().print(table)


def _write_new(path: Path, text: str) -> None:
    """Write a new file that only its owner may read, since it has the coins. Raises InputError."""
    with private_files.new_file(path) as file:
        file.write(text.encode())
