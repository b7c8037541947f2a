"""The Flower ServerApp: it trains a model or runs an experiment, then writes the report."""

import errno
import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any, cast

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fedsim
from adversaries.errors import InputError
from fedsim.common import device
from fedsim.configuration import from_run_config
from fedsim.federation.protocol.flower_private import DEPLOYMENT, RUNTIMES
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.run_directory import CARD, Arrays, RunDirectory
from fedsim.federation.server import experiment, model_training
from fedsim.federation.server.experiment import Trainer
from fedsim.federation.server.nodes import PollingGrid, note_busy
from fedsim.federation.server.plan import Plan, default_directory, prepare
from fedsim.game import record_display
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.learning.data import dealing
from fedsim.learning.training import models, saved_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment of the run config. The results go to `run.out`.

    Args:
        grid: the app's grid.
        context: Flower's context with the run config.
    """
    config = from_run_config(context.run_config)
    path = default_directory(config.run)
    if not config.data.root and (path / "config.toml").exists():
        own = RunDirectory.open(path).config.data  # the server's own paths of its data
        config = config.reading_data_from(own.root, own.public_root)
    plan = prepare(config.placed_at(str(path)))
    directory = plan.begin()
    # Only a deployment needs it: a simulation's grid already has a short interval.
    if RUNTIMES.get(type(grid).__name__) == DEPLOYMENT:
        grid = cast(Grid, PollingGrid(grid, report_busy=partial(note_busy, directory)))
    carry_out(grid, plan, directory)


def carry_out(
    grid: Grid, plan: Plan, directory: RunDirectory, elsewhere: Trainer | None = None
) -> None:
    """Train a model, or run all trials and write the report, depending on the run's job.

    Args:
        grid: a grid with a node for each client.
        plan: the plan of the run.
        directory: the run directory. If it names the clients' nodes, no others may be clients.
        elsewhere: trains the batches of an experiment in other processes; None: the grid's nodes.

    Raises:
        InputError: the directory is damaged, its disk is full, or another process runs it.
        ClientFailedError: a client is missing that may not be.
    """
    start = time.perf_counter()
    try:
        with directory.lock():
            if plan.config.run.job == "training":
                _train_model(grid, plan, directory)
            else:
                _experiment(grid, plan, directory, elsewhere)
            directory.log_event(phase="done", seconds=time.perf_counter() - start)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"cannot write to '{directory.path}': {error.strerror}; make room there, then give the "
            "same command again, which continues"
        ) from None


def _prepared(plan: Plan, directory: RunDirectory) -> tuple[Plan, Federation]:
    """Return the plan of what is left to do, and the federation."""
    directory.log_event(phase="preparing")
    loaded = plan.federation()
    if loaded.device.type == "cpu":
        device.single_threaded_kernels()
    left = plan.left(directory)
    directory.log_event(phase="connecting")
    return left, loaded


def _train_model(grid: Grid, plan: Plan, directory: RunDirectory) -> None:
    """Train the remaining rounds of a model, and write the model, its card and the report."""
    from fedsim.reports import model_card, training_report  # noqa: PLC0415  (matplotlib is slow)

    if not directory.has(CARD):  # else only the report is missing
        plan, loaded = _prepared(plan, directory)
        theta = model_training.train(grid, plan, loaded, directory)
        directory.log_event(phase="reporting")
        of_data = plan.config.data.public_schema, loaded.model, loaded.split.dataset
        saved_model.write_model(directory.path, plan.config.model, *of_data, theta)
        model_card.write_card(
            directory, plan.noise_multiplier, models.size(loaded.model), len(loaded.split.held_out)
        )
    training_report.write_training_report(directory)


def _experiment(grid: Grid, plan: Plan, directory: RunDirectory, elsewhere: Trainer | None) -> None:
    """Train the unfinished batches, and write transcript, facts and report."""
    start = time.perf_counter()
    plan, loaded = _prepared(plan, directory)
    experiment.carry_out(grid, plan, loaded, directory, elsewhere)
    transcript = experiment.transcript(plan, directory)
    rows = ledger.read(directory)
    transcript[spending.EPSILON] = spending.curve(plan.config, plan.noise_multiplier, rows)
    directory.write_arrays("transcript.npz", transcript)
    facts = _facts(plan, loaded, grid, transcript)
    facts["timing"]["total"] = time.perf_counter() - start
    directory.write_json("facts.json", facts)
    directory.log_event(phase="reporting")
    from fedsim.reports import page  # noqa: PLC0415  (matplotlib is slow to import)

    page.write_report(directory)


def _facts(plan: Plan, loaded: Federation, grid: Grid, transcript: Arrays) -> dict[str, Any]:
    config = plan.config
    clients = range(config.federation.clients)
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "runtime": RUNTIMES.get(type(grid).__name__, type(grid).__name__),
        "device": str(loaded.device),
        "versions": {
            "fedsim": fedsim.__version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("flwr", "torch", "numpy")},
        },
        "challenge": asdict(plan.challenge()),
        "client_sizes": [len(loaded.owned_by(client)) for client in clients],
        "mean_label_skew": round(
            dealing.hold(loaded.split, loaded.client_of, len(clients)).mean_skew, 4
        ),
        "dataset": loaded.split.dataset.name,
        "held_out": len(loaded.split.held_out),
        **loaded.baseline,
        **_of_public_data(plan.challenge(), loaded),
        "of_class": loaded.of_class,
        "parameters": models.size(loaded.model),
        "frozen_parameters": models.frozen_parameters(loaded.model),
        "gradient_fallbacks": loaded.fallbacks(),
        "precision": config.run.precision,
        "noise_multiplier": plan.noise_multiplier,
        "planned_trials": config.trials.count,
        "batches": len(plan.batches),
        "timing": {"federation": float(transcript["batch_seconds"].sum())},
    }


def _of_public_data(target: Challenge, loaded: Federation) -> dict[str, Any]:
    """Return the target record and the digest of D for a public data set; else nothing."""
    if loaded.split.dataset.name not in record_display.PUBLIC:
        return {}
    facts: dict[str, Any] = {"data_sha256": record_display.digest(loaded.split)}
    if target.kind == "record" and target.record is not None:
        facts["target"] = record_display.shown(loaded.split, target.record)
    return facts
