"""`fedsim run`: one experiment, from a configuration to a report."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedsim import config as configuration
from fedsim.config import Config, Scalar
from fedsim.errors import InputError, InterruptedRunError
from fedsim.run_directory import RunDirectory


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
        int | None, typer.Option(help="Independent repetitions [trials.count].")
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
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override any key; may be repeated."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue a run that was interrupted.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")] = False,
) -> None:
    """Run a federation with the adversary inside it, and report how identifiable one person is.

    Trains T independent repetitions of the federation, half of them with and half without the
    challenge record, lets the adversary guess, and writes a run directory with report.html,
    report.json and the transcript.

    Example: fedsim run configs/digits.toml --trials 400 --set privacy.rho-beta=0.75
    """
    start = time.time()
    console = Console(stderr=True, quiet=quiet)
    if resume is not None:
        options = [config_file, trials, rounds, seed, out, device, max_memory, set_]
        if any(option is not None for option in options):
            raise InputError(
                "--resume continues a run with its own configuration; give it alone "
                "(only --runtime and --quiet may stand beside it)"
            )
        directory = RunDirectory.open(resume)
        config = directory.config
    else:
        if config_file is None:
            raise InputError(
                "which experiment? Give a configuration, for example configs/digits.toml"
            )
        given: dict[str, Scalar | None] = {
            "trials.count": trials,
            "training.rounds": rounds,
            "run.seed": seed,
            "run.out": None if out is None else str(out),
            "run.device": None if device is None else device.value,
            "run.max-memory": max_memory,
        }
        overrides = dict(configuration.parse_override(text) for text in set_ or [])
        overrides |= {key: value for key, value in given.items() if value is not None}
        config = _with_absolute_paths(configuration.load(config_file, overrides))
        if runtime is Runtime.SIMULATION and not config.run.threads:
            # As many as Ray gives a client.
            update = {"threads": config.run.client_cpus}
            config = config.model_copy(update={"run": config.run.model_copy(update=update)})
        with console.status("preparing"):
            config, directory = _prepare(config)
    if directory.has("report.json"):
        raise InputError(
            f"'{directory.path}' holds a finished run; read {directory.path / 'report.html'}, "
            "or name a new directory with --out"
        )
    if resume is not None:
        _check_ledger(config, directory)
    try:
        with _progress(directory, config, console):
            if runtime is Runtime.SIMULATION:
                _simulate(config)
            else:
                _run_in_process(config, directory)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"interrupted; finished cohorts are kept: fedsim run --resume {directory.path}"
        ) from None
    _conclude(directory, start, console)


def _with_absolute_paths(config: Config) -> Config:
    """Resolve paths here: Flower's processes have other working directories."""
    from fedsim.server_app import default_directory  # noqa: PLC0415  (Flower takes a second)

    root = str(Path(config.data.root).expanduser().absolute()) if config.data.root else ""
    out = default_directory(config).expanduser().absolute()
    data = config.data.model_copy(update={"root": root})
    return config.model_copy(update={"data": data}).placed_at(str(out))


def _prepare(config: Config) -> tuple[Config, RunDirectory]:
    """Find out what is wrong before a directory is made or a runtime started."""
    from fedsim import (  # noqa: PLC0415
        challenge,
        federation,
        identifiability,
        ledger,
        privacy,
        server_app,
    )

    server_app.check(config)
    config = federation.fit_cohort(config)
    federation.load(config).cut(
        config.trials.cohort, config.training.sampling_rate < 1, config.candidates
    )
    challenge.choose(config)
    # What the report will need, before the work rather than after it.
    nominal = privacy.noise_multiplier(config)
    mechanism = privacy.mechanism(config, nominal)
    identifiability.bounds(mechanism, config.privacy.delta, config.privacy.accountant)
    ledger.plan(config, nominal)
    return config, RunDirectory.create(Path(config.run.out), config)


def _check_ledger(config: Config, directory: RunDirectory) -> None:
    """Find out whether what is left of the budget is enough, before a runtime is started."""
    from fedsim import ledger, privacy  # noqa: PLC0415

    ledger.plan(config, privacy.noise_multiplier(config), directory)


def _run_in_process(config: Config, directory: RunDirectory) -> None:
    import logging  # noqa: PLC0415

    from fedsim import client_app, server_app  # noqa: PLC0415
    from fedsim.runtimes.inprocess import InProcessGrid  # noqa: PLC0415

    # After the import, which sets the level: the progress bar and the report say what Flower logs.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    grid = InProcessGrid(
        client_app.app, config.federation.owners, configuration.to_run_config(config)
    )
    server_app.run(grid, config, directory)


def _simulate(config: Config) -> None:
    from fedsim.runtimes.simulation import SimulationFailedError, simulation  # noqa: PLC0415

    with simulation(config) as submitted:
        while not (status := submitted.status())[0].startswith("finished"):
            time.sleep(2)  # asking starts a process, on the machine that computes
        if status[0] != "finished:completed":
            reason = status[1].removeprefix("Simulation failed with exception: ")
            raise SimulationFailedError(reason or f"the run ended as {status[0]}")


@contextmanager
def _progress(directory: RunDirectory, config: Config, console: Console) -> Iterator[None]:
    """Show the events of the run as they are written, whichever process writes them."""
    stop = threading.Event()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    hidden = console.quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        rounds = config.training.rounds
        task = progress.add_task("starting", total=_steps(config, rounds), rounds=rounds)

        def follow(position: int) -> None:
            while True:
                ending = stop.is_set()
                for event, behind in directory.events(position):
                    _show(progress, task, event, config)
                    position = behind
                if ending:
                    return
                stop.wait(0.2)

        follower = threading.Thread(target=follow, args=[directory.events_size()], daemon=True)
        follower.start()
        try:
            yield
        finally:
            stop.set()
            follower.join()


def _steps(config: Config, rounds: int) -> int:
    """Return the length of the progress bar: the rounds of every cohort, and its conclusion."""
    return -(-config.trials.count // config.trials.cohort) * (rounds + 1)


def _show(progress: Progress, task: TaskID, event: dict[str, Any], config: Config) -> None:
    if "rounds" in event:
        rounds = event["rounds"]
        progress.update(task, total=_steps(config, rounds), rounds=rounds)
    if "dropped" in event:
        return
    if "trials" not in event:
        progress.update(task, description=event["phase"])
        return
    first, last = event["trials"]
    per_cohort = progress.tasks[task].fields["rounds"] + 1
    begun = first // config.trials.cohort * per_cohort
    done = begun + event.get("round", per_cohort - 1) + (1 if "phase" in event else 0)
    accuracy = f", accuracy {event['accuracy']:.3f}" if "accuracy" in event else ""
    epsilon = f", epsilon {spent:.3g}" if (spent := event.get("epsilon")) is not None else ""
    description = f"trials {first}-{last - 1}{accuracy}{epsilon}"
    progress.update(task, completed=done, description=description)


def _conclude(directory: RunDirectory, start: float, console: Console) -> None:
    """Print the summary, where the time went, and where the report lies."""
    from fedsim import report  # noqa: PLC0415

    result = directory.read_json("report.json")
    phases = {event["phase"]: event["time"] for event, _ in directory.events() if "phase" in event}
    console.print(report.summary(result))
    console.print(
        f"{time.time() - start:.1f} s: {phases['preparing'] - start:.1f} s start-up, "
        f"{phases['training'] - phases['preparing']:.1f} s preparing and connecting, "
        f"{phases['reporting'] - phases['training']:.1f} s federation "
        f"(owners computing {result['timing']['owners_computing']:.1f} s), "
        f"{phases['done'] - phases['reporting']:.1f} s report"
    )
    console.print(f"Report: {directory.path / 'report.html'}", soft_wrap=True, highlight=False)
