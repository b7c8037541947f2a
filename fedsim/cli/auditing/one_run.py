"""`fedsim one-run`: the steps of a one-run audit, each on its own."""

import csv
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from adversaries.errors import InputError
from adversaries.statistics.intervals import check_positive_delta
from fedsim import config as configuration
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
from fedsim.common import private_files, reading
from fedsim.federation.runs import run_transcript
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.transcripts.reader import Reader
from fedsim.privacy.delta import ASSUMED

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

if TYPE_CHECKING:  # torch takes a second
    from adversaries.statistics.intervals import LowerBound
    from adversaries.statistics.one_run import CanaryEstimate
    from fedsim.game.one_run import Scored

COLUMNS = ("trial", "canary", "included", "score")
"""Of a file of scores. `trial` may be missing where there is one."""


def draw(
    config_file: ConfigFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A new file (JSON).")],
    set_: SetOption = None,
    json_: AsJson = False,
) -> None:
    """Write which canaries the configuration plants, at whom, and the coins of every trial.

    A function of run.seed: a run of the same configuration plants these. Who holds the file knows
    the coins; guesses must not be made with them.

    Example: fedsim one-run draw configs/one-run.toml --out canaries.json
    """
    from fedsim.game import federation, one_run  # noqa: PLC0415

    config = configuration.load(config_file, configuration.parse_overrides(set_))
    if not config.canaries.count:
        raise InputError("canaries.count is 0; say how many, for example --set canaries.count=1000")
    known = federation.load(config)
    one_run.check(config.canaries, known)
    coins = one_run.included(config.canaries.count, config.run.seed, range(config.trials.count))
    document = {
        "kind": config.canaries.kind,
        "count": config.canaries.count,
        "unit": config.privacy.unit,
        "norm": config.training.clipping_norm,
        "seed": config.run.seed,
        "clients": one_run.hosts(config.game).tolist(),
        **one_run.described(config.canaries, config.run.seed, known),
        # A character for each canary: 1 if it is in the training of the trial.
        "included": ["".join("01"[coin] for coin in trial) for trial in coins.tolist()],
    }
    _write_new(out, json.dumps(document) + "\n")
    count, trials = coins.shape[1], coins.shape[0]
    _say(out, count, trials, json_)


def score(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run directory, or an auditor's transcript (.fedt)."),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="A new file (CSV): trial, canary, included, score."),
    ],
    data_root: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help=f"{DATA_ROOT}, for canaries that are scored with records."
        ),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Write every canary's score: how far it shows in the released sums of all rounds.

    Of a run directory they are those that the server computed as it released the sums; of an
    auditor's transcript they are computed from the sums that the auditor's node was sent.

    Example: fedsim one-run score fedsim-runs/one-run --out scores.csv
    """
    found = _of_run(source) if source.is_dir() else _of_transcript(source, data_root)
    rows = [",".join(COLUMNS)]
    for trial, coins, values in zip(
        found.trials.tolist(), found.included.tolist(), found.scores.tolist(), strict=True
    ):
        rows += [
            f"{trial},{canary},{int(coin)},{value!r}"
            for canary, (coin, value) in enumerate(zip(coins, values, strict=True))
        ]
    _write_new(out, "\n".join(rows) + "\n")
    _say(out, found.scores.shape[1], len(found.trials), json_)


def _say(out: Path, canaries: int, trials: int, as_json: bool) -> None:
    """Say what was written."""
    if as_json:
        print_json({"file": str(out), "canaries": canaries, "trials": trials})
    else:
        Terminal(stderr=True).print(f"{out}: {canaries} canaries, {trials} trials")


def estimate(
    scores_file: Annotated[
        Path,
        typer.Argument(metavar="SCORES", help="CSV with the columns included (0 or 1) and score."),
    ],
    delta: Delta = None,
    confidence: Confidence = None,
    guesses: Annotated[
        int,
        typer.Option(
            help="How many canaries to guess about, decided before the scores are seen; 0: one in "
            "eight; -1: try several numbers and pay for it."
        ),
    ] = 0,
    orthogonal: Annotated[
        bool,
        typer.Option(
            "--orthogonal",
            help="The canaries lie along orthogonal directions, as of kind dirac: a third and "
            "tighter bound, by order statistics.",
        ),
    ] = False,
    trial: Annotated[
        int | None,
        typer.Option(help="Which trial's audit, decided before as well; default: the first."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Say what the canaries prove of ε, by bounds, and what they suggest, by an estimate.

    A bound holds with the stated confidence if the coins were fair, the scores made without them,
    and what else it says that it assumes is so. Each by itself: the largest of several proves less.
    The estimate has no confidence statement.

    Example: fedsim one-run estimate scores.csv --delta 1e-5
    """
    from adversaries.statistics import (  # noqa: PLC0415
        one_run as estimators,
    )
    from adversaries.statistics.order_statistics import order_bound  # noqa: PLC0415

    delta = ASSUMED if delta is None else delta
    confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
    check_positive_delta(delta)
    number, included, scores = read_scores(scores_file, trial)
    bounds = {
        "binomial": estimators.binomial_bound(included, scores, delta, confidence, guesses),
        "f_dp": estimators.f_dp_bound(included, scores, delta, confidence, guesses),
    }
    if orthogonal:
        bounds["order"] = order_bound(included, scores, delta, confidence)
    suggested = estimators.client_canary_estimate(included, scores, delta, confidence)
    if json_:
        print_json(
            {
                "trial": number,
                "canaries": scores.size,
                "included": int(included.sum()),
                "bounds": {name: asdict(bound) for name, bound in bounds.items()},
                "estimate": asdict(suggested),
            }
        )
        return
    title = f"{scores.size} canaries, {int(included.sum())} of them in, δ = {delta:g}"
    table = _table(title, bounds, suggested)
    table.caption = f"Bounds and interval at {confidence:.1%}; the estimate proves nothing."
    Terminal().print(table)


def _table(title: str, bounds: Mapping[str, "LowerBound"], suggested: "CanaryEstimate") -> Table:
    """Return the bounds of an audit, and what is suggested, for a terminal."""
    table = Table(title=title)
    for heading in ("", "ε", "guesses", "assumes"):
        table.add_column(heading)
    for bound in bounds.values():
        details = bound.details
        made = f"{details['right']:g} of {details['guesses']:g} right"
        table.add_row(bound.method, f"at least {bound.epsilon:.3f}", made, bound.assumes)
    between = suggested.epsilon_interval
    value = f"{suggested.epsilon:.3f} ({between.low:.3f} to {between.high:.3f})"
    table.add_row(suggested.method, suggested.reason or value, "", suggested.assumes)
    return table


def _of_run(path: Path) -> "Scored":
    from fedsim.game.one_run import Scored  # noqa: PLC0415

    arrays = run_transcript.read(RunDirectory.open(path))
    if "canary_scores" not in arrays:
        raise InputError(
            f"the run in '{path}' planted no canaries; set canaries.count before it begins"
        )
    scores = arrays["canary_scores"]
    return Scored(np.arange(len(scores)), arrays["canaries_included"], scores)


def _of_transcript(path: Path, data_root: Path | None) -> "Scored":
    from fedsim.federation.transcripts.one_run_scores import transcript_scores  # noqa: PLC0415

    root = "" if data_root is None else str(data_root.expanduser().absolute())
    with Reader(path) as reader:
        return transcript_scores(reader.rounds(), root)


def read_scores(path: Path, trial: int | None) -> tuple[int, Bools, Floats]:
    """Read the scores of a trial's m canaries.

    Args:
        path: a CSV with the columns `included` and `score`, and perhaps `trial` and `canary`.
        trial: whose canaries are read, from 0; None for the lowest in the file.

    Returns:
        The trial, its coins bool [m] and its scores float64 [m].

    Raises:
        InputError: the file cannot be read, has no such trial, or a line with another coin than 0
            or 1, a score that is not finite, or a canary that was there before.
    """
    try:
        # A spreadsheet begins its files with a mark of their encoding.
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            header = [name.strip() for name in rows.fieldnames or ()]
            rows.fieldnames = header
            for name in COLUMNS:
                if header.count(name) > 1:
                    raise InputError(
                        f"'{path}' has {header.count(name)} columns '{name}'; keep one"
                    )
            seen: set[tuple[int, str]] = set()
            lines = [_line(row, f"'{path}', line {rows.line_num}", seen) for row in rows]
    except InputError:
        raise
    except (csv.Error, *reading.DAMAGE) as error:
        why = reading.reason(error)
        raise InputError(f"cannot read scores from '{path}': {why}; give a CSV") from None
    if not ({"included", "score"} <= set(header) and lines):
        raise InputError(
            f"'{path}' has no columns 'included' and 'score' with rows; give what fedsim one-run "
            "score writes, or a CSV with these two"
        )
    numbers = {line[0] for line in lines}
    number = min(numbers) if trial is None else trial
    if number not in numbers:
        raise InputError(f"'{path}' has no trial {number}; it has {min(numbers)} to {max(numbers)}")
    chosen = [line for line in lines if line[0] == number]
    coins, scores = ([line[place] for line in chosen] for place in (1, 2))
    return number, np.asarray(coins, np.bool_), np.asarray(scores, np.float64)


def _line(
    row: Mapping[str | None, Any], place: str, seen: set[tuple[int, str]]
) -> tuple[int, bool, float]:
    """Return trial, coin and score of a row, and add its trial and canary to those `seen`.

    Raises InputError that says where it is.
    """
    if not {"included", "score"} <= row.keys():
        return 0, False, 0.0  # the header is at fault, and refused
    if None in row:
        raise InputError(f"{place}: more fields than the header has; give one score a row")
    trial, canary, included, score = ((row.get(name) or "").strip() for name in COLUMNS)
    if not (trial or "0").isdecimal():
        raise InputError(f"{place}: trial is {trial!r}; give a whole number")
    if included not in ("0", "1"):
        raise InputError(f"{place}: included is {included!r}; give 0 or 1")
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place}: score is {score!r}; give a finite number")
    number = int(trial or 0)
    if canary and (number, canary) in seen:
        raise InputError(
            f"{place}: canary {canary!r} of trial {number} is there twice, but it had one coin; "
            "keep one row of each"
        )
    seen.add((number, canary))
    return number, included == "1", value


def _write_new(path: Path, text: str) -> None:
    """Write a file that was not there; it has coins, for its owner's eyes. Raises InputError."""
    if os.path.lexists(path):
        raise InputError(f"'{path}' exists; name a new file with --out")
    try:
        private_files.write(private_files.as_named(path), text.encode())
    except OSError as error:
        raise InputError(
            f"cannot write '{path}': {error.strerror}; name another file with --out"
        ) from None
