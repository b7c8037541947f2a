"""The Flower ServerApp: runs every batch of trials, then audits what the adversary found."""

import hashlib
import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

import fedsim
from adversaries.attacks.posterior import log_odds
from fedsim.common import device
from fedsim.common.strict_json import strict_json
from fedsim.config import Config, from_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.flower_private import DEPLOYMENT, RUNTIMES
from fedsim.federation.runs import batches, ledger, precision, spending
from fedsim.federation.runs.ledger import Ledger
from fedsim.federation.runs.run_directory import CARD, Arrays, RunDirectory
from fedsim.federation.server import model_training, simulated_utility
from fedsim.federation.server.batch import Batch
from fedsim.federation.server.nodes import connected, note_busy
from fedsim.federation.server.plan import Plan, default_directory, prepare
from fedsim.federation.server.polling import PollingGrid
from fedsim.federation.server.strategy import DPSGD
from fedsim.game import challenge, federation, record_display
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import vantages
from fedsim.learning.data import distribution
from fedsim.learning.data import schema as schemas
from fedsim.learning.training import models, saved_model, tasks
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


def carry_out(grid: Grid, plan: Plan, directory: RunDirectory) -> None:
    """Do what the run is for: train a model, or run all trials and report what they showed.

    Args:
        grid: with a node for each client.
        plan: of the run.
        directory: of the run; where it names the clients' nodes, no others are let in.

    Raises:
        InputError: the directory is damaged, or another process runs it.
        ClientFailedError: a client is missing that may not be.
    """
    with directory.lock():
        if plan.config.run.job == "training":
            _train_model(grid, plan, directory)
        else:
            _run(grid, plan, directory)


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


def _run(grid: Grid, plan: Plan, directory: RunDirectory) -> None:
    start = time.perf_counter()
    directory.log_event(phase="preparing")
    config, known = plan.config, plan.federation()
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    plan = plan.left(directory)
    finished, stopped_at = _train(grid, plan, known, directory, start)
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
    grid: Grid, plan: Plan, known: Federation, directory: RunDirectory, start: float
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
    finished: list[range] = []
    odds: list[npt.NDArray[np.float64]] = []
    accuracies: list[npt.NDArray[np.float64]] = []
    interim_analyses, stopped_at = (
        precision.interim_analyses(config.trials, config.audit.confidence),
        None,
    )
    for trials in plan.batches:
        drawn = worlds[trials.start : trials.stop]
        if directory.has(directory.batch_file(trials.start)):
            findings = _finished_before(directory, trials.start, drawn)
        else:
            batch = Batch(config, chosen, plan.noise_multiplier, nodes, trials, drawn)
            attempt = book.begin(trials, plan.rounds, plan.noise_multiplier)
            strategy = DPSGD(batch, plan.rounds, attempt, directory.log_event, auditors)
            findings = _run_batch(grid, strategy, known, directory)
            mark = {batches.EXPERIMENT: batches.mark(config, directory, trials)}
            directory.write_arrays(directory.batch_file(trials.start), findings | mark)
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


def _run_batch(grid: Grid, strategy: DPSGD, known: Federation, directory: RunDirectory) -> Arrays:
    """Train one batch of trials; return its findings and the utility of its evaluated trials."""
    config, trials = strategy.batch.config, strategy.batch.trials
    theta = federation.initial_parameters(config.game, known, trials)
    held_out, task = known.held_out(), tasks.task_of(known.model)
    evaluated = config.audit.evaluated(trials)
    losses, accuracies = [], []
    final: dict[str, npt.NDArray[np.float64]] = {}
    by_client: list[dict[str, npt.NDArray[np.float64]]] = []
    looked_at = simulated_utility.rounds(strategy.last_round) if trials.start == 0 else []

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        utility = {}
        spent = {} if strategy.attempt is None else {"epsilon": strategy.attempt.epsilon}
        if evaluated:
            parameters = torch.tensor(messages.only(arrays)[:evaluated]).to(known.device)
            loss, scores = known.evaluate(parameters, *held_out)
            mean = partial(task.mean, known.model, features=held_out[0])
            losses.append(mean(loss).cpu().numpy())
            accuracies.append(mean(scores).cpu().numpy())
            utility = {"loss": losses[-1].mean(), "accuracy": accuracies[-1].mean()}
            utility |= known.baseline | {"task": task.name}
            if server_round == strategy.last_round:
                found = known.measures(parameters)
                final.update({name: each.cpu().numpy() for name, each in found.items()})
                utility |= model_training.of_final(found)
        if server_round in looked_at:
            first = torch.tensor(messages.only(arrays)[:1]).to(known.device)
            by_client.append(simulated_utility.measure(config.game, known, first, server_round))
        directory.log_event(
            round=server_round, trials=[trials.start, trials.stop], **utility, **strict_json(spent)
        )

    start = time.perf_counter()
    result = strategy.start(
        grid,
        messages.array_record(parameters=theta.numpy()),
        num_rounds=strategy.last_round,
        timeout=config.federation.timeout,
        evaluate_fn=after_round,
    )
    findings = strategy.findings(grid)
    rounds = [*result.train_metrics_clientapp.values(), *result.evaluate_metrics_clientapp.values()]
    computing = sum(messages.scalar(metrics, "seconds") for metrics in rounds)
    utility = {"losses": np.stack(losses), "accuracies": np.stack(accuracies)} if evaluated else {}
    return {
        **{name.replace("-", "_"): array for record in findings for name, array in record.items()},
        **utility,
        **final,
        **simulated_utility.joined(by_client, looked_at),
        "worlds": strategy.batch.worlds,
        "final_models": _digests(messages.only(result.arrays)),
        "batch_seconds": np.asarray([time.perf_counter() - start]),
        "clients_seconds": np.asarray([computing]),
    }


def _finished_before(directory: RunDirectory, first: int, worlds: npt.NDArray[np.bool_]) -> Arrays:
    """Return the findings of a batch of these worlds that is there already. Raises InputError."""
    file = directory.batch_file(first)
    findings = directory.read_arrays(file)
    with directory.reading(file):
        if findings["worlds"].tolist() != worlds.tolist():
            raise ValueError("its worlds are not those of this seed")
        if findings["ratios"].ndim != 2 or len(findings["ratios"]) != len(worlds):
            raise ValueError(f"its 'ratios' is {list(findings['ratios'].shape)}")
    return findings


def _digests(parameters: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each trial's final model, [T, 32]: what two runs can be compared by."""
    rows = (hashlib.sha256(row.tobytes()).digest() for row in parameters)
    return np.stack([np.frombuffer(row, dtype=np.uint8) for row in rows])


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
