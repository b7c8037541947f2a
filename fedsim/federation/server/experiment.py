"""An experiment: batches of trials, what is observed in them, and the run's transcript."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.attacks.posterior import log_odds
from adversaries.statistics import estimators
from fedsim.common import device
from fedsim.common.randomness import SERVER
from fedsim.common.strict_json import strict_json
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request
from fedsim.federation.runs.batches import EXPERIMENT, Batches
from fedsim.federation.runs.ledger import Attempt, Ledger
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.federation.server import acceptance, model_training
from fedsim.federation.server.batch import Array, Batch, Received, Round
from fedsim.federation.server.checkpoint import State
from fedsim.federation.server.nodes import Nodes, connected
from fedsim.federation.server.plan import Plan
from fedsim.federation.server.training import Training
from fedsim.game import challenge, federation, one_run
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import vantages
from fedsim.game.mechanisms.step import Learnt, UnknownNoise, join
from fedsim.game.observers import at_server, disclosed_noise
from fedsim.game.observers.at_server import OracleView, Seen
from fedsim.game.round_game import RoundGame
from fedsim.learning.training import tasks
from fedsim.privacy.mechanism import aggregate_noise_multiplier
from fedsim.privacy.noise import Noised
from fedsim.privacy.trust import Vantage


class BatchObservations:
    """The observations of a batch of trials over its rounds."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._config = batch.plan.config
        self._seat = at_server.seat(self._config.audit.mode)()
        self._learnt: dict[Vantage, list[Learnt]] = {}
        self._canary_scores: Array | None = None

    def observe(self, round: Round, received: Received, noised: Noised, after: State) -> None:
        """Add what the adversaries conclude, what the clients measured, and canaries' scores."""
        for vantage, step in self._from_seat(round, received, noised).items():
            self._learnt.setdefault(vantage, []).append(step)
        if self._config.canaries.count:
            scores = self._scores(round, after)
            before = self._canary_scores
            # A canary is in all rounds or in none, so the scores of its rounds add up.
            self._canary_scores = scores if before is None else before + scores

    def findings(self) -> list[dict[str, Array]]:
        """Return all observations by name; those of other vantage points with a suffix."""
        config, arrays = self._config, []
        if self._canary_scores is not None:
            coins = one_run.included(config.canaries.count, config.run.seed, self._batch.trials)
            arrays.append({"canary_scores": self._canary_scores, "canaries_included": coins})
        for vantage, rounds in self._learnt.items():
            ending = vantages.suffix(vantage, config.federation.vantage)
            arrays.append({f"{name}{ending}": array for name, array in join(rounds).items()})
        return arrays

    def _from_seat(
        self, round: Round, received: Received, noised: Noised
    ) -> Mapping[Vantage, Learnt]:
        """Return what the seat learns; no information where the target's client was missing."""
        batch, config = self._batch, self._config
        unknown_noise = {
            vantage: self._unknown(vantage, round, received)
            for vantage in vantages.measured(config.federation.vantage, config.audit.vantages)
            if vantage in vantages.EXACT and vantage in self._seat.vantages
        }
        if not unknown_noise:
            return {}
        target = batch.challenge
        if target.client not in received.replies:
            return {
                vantage: disclosed_noise.nothing(unknown.noise_std).learnt
                for vantage, unknown in unknown_noise.items()
            }
        total = noised.total
        if received.disclosed is not None:
            total = total - sum(messages.arrays_of(received.disclosed).values())
        game = RoundGame(
            round.number,
            batch.trials,
            batch.plan.noise_multiplier,
            target.client,
            target.record,
            target.replacement,
        )
        seen = Seen(
            config,
            game,
            received.participants,
            unknown_noise,
            round.model,
            total,
            lambda client: messages.only(received.records(messages.REPLY)[client]),
            partial(_measured, batch, received, noised),
        )
        return {vantage: step.learnt for vantage, step in self._seat.observe(seen).items()}

    def _unknown(self, vantage: Vantage, round: Round, received: Received) -> UnknownNoise:
        """Return the sources of the noise that hides the target from a vantage, and its size."""
        batch, federation = self._batch, self._config.federation
        target, clients = batch.challenge, self._config.participation.expected_clients
        sources = federation.trust.model.unknown_noise(
            vantage, received.participants, target.client, target.adversary, batch.colluders
        )
        multiplier = aggregate_noise_multiplier(
            batch.plan.noise_multiplier, federation.trust, clients, len(sources)
        )
        return UnknownNoise(sources, torch.from_numpy(multiplier * round.sensitivities))

    def _scores(self, round: Round, after: State) -> Array:
        """Return every canary's score in the released sum, which every recipient can compute."""
        assert after.release is not None
        loaded = federation.load(self._config)
        sent = (round.model, after.release.aggregate)
        placed = (torch.tensor(each).to(loaded.device) for each in sent)
        scores: Array = one_run.scores(self._config, loaded, *placed).cpu().numpy()
        return scores


def _measured(batch: Batch, received: Received, noised: Noised) -> OracleView:
    records = received.records(messages.MEASUREMENT)
    target = records[batch.challenge.client]

    def noises() -> Iterator[tuple[int, torch.Tensor]]:
        # One after the other, since all of them take clients x [T, P] numbers.
        for partition, record in records.items():
            if (noise := _tensor(record, "noise")) is not None:
                yield partition, noise
        if noised.noise is not None:
            yield SERVER, torch.from_numpy(noised.noise)

    present = _tensor(target, "present")
    assert present is not None
    return OracleView(
        torch.from_numpy(batch.worlds),
        present,
        _tensor(target, "absent"),
        _tensor(target, "participation"),
        noises(),
    )


def _tensor(record: ArrayRecord, name: str) -> torch.Tensor | None:
    return torch.tensor(record[name].numpy()) if name in record else None


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
        results = look(config.audit.confidence, *so_far, accuracies, len(plan.batches))
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


def look(
    confidence: float, worlds: Bools, log_odds: Floats, accuracies: Sequence[Floats], looks: int
) -> dict[str, Any]:
    """Return the interim results of all finished trials, for an event.

    Args:
        confidence: with which the intervals of all looks hold together (Bonferroni), in (0, 1).
        accuracies: for each batch, those of its evaluated trials by round, [k + 1, E].
        looks: number of planned looks, one after each batch.

    Returns: the `advantage` with its `advantage_interval`; the largest `belief` in the record of a
    trial that used it; and the mean final `accuracy`. Infinity is None.
    """
    results: dict[str, Any] = {}
    if len(worlds) > 1:
        level = 1 - (1 - confidence) / looks
        achieved = estimators.advantage(worlds, log_odds, level)
        ends = [*achieved.interval.ends]
        results |= {"advantage": achieved.point, "advantage_interval": ends}
    if worlds.any():
        results["belief"] = float(expit(log_odds[worlds].max()))
    if final := [each[-1] for each in accuracies if each.size]:
        results["accuracy"] = float(np.concatenate(final).mean())
    return strict_json(results)
