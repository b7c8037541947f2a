"""`fedsim run`: one experiment, from a configuration to a report."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError, InterruptedRunError
from adversaries.statistics import stopping
from fedsim import config as configuration
from fedsim.campaign import budget
from fedsim.campaign.extension import extend
from fedsim.campaign.run_directory import RunDirectory
from fedsim.cli.options import AcceptEpsilon, SetOption
from fedsim.cli.terminal import Terminal
from fedsim.config import Config, Scalar
from fedsim.experiment import (
    check_ledger,
    prepare,
    run_in_process,
    run_simulated,
)
from fedsim.runtimes.progress import conclude, preparing, progress


class Runtime(StrEnum):
    """Which of Flower's runtimes carries the messages."""

    AUTO = "auto"
    INPROCESS = "inprocess"
    SIMULATION = "simulation"


class DeviceName(StrEnum):
    """Where the tensors live."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def run(
    config_file: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="Experiment file (TOML); see configs/."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Repetitions [trials.count]; with --resume, how many in the end."),
    ] = None,
    until_halfwidth: Annotated[
        float | None,
        typer.Option(
            metavar="H",
            help="Stop once the advantage's interval is ± H at most [trials.until-halfwidth].",
        ),
    ] = None,
    max_trials: Annotated[
        int | None,
        typer.Option(help="At most so many repetitions, with --until-halfwidth [trials.count]."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds k [training.rounds].")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default fedsim-runs/NAME-TIME.")
    ] = None,
    device: Annotated[
        DeviceName | None, typer.Option(help="auto takes CUDA if it is there.")
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Such as 4GiB; default: what the device has to spare."),
    ] = None,
    runtime: Annotated[
        Runtime,
        typer.Option(help="inprocess: fastest on one machine (auto). simulation: Flower with Ray."),
    ] = Runtime.AUTO,
    set_: SetOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Continue an interrupted run, or one with more --trials."),
    ] = None,
    accept_epsilon: AcceptEpsilon = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")] = False,
) -> None:
    """Run a federation with the adversary inside it, and report how identifiable one person is.

    Trains T independent repetitions of the federation, half of them with and half without the
    challenge record, lets the adversary guess, and writes a run directory with report.html,
    report.json and the transcript.

    Example: fedsim run configs/digits.toml --trials 400 --set privacy.rho-beta=0.75

    Until the advantage is known to ± 0.1, however many trials that takes (`fedsim trials` says):
    fedsim run configs/digits.toml --until-halfwidth 0.1 --max-trials 4000

    More trials for a run that was too small: fedsim run --resume RUN_DIR --trials 1000
    """
    start = time.time()
    console = Terminal(stderr=True, quiet=quiet)
    _check_halfwidth(until_halfwidth)
    if runtime is Runtime.SIMULATION:
        from fedsim.runtimes.simulation import require_ray  # noqa: PLC0415

        require_ray()
    if resume is not None:
        options: list[object] = [config_file, rounds, seed, out, device, max_memory, set_]
        options += [until_halfwidth, max_trials]
        if any(option is not None for option in options):
            raise InputError(
                "--resume continues a run with its own configuration; give it alone "
                "(only --trials, --runtime, --accept-epsilon and --quiet may stand beside it)"
            )
        directory, config = _resumed(resume, trials, accept_epsilon)
    else:
        if config_file is None:
            raise InputError(
                "which experiment? Give a configuration, for example configs/digits.toml"
            )
        given: dict[str, Scalar | None] = {
            "trials.count": max_trials if trials is None else trials,
            "trials.until-halfwidth": until_halfwidth,
            "training.rounds": rounds,
            "run.seed": seed,
            "run.out": None if out is None else str(out),
            "run.device": None if device is None else device.value,
            "run.max-memory": max_memory,
        }
        overrides = configuration.parse_overrides(set_)
        overrides |= {key: value for key, value in given.items() if value is not None}
        config = configuration.load(config_file, overrides)
        _check_maximum(config, trials, max_trials)
        if runtime is Runtime.SIMULATION and not config.run.threads:
            # As many as Ray gives a client.
            update = {"threads": config.run.client_cpus}
            config = config.model_copy(update={"run": config.run.model_copy(update=update)})
        with preparing(console) as searched:
            plan = prepare(config)
            directory, config = plan.begin(searched), plan.config
        if short := shortfall(config):
            console.print(short, highlight=False)
    if directory.finished:
        # `extend` has refused the number of a finished run, so that a larger one was taken back.
        taken_back = resume is not None and trials is not None
        resumed = resume is not None
        console.print(_what_is_finished(directory, config, resumed, taken_back), highlight=False)
        return
    if resume is not None:
        plan = prepare(config)
    with directory.lock():  # a runtime of several processes takes long to start, and to say no
        check_ledger(plan, directory, accept_epsilon)
    try:
        with progress(directory, config, console):
            if runtime is Runtime.SIMULATION:
                run_simulated(config)
            else:
                run_in_process(plan, directory)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"interrupted; finished batches are kept: fedsim run --resume {directory.path}"
        ) from None
    conclude(directory, start, console)


def _resumed(
    path: Path, trials: int | None, accept_epsilon: float | None
) -> tuple[RunDirectory, Config]:
    """Open a run to be continued, with more trials where they are given. Raises InputError."""
    directory = RunDirectory.open(path)
    if trials is not None:
        with directory.lock():
            if accept_epsilon is not None:
                budget.accept(directory, accept_epsilon)
            extend(directory, trials)
    return directory, directory.config


def _check_halfwidth(until_halfwidth: float | None) -> None:
    """Raise InputError for 0, which in a configuration means that none was given."""
    if until_halfwidth == 0:
        raise InputError(
            "--until-halfwidth is 0, which no number of trials reaches; give a number above 0, "
            "such as 0.1, or leave it out"
        )


def _check_maximum(config: Config, trials: int | None, max_trials: int | None) -> None:
    """Raise InputError where --max-trials is no maximum."""
    if max_trials is None:
        return
    if trials is not None:
        raise InputError("--trials and --max-trials both say how many trials; give one")
    if not config.trials.until_halfwidth:
        raise InputError(
            "--max-trials is for trials that stop by what they show; give --until-halfwidth with "
            "it, or --trials instead"
        )


def _what_is_finished(
    directory: RunDirectory, config: Config, resumed: bool, taken_back: bool
) -> str:
    """Say that a larger number of trials was taken back. Raises InputError where none was."""
    page = directory.path / "report.html"
    if taken_back:
        return f"{config.trials.count} trials, as {page} has them: nothing to do"
    another = "name a new directory with --out"
    if resumed:  # which takes no --out
        another = f"begin another with fedsim run {directory.path / 'config.toml'} --out NEW_DIR"
    more = "" if config.trials.until_halfwidth else ", or add trials with --resume and --trials"
    raise InputError(f"'{directory.path}' holds a finished run; read {page}, or {another}{more}")


def shortfall(config: Config) -> str:
    """Say that the trials may end before they are precise enough; "" where they cannot."""
    trials = config.trials
    if not trials.until_halfwidth:
        return ""
    common = trials.pairing == "common"
    needed = stopping.enough(trials.until_halfwidth, config.audit.confidence, common)
    if trials.count >= needed:
        return ""
    return (
        f"At most {trials.count} trials: {needed} have a halfwidth of {trials.until_halfwidth:g} "
        "whatever they show but for ties, fewer only if the advantage is large"
        f"{' or the pairs agree' * common} (--max-trials)."
    )
