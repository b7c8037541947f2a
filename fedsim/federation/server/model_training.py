"""The training of one model, which a restarted server continues from its last round."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from flwr.serverapp import Grid

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.common.strict_json import strict_json
from fedsim.federation.protocol.messages import Request
from fedsim.federation.runs.ledger import Ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server import checkpoint
from fedsim.federation.server.batch import Batch, Received, Round
from fedsim.federation.server.checkpoint import State
from fedsim.federation.server.nodes import connected
from fedsim.federation.server.plan import Plan
from fedsim.federation.server.training import Training
from fedsim.game import challenge, federation
from fedsim.game.federation import Federation
from fedsim.game.observers.noise_watch import NoiseWatch, claimed_std, watchable
from fedsim.learning.training.tasks import task_of
from fedsim.privacy.noise import Noised

OF_ONE = {"balanced_accuracies": "balanced_accuracy", "areas_under_curve": "area_under_curve"}
"""Names of measures of several models, and their names for one model."""

RECORDS_CLIPPED = 200
"""Largest number of held-out records whose gradients are compared with the clipping norm."""


class TrainingNoise:
    """The noise of a training's sums, and of its messages where each has noise of its own."""

    def __init__(self, plan: Plan) -> None:
        config = plan.config
        trust, clients = config.federation.trust.model, config.federation.clients
        # Only under local trust does a single message have noise that can be judged.
        alone = not (trust.server_draws or trust.summed_securely)
        self._own = alone and trust.noise_share(clients, 1) >= 1
        self._config, self._nominal = config, plan.noise_multiplier
        seen = watchable(config.privacy, config.training, config.trials.count)
        self._watch = NoiseWatch(clients if self._own else 0) if seen else None

    def observe(self, round: Round, received: Received, noised: Noised, after: State) -> None:
        if self._watch is None or after.release is None:
            return
        std = claimed_std(self._config, self._nominal, len(received.replies))
        sums = received.sums if self._own else {}
        own = {client: sent[0] for client, sent in sums.items()}
        own_std = claimed_std(self._config, self._nominal, 1)
        self._watch.observe(after.release.aggregate[0], std, own, own_std)

    def said(self) -> dict[str, object]:
        """Return what the rounds so far say, for an event."""
        if self._watch is None:
            return {}
        limits, accused = (
            self._watch.limits(ALARM_CONFIDENCE),
            self._watch.accused(ALARM_CONFIDENCE),
        )
        return {"noise_at_most": limits, "noise_accused": accused}


def train(grid: Grid, plan: Plan, loaded: Federation, directory: RunDirectory) -> torch.Tensor:
    """Train the remaining rounds of a model; return the final model, [P].

    Raises InputError if the directory is damaged, or the remaining rounds exceed the budget.
    Raises ClientFailedError if a client is missing that may not be.
    """
    config, state, once = plan.config, checkpoint.read_checkpoint(directory), range(1)
    if state is None:
        state = State(0, federation.initial_parameters(config, loaded, once).numpy())
    done, nominal = state.round, plan.noise_multiplier
    book = Ledger(config, directory)
    first = Request(done + 1, 0, 1, nominal) if done < plan.rounds else None
    clients, nodes = connected(grid, config.federation, plan.digest, directory, first)
    worlds = challenge.worlds(config.run.seed, 1)
    batch = Batch(plan, plan.challenge(), clients, once, worlds)
    attempt = book.begin(once, plan.rounds, nominal, done + 1, repeats=True)
    noise = TrainingNoise(plan)
    training = Training(grid, batch, attempt, directory.log_event, nodes, noise.observe)
    directory.log_event(phase="training", rounds=plan.rounds)
    state = training.run(state, _keeping(training, noise, loaded, directory, done))
    nodes.dismiss()
    directory.log_event(phase="batch", trials=[0, 1])
    return torch.tensor(state.model[0])


def _keeping(
    training: Training, noise: TrainingNoise, loaded: Federation, directory: RunDirectory, done: int
) -> Callable[[State], None]:
    """Return the function that writes the state after a round, and logs the model's quality.

    The state is written before anything of the round's sum leaves: an interrupted round is repeated
    from the same model. A resumed training has logged its last round already, unless a kill tore
    the event; but not as the final one, where the budget allows no further round any more.
    """
    plan, attempt = training.batch.plan, training.attempt

    def after_round(state: State) -> None:
        played, last = state.round > done, state.round == plan.rounds
        noted: list[Mapping[str, Any]] = []
        if played:
            checkpoint.write_checkpoint(directory, state)
        elif done:
            noted = [event for event, _ in directory.events() if event.get("round") == done]
        if noted and not last:
            return
        utility: dict[str, object] = {}
        if len(loaded.held_out()[1]):
            parameters = torch.tensor(state.model).to(loaded.device)
            utility = _measured(loaded, parameters, last)
            if last and plan.config.privacy.unit == "record":
                utility["clipped"] = clipped_share(loaded, parameters)
        spent = strict_json({} if attempt is None else {"epsilon": attempt.epsilon})
        if not noted:
            said = strict_json(noise.said() if played else {})
            directory.log_event(round=state.round, trials=[0, 1], **utility, **spent, **said)
        elif not utility.keys() <= noted[-1].keys():
            # Without its trials: it is no further round.
            before = {n: each for n, each in noted[-1].items() if n not in ("time", "trials")}
            directory.log_event(**before | utility | spent)

    return after_round


def _measured(loaded: Federation, parameters: torch.Tensor, last: bool) -> dict[str, object]:
    """Return a model's measures on the held-out records, by its task; more for the last one."""
    task, model = task_of(loaded.model), loaded.model
    features, labels = loaded.held_out()
    outputs = loaded.outputs(parameters, features)
    loss = task.loss(outputs.double(), labels[None])
    means = {"loss": loss, "accuracy": task.score(outputs, labels[None])}
    utility: dict[str, object] = {
        name: float(task.mean(model, values, features)) for name, values in means.items()
    }
    utility |= loaded.baseline | {"task": task.name, "of_class": loaded.of_class}
    utility |= of_final(task.of_trials(lambda: outputs, labels))
    if last:
        utility |= task.of_model(model, outputs[0], features, labels)
    return utility


def clipped_share(loaded: Federation, parameters: torch.Tensor) -> float:
    """Return the share of public records whose gradient is longer than the clipping norm."""
    features, labels = (each[:RECORDS_CLIPPED] for each in loaded.held_out())
    lengths = loaded.clipper.clipped_distances(parameters, features, labels)
    # A clipped gradient is a little shorter than the norm (`clipped_block.MARGIN`).
    return float((lengths > (1 - 1e-4) * loaded.clipper.longest(labels)).double().mean())


def of_final(measures: Mapping[str, torch.Tensor]) -> dict[str, object]:
    """Return the means of the measures of T models, for an event."""
    return {OF_ONE[name]: float(each.mean()) for name, each in measures.items() if name in OF_ONE}
