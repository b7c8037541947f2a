"""An experiment: batches of trials, whose findings are joined into the run's transcript."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from adversaries.arrays import Bools, Floats
from adversaries.attacks.posterior import log_odds
from fedsim.common import device
from fedsim.common.strict_json import strict_json
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request
from fedsim.federation.runs import interim
from fedsim.federation.runs.batches import EXPERIMENT, Batches
from fedsim.federation.runs.ledger import Attempt, Ledger
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.federation.server import acceptance, model_training
from fedsim.federation.server.batch import Batch
from fedsim.federation.server.checkpoint import State
from fedsim.federation.server.nodes import Nodes, connected
from fedsim.federation.server.observing import BatchObservations
from fedsim.federation.server.plan import Plan
from fedsim.federation.server.training import Training
from fedsim.game import challenge, federation
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import vantages
from fedsim.learning.training import tasks

BY_ROUND = ("losses", "accuracies")
"""Arrays whose second axis has the evaluated trials, [k + 1, E]; of others it is the first."""


@dataclass(frozen=True)
class Campaign:
    """The values that all batches of a run share, in the process that writes its directory."""

    plan: Plan
    challenge: Challenge
    nodes: dict[int, int]
    worlds: Bools
    book: Ledger
    directory: RunDirectory

    def batch(self, trials: range) -> Batch:
        plan, worlds = self.plan, self.worlds[trials.start : trials.stop]
        return Batch(plan, self.challenge, self.nodes, trials, worlds)

    def begin(self, trials: range) -> Attempt:
        return self.book.begin(trials, self.plan.rounds, self.plan.noise_multiplier)

    def is_finished(self, trials: range) -> bool:
        return self.directory.has(self.directory.batch_file(trials.start))

    def keep(self, trials: range, findings: Arrays) -> None:
        """Write the findings of a batch, with a mark of their experiment."""
        mark = {EXPERIMENT: Batches(self.plan.config, self.directory).mark(trials)}
        self.directory.write_arrays(self.directory.batch_file(trials.start), findings | mark)

    def findings(self, trials: range) -> Arrays:
        """Return the findings of a finished batch. Raises InputError if it is damaged."""
        file = self.directory.batch_file(trials.start)
        findings, worlds = self.directory.read_arrays(file), self.worlds[trials.start : trials.stop]
        with self.directory.reading(file):
            if findings["worlds"].tolist() != worlds.tolist():
                raise ValueError("its worlds differ from the worlds of this seed")
            if findings["ratios"].ndim != 2 or len(findings["ratios"]) != len(worlds):
                raise ValueError(f"its 'ratios' is {list(findings['ratios'].shape)}")
        return findings


Trainer = Callable[[Campaign, Sequence[range]], Iterator[None]]
"""Trains batches of a campaign, and yields after the findings of each are in its directory."""


def carry_out(
    grid: Grid, plan: Plan, loaded: Federation, directory: RunDirectory, elsewhere: Trainer | None
) -> None:
    """Train the unfinished batches, and log the interim results in the order of the trials."""
    config, chosen = plan.config, plan.challenge()
    book = Ledger(config, directory, challenge.colluders(config.federation, chosen))
    left = [each for each in plan.batches if not directory.has(directory.batch_file(each.start))]
    first = None
    if left:
        first = Request(1, left[0].start, len(left[0]), plan.noise_multiplier)
    clients, nodes = connected(grid, config.federation, plan.digest, directory, first)
    of_seed = challenge.worlds(config.run.seed, config.trials.count)
    directory.log_event(phase="training", rounds=plan.rounds)
    campaign = Campaign(plan, chosen, clients, of_seed, book, directory)
    arriving = (elsewhere or partial(_train_here, grid, nodes, loaded))(campaign, left)
    odds: list[Floats] = []
    accuracies: list[Floats] = []
    for trials in plan.batches:
        while not campaign.is_finished(trials):
            next(arriving)
        findings = campaign.findings(trials)
        odds.append(log_odds(findings["ratios"])[:, -1])
        accuracies += [findings["accuracies"]] if "accuracies" in findings else []
        so_far = of_seed[: trials.stop], np.concatenate(odds)
        results = interim.look(config.audit.confidence, *so_far, accuracies, len(plan.batches))
        directory.log_event(phase="batch", trials=[trials.start, trials.stop], **results)
    nodes.dismiss()


def transcript(plan: Plan, directory: RunDirectory) -> Arrays:
    """Return the findings of all batches, joined into arrays over all their trials."""
    config = plan.config
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for trials in plan.batches:
        for name, array in directory.read_arrays(directory.batch_file(trials.start)).items():
            parts.setdefault(name, []).append(array)
    del parts[EXPERIMENT]
    joined = {
        name: np.concatenate(arrays, axis=int(name in BY_ROUND)) for name, arrays in parts.items()
    }
    configured, odds = config.federation.vantage, {}
    for vantage in vantages.measured(configured, config.audit.vantages):
        ending = vantages.suffix(vantage, configured)
        if f"ratios{ending}" in joined:
            odds[f"log_odds{ending}"] = log_odds(joined.pop(f"ratios{ending}"))
    mark = Batches(config, directory).mark(range(config.trials.count), transcript=True)
    return {**odds, **joined, EXPERIMENT: mark}


def _train_here(
    grid: Grid, nodes: Nodes, loaded: Federation, campaign: Campaign, left: Sequence[range]
) -> Iterator[None]:
    """Train batches of trials on the nodes of a grid. Each round is charged before it leaves."""
    for trials in left:
        attempt, log_event = campaign.begin(trials), campaign.directory.log_event
        training = Training(grid, campaign.batch(trials), attempt, log_event, nodes)
        campaign.keep(trials, train(training, loaded))
        yield


def train(training: Training, loaded: Federation) -> Arrays:
    """Train one batch of trials; return its findings and the utility of its evaluated trials."""
    batch, attempt = training.batch, training.attempt
    config, trials = batch.plan.config, batch.trials
    theta = federation.initial_parameters(config, loaded, trials)
    held_out, task = loaded.held_out(), tasks.task_of(loaded.model)
    mean = partial(task.mean, loaded.model, features=held_out[0])
    evaluated = config.audit.evaluated(trials)
    losses, accuracies = [], []
    final: dict[str, Floats] = {}

    def after_round(state: State) -> None:
        utility = {}
        if evaluated:
            parameters = torch.tensor(state.model[:evaluated]).to(loaded.device, non_blocking=True)
            loss, scores = loaded.evaluate(parameters, *held_out)
            means = device.to_host({"loss": mean(loss), "scores": mean(scores)})
            losses.append(means["loss"])
            accuracies.append(means["scores"])
            utility = {"loss": losses[-1].mean(), "accuracy": accuracies[-1].mean()}
            utility |= loaded.baseline | {"task": task.name, "of_class": loaded.of_class}
            if state.round == batch.plan.rounds:
                measures = loaded.measures(parameters)
                kept = measures.keys() & model_training.OF_ONE.keys()
                final.update({name: measures[name].cpu().numpy() for name in sorted(kept)})
                utility |= model_training.of_final(measures)
        spent = strict_json({} if attempt is None else {"epsilon": attempt.epsilon})
        of_trials = [trials.start, trials.stop]
        training.log_event(round=state.round, trials=of_trials, **utility, **spent)

    start = time.perf_counter()
    observations = BatchObservations(batch)
    training.observe = observations.observe
    state = training.run(State(0, theta.numpy()), after_round)
    found = [_of_adversary(training.grid, batch), *observations.findings()]
    utility = {"losses": np.stack(losses), "accuracies": np.stack(accuracies)} if evaluated else {}
    return {
        **{name.replace("-", "_"): array for each in found for name, array in each.items()},
        **utility,
        **final,
        "worlds": batch.worlds,
        "final_models": _digests(state.model),
        "batch_seconds": np.asarray([time.perf_counter() - start]),
    }


def _of_adversary(grid: Grid, batch: Batch) -> Arrays:
    """Return the findings of the adversary's node."""
    node = batch.nodes[batch.challenge.adversary]
    query = Message(RecordDict(), node, f"{MessageType.QUERY}.findings")
    replies = grid.send_and_receive([query], timeout=batch.plan.config.federation.timeout)
    reply = acceptance.accept_findings(batch, replies)
    records = messages.array_records(reply.content).values()
    return {name: each for record in records for name, each in messages.arrays_of(record).items()}


def _digests(parameters: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each trial's final model, [T, 32], to compare two runs."""
    rows = (hashlib.sha256(row.tobytes()).digest() for row in parameters)
    return np.stack([np.frombuffer(row, dtype=np.uint8) for row in rows])
