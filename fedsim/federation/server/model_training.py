"""The training of one model, which a restarted server continues from its last round."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid

from adversaries.arrays import Floats
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.common.strict_json import strict_json
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request
from fedsim.federation.runs.ledger import Ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server import checkpoint
from fedsim.federation.server.batch import Batch, ReceivedReplies
from fedsim.federation.server.checkpoint import Checkpoint, RoundRelease
from fedsim.federation.server.nodes import connected, ended_runs
from fedsim.federation.server.plan import Plan
from fedsim.federation.server.strategy import DPSGD
from fedsim.game import challenge, federation
from fedsim.game.federation import Federation
from fedsim.game.observers.noise_watch import NoiseWatch, claimed_std, watchable
from fedsim.learning.training.tasks import task_of

DISMISS_TIMEOUT = 30.0
"""Seconds in which an auditor may fetch its last messages."""


@dataclass
class ResumableDPSGD(DPSGD):
    """The aggregation strategy of a training whose state is written after each round."""

    left_off: Checkpoint | None = None
    directory: RunDirectory | None = None
    noise: NoiseWatch | None = field(default=None, init=False)
    _own_noise: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.batch.plan.config
        # Only under local trust does a single message have noise that can be judged.
        trust = config.federation.trust.model
        alone = not (trust.server_draws or trust.summed_securely)
        self._own_noise = alone and trust.noise_share(config.federation.clients, 1) >= 1
        clients = config.federation.clients if self._own_noise else 0
        self.noise = (
            NoiseWatch(clients)
            if watchable(config.privacy, config.training, config.trials.count)
            else None
        )
        if self.left_off is not None:
            self._release = self.left_off.release
            self._optimizer.resume(self.left_off.optimizer)

    @property
    def done(self) -> int:
        return 0 if self.left_off is None else self.left_off.round

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Step, and write the state before anything of the round's sum leaves.

        A round that was interrupted before is repeated from the same model, and costs nothing more.
        """
        model, seconds = super().aggregate_train(server_round, replies)
        assert self._release is not None and self.directory is not None
        state = self._optimizer.state()
        number = self.done + server_round
        checkpoint.write_checkpoint(
            self.directory, Checkpoint(number, messages.only(model), self._release, state)
        )
        return model, seconds

    def _released(self, round: int, received: ReceivedReplies, total: Floats) -> RoundRelease:
        """Round the sum to the released values, and observe its noise."""
        release = super()._released(round, received, total)
        if self.noise is not None:
            config, nominal = self.batch.plan.config, self.batch.plan.noise_multiplier
            sent = received.records(messages.REPLY) if self._own_noise else {}
            self.noise.observe(
                release.aggregate[0],
                claimed_std(config.scheme, nominal, len(received.replies)),
                {client: messages.only(record)[0] for client, record in sent.items()},
                claimed_std(config.scheme, nominal, 1),
            )
        return release


def train(grid: Grid, plan: Plan, loaded: Federation, directory: RunDirectory) -> torch.Tensor:
    """Train the remaining rounds of a model; return the final model, [P].

    Raises InputError if the directory is damaged, or the remaining rounds exceed the budget.
    Raises ClientFailedError if a client is missing that may not be.
    """
    config, left_off = plan.config, checkpoint.read_checkpoint(directory)
    done = 0 if left_off is None else left_off.round
    repeated = (done, plan.noise_multiplier) if config.federation.repeats_answers else None
    book = Ledger(config.scheme, directory, done=repeated)
    ended = ended_runs(directory)
    first = Request(done + 1, 0, 1, plan.noise_multiplier, ended=ended)
    nodes, auditors = connected(
        grid, config.federation, plan.digest, directory, first if done < plan.rounds else None
    )
    once = range(1)
    batch = Batch(
        plan,
        plan.challenge(),
        nodes,
        once,
        challenge.worlds(config.run.seed, 1),
        ended,
    )
    attempt = book.begin(once, plan.rounds, plan.noise_multiplier, first=done + 1)
    strategy = ResumableDPSGD(batch, attempt, directory.log_event, auditors, left_off, directory)
    theta = (
        federation.initial_parameters(config.game, loaded, once).numpy()
        if left_off is None
        else left_off.model
    )
    directory.log_event(phase="training", rounds=plan.rounds)
    result = strategy.start(
        grid,
        messages.array_record(parameters=theta),
        num_rounds=plan.rounds - done,
        timeout=config.federation.timeout,
        evaluate_fn=_after_round(strategy, loaded, directory),
    )
    auditors.dismiss(grid, DISMISS_TIMEOUT)
    directory.log_event(phase="batch", trials=[0, 1])
    final = (
        theta if result.arrays is None or not len(result.arrays) else messages.only(result.arrays)
    )
    return torch.tensor(final[0])


OF_ONE = {"balanced_accuracies": "balanced_accuracy", "areas_under_curve": "area_under_curve"}
"""Names of measures of several models, and their names for one model."""


RECORDS_CLIPPED = 200
"""Largest number of held-out records whose gradients are compared with the clipping norm."""


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
    groups = torch.arange(len(labels), device=loaded.device)[None, :, None]
    lengths = loaded.clipper.clipped_distances(parameters, features, labels, groups)
    # A clipped gradient is a little shorter than the norm (`clipped_block.MARGIN`).
    return float((lengths > (1 - 1e-4) * loaded.clipper.longest(labels)).double().mean())


def of_final(measures: Mapping[str, torch.Tensor]) -> dict[str, object]:
    """Return the means of the measures of T models, for an event."""
    return {OF_ONE[name]: float(each.mean()) for name, each in measures.items() if name in OF_ONE}


def _after_round(
    strategy: ResumableDPSGD, loaded: Federation, directory: RunDirectory
) -> Callable[[int, ArrayRecord], None]:
    """Return the function that logs the model's quality after a round."""
    plan, held_out = strategy.batch.plan, loaded.held_out()

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        number = strategy.done + server_round
        # A resumed training has logged its last round already, unless a kill tore the event.
        resumed = not server_round and strategy.done
        if resumed and any(event.get("round") == number for event, _ in directory.events()):
            return
        utility: dict[str, object] = {}
        if len(held_out[1]):
            parameters = torch.tensor(messages.only(arrays)).to(loaded.device)
            last = number == plan.rounds
            utility = _measured(loaded, parameters, last)
            if last and plan.config.privacy.unit == "record":
                utility["clipped"] = clipped_share(loaded, parameters)
        noise: dict[str, object] = {}
        if server_round and strategy.noise is not None:
            noise["noise_at_most"] = strategy.noise.limits(ALARM_CONFIDENCE)
            noise["noise_accused"] = strategy.noise.accused(ALARM_CONFIDENCE)
        spent = {} if strategy.attempt is None else {"epsilon": strategy.attempt.epsilon}
        directory.log_event(round=number, trials=[0, 1], **utility, **strict_json(spent | noise))

    return after_round
