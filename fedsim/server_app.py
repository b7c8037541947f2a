"""The Flower ServerApp: runs every batch of trials, then audits what the adversary found."""

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
from adversaries.attacks.posterior import log_odds
from fedsim.common import device
from fedsim.config import Config, from_run_config
from fedsim.federation.protocol.flower_private import DEPLOYMENT, RUNTIMES
from fedsim.federation.runs import batches, ledger, precision, spending
from fedsim.federation.runs.ledger import Ledger
from fedsim.federation.runs.run_directory import CARD, Arrays, RunDirectory
from fedsim.federation.server import batch_run, model_training
from fedsim.federation.server.batch_run import Campaign, Trainer
from fedsim.federation.server.nodes import connected, note_busy
from fedsim.federation.server.plan import Plan, default_directory, prepare
from fedsim.federation.server.polling import PollingGrid
from fedsim.game import challenge, record_display
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import vantages
from fedsim.learning.data import distribution
from fedsim.learning.data import schema as schemas
from fedsim.learning.training import models, saved_model
from fedsim.report import model_card, training_report, writing

app = ServerApp()

DISMISS_TIMEOUT = 30.0
"""Seconds that an auditor has to fetch what it was sent last."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the run config describes; results go to `run.out`.

    Args:
        grid: that Flower gives the app.
        context: with the run config.
    """
    plan = prepare(_placed(from_run_config(context.run_config)))
    # Between machines, that is; a simulation's grid has a short interval of its own.
    between_machines = RUNTIMES.get(type(grid).__name__) == DEPLOYMENT
    directory = plan.begin()
    if between_machines:
        grid = PollingGrid(grid, report_busy=partial(note_busy, directory))
    carry_out(grid, plan, directory)


def _placed(config: Config) -> Config:
    """Return the experiment with the directory of its run, as the server's own files have it.

    The server of a deployment reads its data where the configuration of a prepared directory says:
    what all nodes are told names no folder.
    """
    path = default_directory(config.run)
    if not config.data.root and (path / "config.toml").exists():
        own = RunDirectory.open(path).config.data
        config = config.reading_data_from(own.root, own.public_root)
    return config.placed_at(str(path))


def carry_out(
    grid: Grid, plan: Plan, directory: RunDirectory, elsewhere: Trainer | None = None
) -> None:
    """Do what the run is for: train a model, or run all trials and report what they showed.

    Args:
        grid: with a node for each client.
        plan: of the run.
        directory: of the run; where it names the clients' nodes, no others are let in.
        elsewhere: trains the batches of an experiment in other processes; None for the nodes of
            the grid.

    Raises:
        InputError: the directory is damaged, or another process runs it.
        ClientFailedError: a client is missing that may not be.
    """
    with directory.lock():
        if plan.config.run.job == "training":
            _train_model(grid, plan, directory)
        else:
            _run(grid, plan, directory, elsewhere)


def _train_model(grid: Grid, plan: Plan, directory: RunDirectory) -> None:
    """Train what is left of a model, and write the model and its card."""
    start = time.perf_counter()
    if directory.has(CARD):  # an interruption left its report alone
        training_report.write(directory)
        directory.log_event(phase="done", seconds=time.perf_counter() - start)
        return
    directory.log_event(phase="preparing")
    known = plan.federation()
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    plan = plan.left(directory)
    directory.log_event(phase="connecting", seconds=time.perf_counter() - start)
    theta = model_training.train(grid, plan, known, directory)
    directory.log_event(phase="reporting")
    saved_model.write(
        directory.path,
        plan.config.model,
        plan.config.data.public_schema,
        known.model,
        known.split.dataset,
        theta,
    )
    model_card.write(
        directory, plan.noise_multiplier, models.size(known.model), len(known.split.held_out)
    )
    training_report.write(directory)
    directory.log_event(phase="done", seconds=time.perf_counter() - start)


def _run(grid: Grid, plan: Plan, directory: RunDirectory, elsewhere: Trainer | None) -> None:
    start = time.perf_counter()
    directory.log_event(phase="preparing")
    config, known = plan.config, plan.federation()
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    plan = plan.left(directory)
    finished, stopped_at = _train(grid, plan, known, directory, start, elsewhere)
    transcript = _transcript(config, directory, finished)
    rows = ledger.read(directory)
    transcript[spending.EPSILON] = spending.curve(config.scheme, plan.noise_multiplier, rows)
    directory.write_arrays("transcript.npz", transcript)
    facts = _facts(plan, known, grid, transcript)
    facts |= {
        "planned_trials": config.trials.count,
        "batches": len(finished),
        "stopped_at": stopped_at,
    }
    facts["timing"]["total"] = time.perf_counter() - start
    directory.write_json("facts.json", facts)
    directory.log_event(phase="reporting")
    writing.write_report(directory)
    directory.log_event(phase="done", seconds=time.perf_counter() - start)


def _train(
    grid: Grid,
    plan: Plan,
    known: Federation,
    directory: RunDirectory,
    start: float,
    elsewhere: Trainer | None,
) -> tuple[list[range], float | None]:
    """Train the batches that are not finished, until all are or the advantage is precise enough.

    start: when the run began, on `time.perf_counter`. Returns the trials of all finished batches,
    and half the length of the advantage's interval where that ended the run.
    """
    config, chosen = plan.config, plan.challenge()
    book = Ledger(config.scheme, directory, challenge.colluders(config.federation, chosen))
    directory.log_event(phase="connecting", seconds=time.perf_counter() - start)
    nodes, auditors = connected(grid, config, directory)
    worlds = challenge.worlds(
        config.run.seed, config.trials.count, config.trials.worlds, config.trials.shuffled
    )
    directory.log_event(
        phase="training",
        rounds=plan.rounds,
        seconds=time.perf_counter() - start,
        **precision.limits(config.scheme, plan.noise_multiplier),
    )
    campaign = Campaign(plan, chosen, nodes, worlds, book, directory)
    train_batch = elsewhere or partial(batch_run.train_here, grid, auditors, known)
    finished: list[range] = []
    odds: list[npt.NDArray[np.float64]] = []
    accuracies: list[npt.NDArray[np.float64]] = []
    interim_analyses, stopped_at = (
        precision.interim_analyses(config.trials, config.audit.confidence),
        None,
    )
    for trials in plan.batches:
        drawn = worlds[trials.start : trials.stop]
        if not campaign.is_finished(trials):
            train_batch(campaign, trials)
        findings = _findings(directory, trials.start, drawn)
        finished.append(trials)
        odds.append(log_odds(config.audit.prior, findings["ratios"])[:, -1])
        accuracies += [findings["accuracies"]] if "accuracies" in findings else []
        shown = precision.look(
            config.audit.confidence,
            config.trials.pairing,
            worlds[: trials.stop],
            np.concatenate(odds),
            accuracies,
            len(finished),
        )
        directory.log_event(phase="batch", trials=[trials.start, trials.stop], **shown)
        # A function of the finished batches of trials in their order: a resumed run decides the
        # same.
        if trials.stop in interim_analyses:
            reached = precision.halfwidth(
                config.trials, config.audit.confidence, worlds[: trials.stop], np.concatenate(odds)
            )
            precise = reached <= config.trials.until_halfwidth
            if precise or trials.stop == max(
                interim_analyses
            ):  # nothing is left to look again with
                stopped_at = reached if precise else None
                directory.log_event(stopped=trials.stop, halfwidth=reached)
                break
    auditors.dismiss(grid, DISMISS_TIMEOUT)
    return finished, stopped_at


def _findings(directory: RunDirectory, first: int, worlds: npt.NDArray[np.bool_]) -> Arrays:
    """Return the findings of a finished batch of these worlds. Raises InputError."""
    file = directory.batch_file(first)
    findings = directory.read_arrays(file)
    with directory.reading(file):
        if findings["worlds"].tolist() != worlds.tolist():
            raise ValueError("its worlds are not those of this seed")
        if findings["ratios"].ndim != 2 or len(findings["ratios"]) != len(worlds):
            raise ValueError(f"its 'ratios' is {list(findings['ratios'].shape)}")
    return findings


def _transcript(config: Config, directory: RunDirectory, finished: list[range]) -> Arrays:
    """Join the finished batches of trials' findings into arrays over all their trials."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for trials in finished:
        for name, array in directory.read_arrays(directory.batch_file(trials.start)).items():
            if name != batches.EXPERIMENT:
                parts.setdefault(name, []).append(array)
    # A node that was restarted forgot the losses of a batch of trials: those of the others are of
    # no use.
    if len(parts.get("loss_trajectory", ())) < len(finished):
        parts.pop("loss_trajectory", None)
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
        f"log_odds{ending}": log_odds(config.audit.prior, joined.pop(f"ratios{ending}"))
        for ending in endings
        if f"ratios{ending}" in joined
    }
    of_what = batches.transcript_mark(config, directory, range(finished[-1].stop))
    return {**odds, **joined, batches.EXPERIMENT: of_what}


def _facts(plan: Plan, known: Federation, grid: Grid, transcript: Arrays) -> dict[str, Any]:
    """Return what the report says about the run besides its configuration and transcript."""
    config = plan.config
    clients, named = range(config.federation.clients), config.data.public_schema
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "runtime": RUNTIMES.get(type(grid).__name__, type(grid).__name__),
        "device": str(known.device),
        "versions": {
            "fedsim": fedsim.__version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("flwr", "torch", "numpy")},
        },
        "challenge": asdict(plan.challenge()),
        "client_sizes": [len(known.owned_by(client)) for client in clients],
        "label_skew": distribution.hold(known.split, known.client_of, len(clients)).skew_summary(),
        "dataset": known.split.dataset.name,
        "held_out": len(known.split.held_out),
        **known.baseline,
        **_of_public_data(plan.challenge(), known),
        "class_names": list(schemas.parse(named).classes) if named else [],
        "parameters": models.size(known.model),
        "frozen_parameters": models.frozen_parameters(known.model),
        "gradient_fallbacks": known.fallbacks(),
        "precision": config.run.precision,
        "noise_multiplier": plan.noise_multiplier,
        "timing": {
            "federation": float(transcript["batch_seconds"].sum()),
            "clients_computing": float(transcript["clients_seconds"].sum()),
        },
    }


def _of_public_data(target: Challenge, known: Federation) -> dict[str, Any]:
    """Return the target record and the digest of D where anybody may see both; else nothing."""
    if known.split.dataset.name not in record_display.PUBLIC:
        return {}
    found: dict[str, Any] = {"data_sha256": record_display.digest(known.split)}
    if target.kind == "record" and target.record is not None:
        found["target"] = record_display.shown(known.split, target.record)
    return found
