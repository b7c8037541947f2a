"""The Flower ClientApp of a data owner; one of the owners is the adversary.

A handler is a function of its message, the run config and, for the adversary, of its own Flower
state. Nothing is kept in module globals but caches of pure functions.
"""

import time
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim import adversary, device, federation, fixed_point, messages
from fedsim.config import Config, from_run_config
from fedsim.federation import Federation
from fedsim.fixed_point import FixedPoint
from fedsim.mechanism import Trust, sensitivity
from fedsim.messages import Request, Role
from fedsim.owner import (
    candidate_masks,
    candidate_sums,
    challenge_gradients,
    clean_sum,
    gradient_distances,
    local_step_size,
    local_steps,
    noise,
    noise_round,
)
from fedsim.pac_release import Bools
from fedsim.randomness import Role as SeedRole
from fedsim.randomness import generator
from fedsim.sampling import participation
from fedsim.secure_aggregation import owner_mod

MEMORY = "adversary-memory"
MEMBERSHIP = "adversary-membership"
PROGRESS = "adversary-progress"
AWAITING = "adversary-awaiting"

app = ClientApp()


@app.query("identify")
def identify(message: Message, context: Context) -> Message:
    """Tell the server which partition this node holds."""
    return _reply(message, context)


@app.query("sensitivity")
def local_sensitivity(message: Message, context: Context) -> Message:
    """Measure the local sensitivity of the challenge: an instrument, not part of a DP release."""
    _, known, request = _prepare(message, context)
    present, absent = challenge_gradients(
        known, _model(message, known), request.record, _replacement(request)
    )
    norms = (present - absent).norm(dim=-1).cpu().numpy()
    return _reply(message, context, {messages.SENSITIVITY: messages.array_record(norms=norms)})


@app.train(mods=[owner_mod])
def train(message: Message, context: Context) -> Message:
    """Return the sum of this owner's clipped gradients, with its own noise unless trust is central.

    With local steps it is the sum over the steps that the owner took on its own copy of the model.
    Under distributed trust it is integers modulo 2^32, for secure aggregation.
    """
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    partition = _partition(context)
    _may_drop_out(config, request, partition)
    parameters = _model(message, known)
    challenged = request.role == Role.CHALLENGED
    taking_part = _participation(config, known, request)
    instrumented = config.audit.mode == "instrumented"
    trust = config.federation.trust
    grid = None
    if trust is Trust.DISTRIBUTED:
        grid = fixed_point.agreed(config, request.noise_multiplier, parameters.shape[1])
    noises: list[torch.Tensor] = []
    masks = _candidate_masks(config, known, partition, request)

    def clean(model: torch.Tensor) -> torch.Tensor:
        if masks is not None:
            replacement = _replacement(request) if challenged else None
            return candidate_sums(known, partition, model, masks, replacement)
        total = clean_sum(
            known,
            partition,
            model,
            request.record if challenged else None,
            _replacement(request),
            _array(message, messages.WORLDS, known) if challenged else None,
            taking_part,
        )
        return total if grid is None else grid.nearest(total)

    def own_noise(step: int) -> torch.Tensor:
        drawn = noise(
            config.noise_seed,
            request.trial_numbers,
            noise_round(config, request.round, step),
            partition,
            _noise_std(message, config, known, request, grid),
            parameters.shape[1],
        )
        if grid is not None:
            drawn = grid.nearest(drawn)
        if instrumented or request.role == Role.COLLUDER:
            noises.append(drawn)
        return drawn

    total = local_steps(
        clean,
        parameters,
        config.training.local_steps,
        local_step_size(config, request.round),
        own_noise if trust is not Trust.CENTRAL else None,
    )
    if grid is None:
        sent = total.float()
        reply = sent.cpu().numpy()
    else:
        reply = grid.message(total.cpu().numpy())
        sent = torch.from_numpy(grid.values(reply)).to(total)
    content = {messages.REPLY: messages.array_record(sum=reply)}
    if instrumented:
        measured = _measurement(known, request, parameters, taking_part, noises)
        if masks is not None and challenged:
            (column,) = (known.owned_by(partition) == request.record).nonzero()[0]
            measured["membership"] = torch.from_numpy(masks[:, column])
        if measured:
            content[messages.MEASUREMENT] = messages.array_record(
                **{name: tensor.cpu().numpy() for name, tensor in measured.items()}
            )
    elif request.role == Role.COLLUDER and noises:
        (told,) = noises
        content[messages.CONFIDED] = messages.array_record(noise=told.cpu().numpy())
    elif request.role == Role.ADVERSARY:
        _expect(message, context, config, known, request, parameters, sent.double(), taking_part)
    if (distances := _distances(config, known, partition, request, parameters)) is not None:
        content[messages.DISTANCES] = messages.array_record(distances=distances.cpu().numpy())
    seconds = time.perf_counter() - start
    return _reply(message, context, content, seconds=seconds, round=request.round)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and the last aggregate, from which the adversary concludes.

    An owner answers with nothing of its data: a loss on its own records, which differential privacy
    did not touch, would be one more release.
    """
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    if request.role == Role.ADVERSARY:
        if config.audit.mode == "participant":
            memory = _recall(message, context, config, known, request)
            _remember(context, memory, request.round)
        attack = adversary.infer_membership(known, request.record, _model(message, known))
        context.state[MEMBERSHIP] = messages.array_record(**attack)
    return _reply(message, context, seconds=time.perf_counter() - start)


@app.query("findings")
def findings(message: Message, context: Context) -> Message:
    """Hand the adversary's findings to the auditor, who asks after the last round."""
    config = from_run_config(context.run_config)
    names = [MEMBERSHIP] if config.audit.mode == "instrumented" else [MEMORY, MEMBERSHIP]
    return _reply(message, context, {name: context.state.array_records[name] for name in names})


def _prepare(message: Message, context: Context) -> tuple[Config, Federation, Request]:
    config = from_run_config(context.run_config)
    known = federation.load(config)
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    return config, known, Request.from_content(message.content)


def _may_drop_out(config: Config, request: Request, partition: int) -> None:
    """Raise RuntimeError if this owner is to fail in this round; the adversary never does.

    One coin for all trials, which share the message.
    """
    rate = config.federation.dropout_rate
    if not rate or request.role == Role.ADVERSARY:
        return
    coin = generator(
        config.run.seed, SeedRole.DROPOUT, round=request.round, partition=partition
    ).random()
    if coin < rate:
        raise RuntimeError(
            f"dropped out of round {request.round} by chance (federation.dropout-rate {rate:g})"
        )


def _candidate_masks(
    config: Config, known: Federation, partition: int, request: Request
) -> Bools | None:
    """Return which of this owner's records each candidate has; None without PAC noise."""
    if config.privacy.noise != "pac":
        return None
    return candidate_masks(
        config,
        known,
        partition,
        request.record if request.role == Role.CHALLENGED else None,
        _replacement(request),
        request.role == Role.ADVERSARY,
    )


def _participation(config: Config, known: Federation, request: Request) -> torch.Tensor | None:
    """Return which records of D take part in this round, bool [T, n]; None if all do."""
    coins = participation(
        config.noise_seed,
        request.trial_numbers,
        request.round,
        config.data.records,
        config.training.sampling_rate,
    )
    return None if coins is None else torch.from_numpy(coins).to(known.device)


def _noise_std(
    message: Message,
    config: Config,
    known: Federation,
    request: Request,
    grid: FixedPoint | None,
) -> torch.Tensor:
    """Return the standard deviation [T] of this owner's noise, its share of it on a grid."""
    if grid is not None:
        shape = (request.trials,)
        return torch.full(shape, grid.share_std, dtype=torch.float64, device=known.device)
    if config.privacy.sensitivity == "local":
        return request.noise_multiplier * _array(message, messages.SENSITIVITY, known)
    bound = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
    scale = torch.full((request.trials,), bound, dtype=torch.float64, device=known.device)
    return request.noise_multiplier * scale


def _measurement(
    known: Federation,
    request: Request,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Return what an owner tells the auditor of an instrumented run."""
    measured = {}
    if noises and request.role not in (Role.ADVERSARY, Role.COLLUDER):
        # The adversary knows its own noise and the colluders', which hide nothing.
        (measured["noise"],) = noises
    if request.role != Role.CHALLENGED:
        return measured
    replacement = _replacement(request)
    present, absent = challenge_gradients(known, parameters, request.record, replacement)
    measured["present"] = present
    if replacement is not None:
        measured["absent"] = absent
    if taking_part is not None:
        measured["participation"] = taking_part[:, request.record]
    return measured


def _distances(
    config: Config, known: Federation, partition: int, request: Request, parameters: torch.Tensor
) -> torch.Tensor | None:
    """Return what the Bayesian accountant asks of this owner; None where it asks nothing."""
    evaluated = config.audit.evaluated(request.trial_numbers)
    if not config.audit.bayesian_pairs or not evaluated:
        return None
    trials = request.trial_numbers[:evaluated]
    return gradient_distances(
        config, known, partition, parameters[:evaluated], trials, request.round
    )


def _waits(config: Config) -> bool:
    """Whether the adversary learns only with the aggregate what it is a sum of."""
    federation = config.federation
    return federation.tolerated_dropouts > 0 or (
        federation.colluding > 0 and federation.trust is not Trust.CENTRAL
    )


def _recall(
    message: Message, context: Context, config: Config, known: Federation, request: Request
) -> adversary.Memory:
    """Return the memory after the aggregate that this message brings; empty in the first round."""
    if request.round == 1:
        return adversary.Memory.empty(request.trials)
    seen = context.state.config_records.get(PROGRESS)
    last = None if seen is None else int(seen["round"])  # type: ignore[arg-type]
    if last != request.round - 1:
        raise RuntimeError(
            f"the adversary's state is of round {last}, but the message is of round "
            f"{request.round}: its Flower state was lost between rounds"
        )
    arrays = messages.arrays_of(context.state.array_records[MEMORY])
    memory = adversary.Memory.from_arrays(arrays, known.device)
    if _waits(config):
        memory = _expect_late(memory, message, context, config, known, request)
    return adversary.observe(memory, _array(message, messages.AGGREGATE, known))


def _expect(
    message: Message,
    context: Context,
    config: Config,
    known: Federation,
    request: Request,
    parameters: torch.Tensor,
    sent: torch.Tensor,
    taking_part: torch.Tensor | None,
) -> None:
    """Learn from the aggregate of the round before, and get ready for that of this round."""
    memory = _recall(message, context, config, known, request)
    if _waits(config):
        context.state[AWAITING] = messages.array_record(
            model=parameters.cpu().numpy(), message=sent.cpu().numpy()
        )
    else:
        memory = adversary.expect(
            memory,
            config,
            known,
            _partition(context),
            request.record,
            _replacement(request),
            request.noise_multiplier,
            parameters,
            sent,
            taking_part,
            request.round,
        )
    _remember(context, memory, request.round)


def _expect_late(
    memory: adversary.Memory,
    message: Message,
    context: Context,
    config: Config,
    known: Federation,
    request: Request,
) -> adversary.Memory:
    """Form the hypotheses about the aggregate of the round before, whose participants it names."""
    own, before = _partition(context), replace(request, round=request.round - 1)
    awaiting = messages.arrays_of(context.state.array_records[AWAITING])
    owners: list[int] = message.content.config_records[messages.PARTICIPANTS]["owners"]  # type: ignore[assignment]
    confided: dict[str, npt.NDArray[Any]] = {}
    if messages.CONFIDED in message.content:
        confided = messages.arrays_of(message.content.array_records[messages.CONFIDED])
    contribution = torch.from_numpy(awaiting["message"]).to(known.device)
    for noise_told in confided.values():
        contribution = contribution + torch.from_numpy(noise_told).to(known.device)
    return adversary.expect(
        memory,
        config,
        known,
        own,
        request.record,
        _replacement(request),
        request.noise_multiplier,
        torch.from_numpy(awaiting["model"]).to(known.device),
        contribution,
        _participation(config, known, before),
        before.round,
        set(range(config.federation.owners)) - set(owners),
        len(set(owners) - {own}) - len(confided),
    )


def _remember(context: Context, memory: adversary.Memory, round: int) -> None:
    context.state[MEMORY] = messages.array_record(**memory.to_arrays())
    context.state[PROGRESS] = ConfigRecord({"round": round})


def _model(message: Message, known: Federation) -> torch.Tensor:
    return _array(message, messages.MODEL, known)


def _array(message: Message, name: str, known: Federation) -> torch.Tensor:
    return torch.tensor(messages.only(message.content.array_records[name])).to(known.device)


def _replacement(request: Request) -> int | None:
    return None if request.replacement < 0 else request.replacement


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _reply(
    message: Message,
    context: Context,
    arrays: dict[str, ArrayRecord] | None = None,
    **metrics: float,
) -> Message:
    content = RecordDict({**(arrays or {})})
    content[messages.METRICS] = MetricRecord({"partition": _partition(context), **metrics})
    return Message(content, reply_to=message)
