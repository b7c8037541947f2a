"""The Flower ServerApp: runs every cohort of trials, then audits what the adversary found."""

import hashlib
import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

import fedsim
from adversaries.posterior import log_odds
from fedsim import (
    audit,
    budget,
    challenge,
    cohorts,
    device,
    federation,
    fixed_point,
    holdings,
    ledger,
    membership_audit,
    messages,
    models,
    one_run,
    precision,
    privacy,
    released_model,
    sampling,
    schedules,
    vantages,
)
from fedsim.accounting import accountant
from fedsim.challenge import Challenge
from fedsim.config import Config, from_run_config
from fedsim.federation import Federation
from fedsim.ledger import Ledger
from fedsim.mechanism import Trust, Vantage
from fedsim.nodes import Auditors, check_data, connect, registered_nodes
from fedsim.optimizers import ServerOptimizer
from fedsim.run_directory import Arrays, RunDirectory
from fedsim.runtimes.flower_private import DEPLOYMENT, RUNTIMES
from fedsim.runtimes.polling import PollingGrid
from fedsim.strategy import DPSGD
from fedsim.strict_json import strict_json

app = ServerApp()

CONNECT_TIMEOUT = 300.0
"""Seconds in which every owner's node must have connected."""

DISMISS_TIMEOUT = 30.0
"""Seconds that an auditor has to fetch what it was sent last."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the run config describes; results go to `run.out`."""
    config, directory = prepare(from_run_config(context.run_config))
    # Between machines, that is; a simulation's grid has a short interval of its own.
    run(
        PollingGrid(grid) if RUNTIMES.get(type(grid).__name__) == DEPLOYMENT else grid,
        config,
        directory,
    )


def prepare(config: Config) -> tuple[Config, RunDirectory]:
    """Return the experiment with cohorts that fit, and its run directory.

    A directory that `fedsim run` prepared, or that is continued, keeps its cohorts, and the server
    of a deployment reads its own files where that directory's configuration says: what all nodes
    are told names no folder.
    Raises InputError.
    """
    path = default_directory(config)
    if (path / "config.toml").exists():
        prepared = RunDirectory.open(path).config
        config = config.with_cohort(prepared.trials.cohort)
        if not config.data.root:
            config = config.reading_data_from(prepared.data.root)
    else:
        config = federation.fit_cohort(config)
        # What cannot be done is refused with no directory made.
        check_rounding(config, models.size(federation.load(config).model))
        if config.privacy.stop_at:
            budget.plan(config, privacy.noise_multiplier(config))
    return config, RunDirectory.create(path, config)


def default_directory(config: Config) -> Path:
    """Return `run.out`, or a new directory under fedsim-runs/ named for experiment and time."""
    if config.run.out:
        return Path(config.run.out)
    return Path("fedsim-runs") / f"{config.run.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def run(grid: Grid, config: Config, directory: RunDirectory) -> None:
    """Run all cohorts that are not finished yet, then write transcript and report.

    Where the directory names the owners' nodes, no others are let in. Raises InputError, also where
    another process runs the same directory.
    """
    check(config)
    with directory.lock():
        _run(grid, config, directory)


def _run(grid: Grid, config: Config, directory: RunDirectory) -> None:
    start = time.perf_counter()
    directory.log_event(phase="preparing")
    known = federation.load(config)
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    known.cut(config.trials.cohort, config.training.sampling_rate < 1, config.candidates)
    chosen = challenge.choose(config)
    noise_multiplier = privacy.noise_multiplier(config)
    check_rounding(config, models.size(known.model))
    rounds = budget.plan(config, noise_multiplier, directory)
    book = Ledger(config, directory, challenge.colluders(config, chosen))
    directory.log_event(phase="connecting", seconds=time.perf_counter() - start)
    nodes, auditors = _connected(grid, config, directory)
    bits = challenge.worlds(
        config.run.seed, config.trials.count, config.trials.worlds, config.trials.shuffled
    )
    directory.log_event(phase="training", rounds=rounds, seconds=time.perf_counter() - start)
    finished: list[range] = []
    odds: list[npt.NDArray[np.float64]] = []
    looks, planned, stopped_at = precision.looks(config), cohorts.ranges(config, directory), None
    precision.check(config, planned)
    for trials in planned:
        first = trials.start
        if directory.has(directory.cohort_file(first)):
            findings = _finished_before(directory, first, bits[trials.start : trials.stop])
        else:
            strategy = DPSGD(
                config,
                chosen,
                noise_multiplier,
                nodes,
                trials,
                bits[trials.start : trials.stop],
                rounds,
                book.begin(trials, rounds, noise_multiplier),
                directory.log_event,
                auditors,
            )
            findings = _run_cohort(grid, strategy, known, directory)
            mark = {cohorts.EXPERIMENT: cohorts.mark(config, directory, trials)}
            directory.write_arrays(directory.cohort_file(first), findings | mark)
        directory.log_event(phase="cohort", trials=[trials.start, trials.stop])
        finished.append(trials)
        odds.append(log_odds(config.audit.prior, findings["ratios"])[:, -1])
        # A function of the finished cohorts in their order: a resumed run decides the same.
        if trials.stop in looks:
            reached = precision.halfwidth(config, bits[: trials.stop], np.concatenate(odds))
            precise = reached <= config.trials.until_halfwidth
            if precise or trials.stop == max(looks):  # nothing is left to look again with
                stopped_at = reached if precise else None
                directory.log_event(stopped=trials.stop, halfwidth=reached)
                break
    auditors.dismiss(grid, DISMISS_TIMEOUT)
    transcript = _transcript(config, directory, finished)
    rows = ledger.read(directory)
    transcript[ledger.EPSILON] = ledger.curve(config, noise_multiplier, rows)
    directory.write_arrays("transcript.npz", transcript)
    facts = _facts(config, known, chosen, noise_multiplier, grid, transcript)
    facts |= {
        "planned_trials": config.trials.count,
        "cohorts": len(finished),
        "stopped_at": stopped_at,
    }
    facts["timing"]["total"] = time.perf_counter() - start
    directory.write_json("facts.json", facts)
    directory.log_event(phase="reporting")
    audit.write_report(directory)
    directory.log_event(phase="done", seconds=time.perf_counter() - start)


def check(config: Config) -> None:
    """Raise InputError for steps that would fail in the middle of a run."""
    ServerOptimizer(config.training, config.data.records)
    schedules.factor(config.training, 1)
    sampling.check(config)
    released_model.check(config)
    if config.canaries.count:
        one_run.check(config, federation.load(config))
    membership_audit.check(config)


def check_rounding(config: Config, parameters: int) -> None:
    """Raise InputError where the integers of distributed trust are too coarse for its noise."""
    if config.federation.trust is Trust.DISTRIBUTED:
        nominal, delta = privacy.noise_multiplier(config), config.privacy.delta
        described, judge = privacy.describe(config, nominal), accountant(config.privacy.accountant)
        worst = max(judge.epsilon(described.towards(vantage), delta) for vantage in Vantage)
        grid = fixed_point.agreed(config, nominal, parameters)
        fixed_point.check(grid, config.training.rounds, delta, worst)


def _run_cohort(grid: Grid, strategy: DPSGD, known: Federation, directory: RunDirectory) -> Arrays:
    """Train one cohort; return its findings and the utility of its evaluated trials."""
    config, trials = strategy.config, strategy.trials
    theta = federation.initial_parameters(config, known, trials)
    held_out = known.held_out()
    evaluated = config.audit.evaluated(trials)
    losses, accuracies = [], []

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        utility = {}
        spent = {} if strategy.attempt is None else {"epsilon": strategy.attempt.epsilon}
        if evaluated:
            parameters = torch.tensor(messages.only(arrays)[:evaluated]).to(known.device)
            loss, correct = known.evaluate(parameters, *held_out)
            losses.append(loss.mean(1).cpu().numpy())
            accuracies.append(correct.double().mean(1).cpu().numpy())
            utility = {"loss": losses[-1].mean(), "accuracy": accuracies[-1].mean()}
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
    rounds = [
        *result.train_metrics_clientapp.values(),
        *result.evaluate_metrics_clientapp.values(),
    ]
    computing = sum(messages.scalar(metrics, "seconds") for metrics in rounds)
    utility = {"losses": np.stack(losses), "accuracies": np.stack(accuracies)} if evaluated else {}
    return {
        **{name.replace("-", "_"): array for record in findings for name, array in record.items()},
        **utility,
        "worlds": strategy.worlds,
        "final_models": _digests(messages.only(result.arrays)),
        "cohort_seconds": np.asarray([time.perf_counter() - start]),
        "owners_seconds": np.asarray([computing]),
    }


def _finished_before(directory: RunDirectory, first: int, worlds: npt.NDArray[np.bool_]) -> Arrays:
    """Return the findings of a cohort of these worlds that is there already. Raises InputError."""
    file = directory.cohort_file(first)
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


def _connected(
    grid: Grid, config: Config, directory: RunDirectory
) -> tuple[dict[int, int], Auditors]:
    """Return the node of every owner, all of which hold the server's data, and the auditors."""
    nodes, present, asked = connect(
        grid,
        config.federation.owners,
        CONNECT_TIMEOUT,
        registered_nodes(directory),
        directory.log_event,
    )
    check_data(
        grid,
        nodes,
        partial(federation.digest, config),
        config.federation.timeout,
        directory.log_event,
    )
    auditors = Auditors(nodes.values(), present, directory.log_event, asked)
    return nodes, auditors


def _transcript(config: Config, directory: RunDirectory, finished: list[range]) -> Arrays:
    """Join the finished cohorts' findings into arrays over all their trials."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for trials in finished:
        for name, array in directory.read_arrays(directory.cohort_file(trials.start)).items():
            if name != cohorts.EXPERIMENT:
                parts.setdefault(name, []).append(array)
    # The evaluated trials are the second axis of the utility curves [k + 1, E].
    joined = {
        name: np.concatenate(arrays, axis=1 if name in ("losses", "accuracies") else 0)
        for name, arrays in parts.items()
    }
    endings = [
        vantages.suffix(vantage, config.federation.vantage) for vantage in vantages.measured(config)
    ]
    odds = {
        f"log_odds{ending}": log_odds(config.audit.prior, joined.pop(f"ratios{ending}"))
        for ending in endings
        if f"ratios{ending}" in joined
    }
    of_what = cohorts.transcript_mark(config, directory, range(finished[-1].stop))
    return {**odds, **joined, cohorts.EXPERIMENT: of_what}


def _facts(
    config: Config,
    known: Federation,
    chosen: Challenge,
    noise_multiplier: float,
    grid: Grid,
    transcript: Arrays,
) -> dict[str, Any]:
    """Return what the report says about the run besides its configuration and transcript."""
    owners = range(config.federation.owners)
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "runtime": RUNTIMES.get(type(grid).__name__, type(grid).__name__),
        "device": str(known.device),
        "versions": {
            "fedsim": fedsim.__version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("flwr", "torch", "numpy")},
        },
        "challenge": asdict(chosen),
        "owner_sizes": [len(known.owned_by(owner)) for owner in owners],
        "label_skew": holdings.hold(known.split, known.owner_of, len(owners)).skew_summary(),
        "dataset": known.split.dataset.name,
        "held_out": len(known.split.held_out),
        "parameters": models.size(known.model),
        "frozen_parameters": models.frozen_parameters(known.model),
        "gradient_fallbacks": known.fallbacks(),
        "precision": config.run.precision,
        "noise_multiplier": noise_multiplier,
        "timing": {
            "federation": float(transcript["cohort_seconds"].sum()),
            "owners_computing": float(transcript["owners_seconds"].sum()),
        },
    }
