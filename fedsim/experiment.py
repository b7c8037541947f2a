"""The execution of one experiment: its checks, then its federation."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from adversaries.errors import InputError
from adversaries.registry import is_code
from fedsim import configuration
from fedsim.common.parent import end_with_parent
from fedsim.configuration import Config
from fedsim.configuration.federation import CLIENT, OWN
from fedsim.federation.runs.run_directory import RunDirectory

if TYPE_CHECKING:  # torch takes a second to import
    from fedsim.federation.runtimes.workers import Workers
    from fedsim.federation.server.experiment import Trainer
    from fedsim.federation.server.plan import Plan


@contextmanager
def batch_trainer(workers: "Workers | None", console: Console) -> "Iterator[Trainer | None]":
    """Yield the trainer of a run's batches while the block runs; None: this process trains them.

    Args:
        workers: the workers that train batches.
        console: the console for what leaves this machine.
    """
    if workers is None:
        yield None
        return
    from fedsim import worker  # noqa: PLC0415  (Flower)
    from fedsim.federation.runtimes.workers import opened, train_elsewhere  # noqa: PLC0415

    say = partial(console.print, highlight=False, markup=False)
    with opened(workers, say) as pool:
        yield partial(train_elsewhere, pool, worker.train_batch)


def prepare(
    config: Config,
    deployed: bool = False,
    workers: "Workers | None" = None,
    simulated: bool = False,
) -> "Plan":
    """Return the plan of an experiment. It writes nothing.

    Args:
        config: the experiment; its directory is `run.out`, or a new one.
        deployed: whether its clients are other machines, which know the paths of their records.
        workers: the workers that share the memory of this machine; None: this process.
        simulated: whether Flower's simulation runs the clients, each with the threads that Ray
            gives it, unless the configuration sets a number.

    Raises:
        InputError: the experiment is impossible, or workers cannot train its batches, which they
            must be able to charge in advance and train again.
    """
    from fedsim.federation.runtimes.workers import check_chargeable, processes  # noqa: PLC0415
    from fedsim.federation.server import plan  # noqa: PLC0415  (Flower takes a second)

    if simulated and not config.run.threads:
        config = config.model_copy(update={"run": config.run.model_copy(update={"threads": 1})})
    if config.data.name == OWN and not deployed and CLIENT not in config.data.root:
        raise InputError(
            f"data.root is '{config.data.root}', so all clients would read the same records; put "
            f"{CLIENT} in the path, in place of the client's number"
        )
    planned = plan.prepare(with_absolute_paths(config), processes(workers))
    if workers is not None:
        dropouts = planned.config.federation.tolerated_dropouts
        check_chargeable(planned.config.privacy.noise_source, dropouts)
    return planned


def with_absolute_paths(config: Config) -> Config:
    """Return the configuration with absolute paths, and with the digest of model.weights.

    Raises:
        InputError: the file of model.weights is missing.
    """
    from fedsim.federation.server.plan import default_directory  # noqa: PLC0415
    from fedsim.learning.training import pretrained  # noqa: PLC0415  (torch is slow to import)

    out = default_directory(config.run).expanduser().absolute()
    places = {
        "root": _absolute(config.data.root),
        "public_root": _absolute(config.data.public_root),
    }
    data = config.data.model_copy(update=places)
    model = config.model
    if model.weights_path:
        path = _absolute(model.weights_path)
        digest = model.weights_sha256 or pretrained.digest(path)
        model = model.model_copy(update={"weights": path, "weights_sha256": digest})
    return config.model_copy(update={"data": data, "model": model}).placed_at(str(out))


def _absolute(path: str) -> str:
    """Return the absolute path of files; the name of code stays as it is."""
    return path if not path or is_code(path) else str(Path(path).expanduser().absolute())


def run_in_process(
    plan: "Plan", directory: RunDirectory, elsewhere: "Trainer | None" = None
) -> None:
    """Train all trials in this process, and write the results.

    Args:
        plan: the plan of the run.
        directory: the run directory, whose lock the caller holds.
        elsewhere: trains the batches in other processes instead.
    """
    import logging  # noqa: PLC0415

    from fedsim import client_app, server_app  # noqa: PLC0415
    from fedsim.federation.runtimes.inprocess import InProcessGrid  # noqa: PLC0415

    # After the import, which sets the level. The progress bar and the report replace Flower's log.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    config = plan.config
    grid = InProcessGrid(
        client_app.app, config.federation.clients, configuration.to_run_config(config)
    )
    server_app.carry_out(grid, plan, directory, elsewhere)


def run_simulated(directory: RunDirectory) -> None:
    """Train all trials with Flower's simulation, in other processes.

    Args:
        directory: the run directory, which those processes lock and write.
    """
    from fedsim.federation.runtimes.flower_command import FlowerError  # noqa: PLC0415
    from fedsim.federation.runtimes.simulation import in_own_process  # noqa: PLC0415

    in_own_process(directory.path)
    if not directory.finished:
        raise FlowerError("Flower's simulation ended before the run; the same command continues")


def simulate(directory: str, failure: str) -> None:
    """Carry out a run on Flower's simulation runtime, in this process.

    Args:
        directory: the run directory.
        failure: path of a file that gets the reason of a failure.
    """
    end_with_parent()  # else a killed command would leave its run going
    from fedsim import client_app, server_app  # noqa: PLC0415
    from fedsim.federation.runtimes.simulation import play  # noqa: PLC0415

    try:
        config = RunDirectory.open(Path(directory)).config
        values = configuration.to_run_config(config)
        clients = config.federation.clients
        play(server_app.app, client_app.app, clients, config.run, values)
    except Exception as error:
        while error.__cause__ is not None and isinstance(error.__cause__, Exception):
            error = error.__cause__
        Path(failure).write_text(str(error) or type(error).__name__, encoding="utf-8")
        os._exit(1)  # the server's thread may still wait for clients, which never come
