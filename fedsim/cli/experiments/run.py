"""`fedsim run`: one experiment, from a configuration to a report."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from adversaries.errors import InputError, InterruptedRunError
from fedsim import config as configuration
from fedsim.cli import gate
from fedsim.cli.elsewhere import Elsewhere
from fedsim.cli.experiments import options
from fedsim.cli.experiments.options import Runtime
from fedsim.cli.options import (
    AsJson,
    ConfigFileUnlessResumed,
    FailIf,
    Quiet,
    RunOut,
    Seed,
    SetOption,
    Verbose,
)
from fedsim.cli.terminal import Terminal, print_json, results
from fedsim.config import Config, Scalar
from fedsim.experiment import (
    batch_trainer,
    check_batches,
    check_ledger,
    prepare,
    run_in_process,
    run_simulated,
)
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.tracking.progress import conclude, opened, preparing, progress, tracking

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.runtimes.places import Workers
    from fedsim.federation.server.plan import Plan
    from fedsim.report.tracking.trackers import Tracker


def run(
    *,
    config_file: ConfigFileUnlessResumed = None,
    trials: options.Trials = None,
    rounds: options.Rounds = None,
    seed: Seed = None,
    out: RunOut = None,
    device: options.Device = None,
    max_memory: options.MaxMemory = None,
    runtime: options.RuntimeOption = Runtime.AUTO,
    elsewhere: Elsewhere,
    set_: SetOption = None,
    resume: options.Resume = None,
    track: options.Track = None,
    fail_if: FailIf = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Run a federation with the adversary inside it, and report how identifiable one person is.

    Trains T independent repetitions of the federation, half of them with the target record and half
    without it. The adversary guesses which is which. Writes a run directory with report.html,
    report.json and the transcript.

    Example: fedsim run configs/digits.toml --trials 400 --set privacy.rho-beta=0.75

    More trials for a run that was too small: fedsim run --resume RUN_DIR --trials 1000
    """
    start = time.time()
    console = Terminal(stderr=True, quiet=quiet)
    checked = gate.parsed(fail_if, "run")
    check_runtime(runtime)
    simulated = runtime is Runtime.SIMULATION
    placed = elsewhere.named(simulated)
    named = opened(track)
    values: dict[str, Scalar | None] = {
        "training.rounds": rounds,
        "run.seed": seed,
        "run.out": None if out is None else str(out),
        "run.device": device,
        "run.max-memory": max_memory,
    }
    plan = None
    if resume is not None:
        options.refuse_beside_resume(
            (config_file, set_, *values.values()),
            "run",
            "--trials, --runtime, --workers, --cluster, --track, --fail-if",
        )
        configuration.check_is_no_training(RunDirectory.open(resume).config.run.job, str(resume))
        directory = _resumed(resume, trials)
    else:
        values["trials.count"] = trials
        config = _configured(config_file, set_, values)
        plan = prepare(config, workers=placed, simulated=simulated)
        directory = begin(plan, console, placed)
    if directory.finished:
        message = _finished(directory, resume is not None, trials is not None)
        console.print(message, highlight=False)
    else:
        if plan is None:
            plan = prepare(directory.config)
            check_batches(plan, placed)
        carry_out(plan, directory, runtime, console, named, placed)
        command = f"fedsim run {config_file if config_file else f'--resume {resume}'}"
        conclude(directory, start, results(quiet=quiet, as_json=json_), console, command, verbose)
    conclude_with(directory, json_, checked)


def _configured(
    path: Path | None, set_: list[str] | None, values: Mapping[str, Scalar | None]
) -> Config:
    """Return the configuration of a new run. Raises InputError for a training's, or for none."""
    if path is None:
        raise InputError("fedsim run needs a configuration, for example configs/digits.toml")
    overrides = configuration.parse_overrides(set_)
    overrides |= {key: value for key, value in values.items() if value is not None}
    config = configuration.load(path, overrides)
    configuration.check_is_no_training(config.run.job, str(path))
    return config


def begin(plan: "Plan", console: Console, placed: "Workers | None" = None) -> RunDirectory:
    """Begin a prepared run, and return its directory."""
    check_batches(plan, placed)
    options.print_delta(plan.config.privacy.delta, plan.config.data.records, console)
    with preparing(console) as searched:
        return plan.begin(searched)


def conclude_with(directory: RunDirectory, as_json: bool, checked: gate.Gate) -> None:
    """Print the report if the user wants JSON, and end the command if the gate is shut."""
    report = directory.read_json("report.json")
    if as_json:
        print_json(report)
    checked.exit_by(report)


def check_runtime(runtime: Runtime) -> None:
    """Raise InputError if the runtime needs Ray, and Ray is not installed."""
    if runtime is Runtime.SIMULATION:
        from fedsim.federation.runtimes.simulation import require_ray  # noqa: PLC0415

        require_ray()


def carry_out(
    plan: "Plan",
    directory: RunDirectory,
    runtime: Runtime,
    console: Console,
    named: "Mapping[str, Tracker]",
    placed: "Workers | None" = None,
) -> None:
    """Train the remaining part of a run."""
    with directory.lock():  # refuse before a runtime starts its processes, which takes long
        check_ledger(plan, directory)
    try:
        watchers = tracking(directory, named)
        with (
            batch_trainer(placed, console) as trainer,
            progress(directory, console, watchers),
        ):
            if runtime is Runtime.SIMULATION:
                run_simulated(plan, directory)
            else:
                run_in_process(plan, directory, trainer)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"interrupted; the finished part is kept. To continue, run {directory.resumed_by}"
        ) from None


def _resumed(path: Path, trials: int | None) -> RunDirectory:
    """Open a run to continue it, with more trials if `trials` is set. Raises InputError."""
    from fedsim.federation.runs.extension import extend  # noqa: PLC0415

    directory = RunDirectory.open(path)
    if trials is not None:
        with directory.lock():
            extend(directory, trials)
    return directory


def _finished(directory: RunDirectory, resumed: bool, more: bool) -> str:
    """Return that an extension to more trials was withdrawn. Raises InputError if none was."""
    page, config = directory.path / "report.html", directory.config
    # `extend` refuses the number of a finished run. So the user went back from a larger one.
    if resumed and more:
        return f"Nothing to do: the run has {config.trials.count} trials, and {page} shows them"
    another = "name a new directory with --out"
    if resumed:  # --resume does not allow --out
        another = f"begin another with fedsim run {directory.path / 'config.toml'} --out NEW_DIR"
    raise InputError(
        f"'{directory.path}' holds a finished run; read {page}, or {another}, or add trials with "
        "--resume and --trials"
    )
