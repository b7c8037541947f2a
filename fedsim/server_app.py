"""The Flower ServerApp: it runs every batch of trials, then writes the report."""

import errno
import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.attacks.posterior import log_odds
from adversaries.errors import InputError
from fedsim.common import device
from fedsim.configuration import from_run_config
from fedsim.federation.protocol.flower_private import DEPLOYMENT, RUNTIMES
from fedsim.federation.protocol.messages import Request
from fedsim.federation.runs import interim, ledger, spending
from fedsim.federation.runs.batches import EXPERIMENT, Batches
from fedsim.federation.runs.ledger import Ledger
from fedsim.federation.runs.run_directory import CARD, SUBMITTED, Arrays, RunDirectory
from fedsim.federation.server import batch_run, model_training
from fedsim.federation.server.batch_run import Campaign, Trainer
from fedsim.federation.server.nodes import connected, ended_runs, note_busy
from fedsim.federation.server.plan import Plan, default_directory, prepare
from fedsim.federation.server.polling import PollingGrid
from fedsim.game import challenge, record_display
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import vantages
from fedsim.learning.data import distribution
from fedsim.learning.data import schema as schemas
from fedsim.learning.training import models, saved_model

app = ServerApp()

DISMISS_TIMEOUT = 30.0
"""Seconds in which an auditor may fetch its last messages."""


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
    # Only a deployment needs it: a simulation's grid already has a short interval.
    between_machines = RUNTIMES.get(type(grid).__name__) == DEPLOYMENT
    directory = plan.begin()
    if between_machines:
        grid = PollingGrid(grid, report_busy=partial(note_busy, directory))
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
    try:
        with directory.lock():
            if isinstance(grid, PollingGrid):  # a command may follow it by Flower's number
                directory.write_json(SUBMITTED, {"run-id": str(grid.run.run_id)})
            if plan.config.run.job == "training":
                _train_model(grid, plan, directory)
            else:
                _run(grid, plan, directory, elsewhere)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"cannot write to '{directory.path}': {error.strerror}; make room there, then give the "
            "same command again, which continues"
        ) from None


def _train_model(grid: Grid, plan: Plan, directory: RunDirectory) -> None:
    """Train the remaining rounds of a model, and write the model and its card."""
    from fedsim.reports import model_card, training_report  # noqa: PLC0415  (matplotlib is slow)

    start = time.perf_counter()
    if directory.has(CARD):  # only the report is missing
        training_report.write_training_report(directory)
        directory.log_event(phase="done", seconds=time.perf_counter() - start)
        return
    directory.log_event(phase="preparing")
    loaded = plan.federation()
    if loaded.device.type == "cpu":
        device.single_threaded_kernels()
    plan = plan.left(directory)
    directory.log_event(phase="connecting", seconds=time.perf_counter() - start)
    theta = model_training.train(grid, plan, loaded, directory)
    directory.log_event(phase="reporting")
    saved_model.write_model(
        directory.path,
        plan.config.model,
        plan.config.data.public_schema,
        loaded.model,
        loaded.split.dataset,
        theta,
    )
    model_card.write_card(
        directory, plan.noise_multiplier, models.size(loaded.model), len(loaded.split.held_out)
    )
    training_report.write_training_report(directory)
    directory.log_event(phase="done", seconds=time.perf_counter() - start)


def _run(grid: Grid, plan: Plan, directory: RunDirectory, elsewhere: Trainer | None) -> None:
    start = time.perf_counter()
    directory.log_event(phase="preparing")
    config, loaded = plan.config, plan.federation()
    if loaded.device.type == "cpu":
        device.single_threaded_kernels()
    plan = plan.left(directory)
    _train(grid, plan, loaded, directory, start, elsewhere)
    transcript = _transcript(plan, directory)
    rows = ledger.read(directory)
    transcript[spending.EPSILON] = spending.curve(config.scheme, plan.noise_multiplier, rows)
    directory.write_arrays("transcript.npz", transcript)
    facts = _facts(plan, loaded, grid, transcript)
    facts |= {
        "planned_trials": config.trials.count,
        "batches": len(plan.batches),
    }
    facts["timing"]["total"] = time.perf_counter() - start
    directory.write_json("facts.json", facts)
    directory.log_event(phase="reporting")
    from fedsim.reports import page  # noqa: PLC0415  (matplotlib is slow to import)

    page.write_report(directory)
    directory.log_event(phase="done", seconds=time.perf_counter() - start)


def _train(
    grid: Grid,
    plan: Plan,
    loaded: Federation,
    directory: RunDirectory,
    start: float,
    elsewhere: Trainer | None,
) -> None:
    """Train the unfinished batches.

    start: the beginning of the run, on `time.perf_counter`.
    """
    config, chosen = plan.config, plan.challenge()
    book = Ledger(config.scheme, directory, challenge.colluders(config.federation, chosen))
    directory.log_event(phase="connecting", seconds=time.perf_counter() - start)
    left = (
        trials for trials in plan.batches if not directory.has(directory.batch_file(trials.start))
    )
    first = None
    if (trials := next(left, None)) is not None:
        place = (1, trials.start, len(trials), plan.noise_multiplier)
        first = Request(*place, ended=ended_runs(directory))
    nodes, auditors = connected(grid, config.federation, plan.digest, directory, first)
    worlds = challenge.worlds(config.run.seed, config.trials.count)
    directory.log_event(
        phase="training",
        rounds=plan.rounds,
        seconds=time.perf_counter() - start,
    )
    campaign = Campaign(plan, chosen, nodes, worlds, book, directory)
    _train_batches(campaign, elsewhere or partial(batch_run.train_here, grid, auditors, loaded))
    auditors.dismiss(grid, DISMISS_TIMEOUT)


def _train_batches(campaign: Campaign, trainer: Trainer) -> None:
    """Train the unfinished batches, and log the interim results in the order of the trials."""
    config, directory, worlds = campaign.plan.config, campaign.directory, campaign.worlds
    odds: list[Floats] = []
    accuracies: list[Floats] = []
    left = [trials for trials in campaign.plan.batches if not campaign.is_finished(trials)]
    arriving = trainer(campaign, left)
    for trials in campaign.plan.batches:
        while not campaign.is_finished(trials):
            next(arriving)
        findings = _findings(directory, trials.start, worlds[trials.start : trials.stop])
        odds.append(log_odds(findings["ratios"])[:, -1])
        accuracies += [findings["accuracies"]] if "accuracies" in findings else []
        so_far = worlds[: trials.stop], np.concatenate(odds)
        results = interim.look(
            config.audit.confidence, *so_far, accuracies, len(campaign.plan.batches)
        )
        directory.log_event(phase="batch", trials=[trials.start, trials.stop], **results)


def _findings(directory: RunDirectory, first: int, worlds: Bools) -> Arrays:
    """Return the findings of a finished batch. Raises InputError if it is damaged."""
    file = directory.batch_file(first)
    findings = directory.read_arrays(file)
    with directory.reading(file):
        if findings["worlds"].tolist() != worlds.tolist():
            raise ValueError("its worlds differ from the worlds of this seed")
        if findings["ratios"].ndim != 2 or len(findings["ratios"]) != len(worlds):
            raise ValueError(f"its 'ratios' is {list(findings['ratios'].shape)}")
    return findings


def _transcript(plan: Plan, directory: RunDirectory) -> Arrays:
    """Return the findings of all batches, joined into arrays over all their trials."""
    config = plan.config
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for trials in plan.batches:
        for name, array in directory.read_arrays(directory.batch_file(trials.start)).items():
            if name != EXPERIMENT:
                parts.setdefault(name, []).append(array)
    # The evaluated trials are the second axis of the utility curves [k + 1, E].
    joined = {
        name: np.concatenate(arrays, axis=1 if name in ("losses", "accuracies") else 0)
        for name, arrays in parts.items()
    }
    endings = [
        vantages.suffix(vantage, config.federation.vantage)
        for vantage in vantages.measured(config.federation.vantage, config.audit.vantages)
    ]
    odds = {
        f"log_odds{ending}": log_odds(joined.pop(f"ratios{ending}"))
        for ending in endings
        if f"ratios{ending}" in joined
    }
    mark = Batches(config, directory).transcript_mark(range(config.trials.count))
    return {**odds, **joined, EXPERIMENT: mark}


def _facts(plan: Plan, loaded: Federation, grid: Grid, transcript: Arrays) -> dict[str, Any]:
    config = plan.config
    clients, named = range(config.federation.clients), config.data.public_schema
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
        "label_skew": distribution.hold(
            loaded.split, loaded.client_of, len(clients)
        ).skew_summary(),
        "dataset": loaded.split.dataset.name,
        "held_out": len(loaded.split.held_out),
        **loaded.baseline,
        **_of_public_data(plan.challenge(), loaded),
        "class_names": list(schemas.parse(named).classes) if named else [],
        "parameters": models.size(loaded.model),
        "frozen_parameters": models.frozen_parameters(loaded.model),
        "gradient_fallbacks": loaded.fallbacks(),
        "precision": config.run.precision,
        "noise_multiplier": plan.noise_multiplier,
        "timing": {
            "federation": float(transcript["batch_seconds"].sum()),
            "clients_computing": float(transcript["clients_seconds"].sum()),
        },
    }


def _of_public_data(target: Challenge, loaded: Federation) -> dict[str, Any]:
    """Return the target record and the digest of D for a public data set; else nothing."""
    if loaded.split.dataset.name not in record_display.PUBLIC:
        return {}
    facts: dict[str, Any] = {"data_sha256": record_display.digest(loaded.split)}
    if target.kind == "record" and target.record is not None:
        facts["target"] = record_display.shown(loaded.split, target.record)
    return facts
