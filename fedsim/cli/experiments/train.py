"""`fedsim train`, `rehearse` and `predict`: a private training, its rehearsal, and its model."""

import csv
import io
import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli import gate
from fedsim.cli.elsewhere import Elsewhere
from fedsim.cli.experiments import options
from fedsim.cli.experiments.options import Runtime
from fedsim.cli.experiments.run import begin, carry_out, check_runtime, conclude_with
from fedsim.cli.options import (
    AsJson,
    ConfigFileUnlessResumed,
    FailIf,
    Quiet,
    Rehearsal,
    RunOut,
    Seed,
    SetOption,
    Verbose,
)
from fedsim.cli.terminal import Terminal, results
from fedsim.common import private_files
from fedsim.common.strict_json import strict_json
from fedsim.config import Config, Scalar
from fedsim.experiment import prepare
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report import model_card
from fedsim.report.tracking.progress import conclude, conclude_training, opened


def train(
    config_file: ConfigFileUnlessResumed = None,
    out: RunOut = None,
    device: options.Device = None,
    runtime: options.RuntimeOption = Runtime.AUTO,
    set_: SetOption = None,
    resume: options.Resume = None,
    rehearsal: Rehearsal = None,
    track: options.Track = None,
    fail_if: FailIf = None,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Train a model with differential privacy, once, and keep it.

    There is no adversary and no repetition, and the noise comes from the operating system. The run
    directory's public/ holds model.safetensors, model.toml and MODEL_CARD.md, which states the
    model's privacy. report.html beside it is for the operator of the server.

    Example: fedsim train configs/train-digits.toml --out fedsim-runs/digits-model

    What the same training would tell an adversary: fedsim rehearse configs/train-digits.toml

    A training that was interrupted goes on after its last round: fedsim train --resume RUN_DIR
    """
    start = time.time()
    console = Terminal(stderr=True, quiet=quiet)
    check_runtime(runtime)
    checked = gate.parsed(fail_if, "training")
    named = opened(track)
    if resume is None:
        overrides = configuration.parse_overrides(set_)
        config = _new(config_file, out, device, overrides, "training")
    else:
        options.refuse_beside_resume(
            (config_file, out, device, set_),
            "training",
            "--runtime, --rehearsal, --track, --fail-if",
        )
        config = RunDirectory.open(resume).config
        if config.run.job != "training":
            raise InputError(
                f"'{resume}' is not a training; continue it with fedsim run --resume {resume}"
            )
    values = configuration.to_run_config(config)
    evidence = None if rehearsal is None else model_card.findings(values, rehearsal)
    plan = prepare(config, simulated=runtime is Runtime.SIMULATION)
    directory = begin(plan, console)
    if evidence is not None:
        model_card.attach(directory, evidence)
    if not directory.finished:
        carry_out(plan, directory, runtime, console, named)
    conclude_training(directory, start, results(quiet=quiet, as_json=json_))
    conclude_with(directory, json_, checked)


def rehearse(
    *,
    config_file: ConfigFileUnlessResumed = None,
    trials: options.Trials = None,
    seed: Seed = None,
    out: RunOut = None,
    device: options.Device = None,
    max_memory: options.MaxMemory = None,
    runtime: options.RuntimeOption = Runtime.AUTO,
    elsewhere: Elsewhere,
    set_: SetOption = None,
    track: options.Track = None,
    fail_if: FailIf = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Estimate a training's privacy by playing the identification game on public records.

    A real training runs once, so it cannot show how much an adversary learns. A rehearsal
    measures that beforehand. You can still change the noise, and the model's card can show the
    result (fedsim train --rehearsal).

    It takes the configuration of `fedsim train`, with the same rounds, clipping and noise
    multiplier. It trains many times, with noise from the seed, while an adversary observes.

    Example: fedsim rehearse configs/train-digits.toml --trials 200
    """
    start = time.time()
    console = Terminal(stderr=True, quiet=quiet)
    check_runtime(runtime)
    simulated = runtime is Runtime.SIMULATION
    placed = elsewhere.named(simulated)
    checked = gate.parsed(fail_if, "run")
    named = opened(track)
    values = {"trials.count": trials, "run.seed": seed, "run.max-memory": max_memory}
    overrides = configuration.parse_overrides(set_)
    overrides |= {key: value for key, value in values.items() if value is not None}
    config = _new(config_file, out, device, overrides, "rehearsal")
    plan = prepare(config, workers=placed, simulated=simulated)
    directory = begin(plan, console, placed)
    if not directory.finished:
        carry_out(plan, directory, runtime, console, named, placed)
    command = f"fedsim rehearse {config_file}"
    conclude(directory, start, results(quiet=quiet, as_json=json_), console, command, verbose)
    conclude_with(directory, json_, checked)


def _new(
    path: Path | None,
    out: Path | None,
    device: str | None,
    overrides: dict[str, Scalar],
    job: str,
) -> Config:
    """Return the configuration of a new training, or of its rehearsal. Raises InputError."""
    if path is None:
        raise InputError(f"the {job} needs a configuration, for example configs/train-digits.toml")
    if out is not None:
        overrides["run.out"] = str(out)
    if device is not None:
        overrides["run.device"] = device
    return configuration.load(path, overrides, job)


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Run directory of fedsim train.")],
    records: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Records: a table that fits the model's schema, or an .npz file with features.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for the predictions. Default: the terminal."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Predict the class of records, or the likelihood of texts, with a trained model.

    Prints comma-separated values, one row for each record in order: the most likely class and the
    probability of each class. For a text model: the number of tokens, log-likelihood and
    perplexity.

    Example: fedsim predict fedsim-runs/model patients.csv --out predictions.csv
    """
    from fedsim.learning.training import saved_model  # noqa: PLC0415  (torch is slow to import)

    predictions = saved_model.predictions(run, saved_model.read_features(run, records))
    if json_:
        document = strict_json(predictions.as_json())
        _write(json.dumps(document, indent=2, allow_nan=False) + "\n", out)
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    for row in predictions.table():
        table.writerow([f"{each:.6g}" if isinstance(each, float) else each for each in row])
    _write(text.getvalue(), out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
    else:
        with private_files.new_file(out) as file:
            file.write(text.encode())
