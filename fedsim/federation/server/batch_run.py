"""One batch of trials: its training, and the values that all batches of a campaign share."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from adversaries.arrays import Bools, Floats
from fedsim.common import device
from fedsim.common.strict_json import strict_json
from fedsim.federation.protocol import messages
from fedsim.federation.runs.batches import EXPERIMENT, Batches
from fedsim.federation.runs.ledger import Attempt, Ledger
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.federation.server import model_training
from fedsim.federation.server.batch import Batch
from fedsim.federation.server.nodes import Auditors, ended_runs
from fedsim.federation.server.plan import Plan
from fedsim.federation.server.strategy import DPSGD
from fedsim.game import federation
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.learning.training import tasks


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
        ended = ended_runs(self.directory)
        return Batch(plan, self.challenge, self.nodes, trials, worlds, ended)

    def begin(self, trials: range) -> Attempt:
        return self.book.begin(trials, self.plan.rounds, self.plan.noise_multiplier)

    def is_finished(self, trials: range) -> bool:
        return self.directory.has(self.directory.batch_file(trials.start))

    def keep(self, trials: range, findings: Arrays) -> None:
        """Write the findings of a batch, with a mark of their experiment."""
        mark = {EXPERIMENT: Batches(self.plan.config, self.directory).mark(trials)}
        self.directory.write_arrays(self.directory.batch_file(trials.start), findings | mark)


Trainer = Callable[[Campaign, Sequence[range]], Iterator[None]]
"""Trains batches of a campaign, and yields after the findings of each are in its directory."""


def train_here(
    grid: Grid, auditors: Auditors, loaded: Federation, campaign: Campaign, left: Sequence[range]
) -> Iterator[None]:
    """Train batches of trials on the nodes of a grid. Each round is charged before it leaves."""
    log_event = campaign.directory.log_event
    for trials in left:
        strategy = DPSGD(campaign.batch(trials), campaign.begin(trials), log_event, auditors)
        campaign.keep(trials, train(grid, strategy, loaded, log_event))
        yield


def train(
    grid: Grid, strategy: DPSGD, loaded: Federation, log_event: Callable[..., None]
) -> Arrays:
    """Train one batch of trials; return its findings and the utility of its evaluated trials."""
    config, rounds = strategy.batch.plan.config, strategy.batch.plan.rounds
    trials = strategy.batch.trials
    theta = federation.initial_parameters(config.game, loaded, trials)
    held_out, task = loaded.held_out(), tasks.task_of(loaded.model)
    evaluated = config.audit.evaluated(trials)
    losses, accuracies = [], []
    final: dict[str, Floats] = {}

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        utility = {}
        spent = {} if strategy.attempt is None else {"epsilon": strategy.attempt.epsilon}
        if evaluated:
            parameters = torch.tensor(messages.only(arrays)[:evaluated])
            parameters = parameters.to(loaded.device, non_blocking=True)
            loss, scores = loaded.evaluate(parameters, *held_out)
            mean = partial(task.mean, loaded.model, features=held_out[0])
            means = device.to_host({"loss": mean(loss), "scores": mean(scores)})
            losses.append(means["loss"])
            accuracies.append(means["scores"])
            utility = {"loss": losses[-1].mean(), "accuracy": accuracies[-1].mean()}
            utility |= loaded.baseline | {"task": task.name, "of_class": loaded.of_class}
            if server_round == rounds:
                measures = loaded.measures(parameters)
                final.update({name: each.cpu().numpy() for name, each in measures.items()})
                utility |= model_training.of_final(measures)
        log_event(
            round=server_round, trials=[trials.start, trials.stop], **utility, **strict_json(spent)
        )

    start = time.perf_counter()
    result = strategy.start(
        grid,
        messages.array_record(parameters=theta.numpy()),
        num_rounds=rounds,
        timeout=config.federation.timeout,
        evaluate_fn=after_round,
    )
    findings = strategy.findings(grid)
    measured = result.train_metrics_clientapp, result.evaluate_metrics_clientapp
    seconds = [messages.scalar(each, "seconds") for one in measured for each in one.values()]
    utility = {"losses": np.stack(losses), "accuracies": np.stack(accuracies)} if evaluated else {}
    return {
        **{name.replace("-", "_"): array for record in findings for name, array in record.items()},
        **utility,
        **final,
        "worlds": strategy.batch.worlds,
        "final_models": _digests(messages.only(result.arrays)),
        "batch_seconds": np.asarray([time.perf_counter() - start]),
        "clients_seconds": np.asarray([sum(seconds)]),
    }


def _digests(parameters: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each trial's final model, [T, 32], to compare two runs."""
    rows = (hashlib.sha256(row.tobytes()).digest() for row in parameters)
    return np.stack([np.frombuffer(row, dtype=np.uint8) for row in rows])
