"""What a data owner's node does with a message; one of the owners is the adversary.

A handler is a function of its message, the run config, its node's own config and, for the
adversary, of what it remembers. Nothing is kept in module globals but caches of pure functions.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ConfigRecord, Context, Message

from adversaries import membership_attacks
from fedsim import (
    admission,
    adversary,
    canary,
    consent,
    device,
    federation,
    fixed_point,
    messages,
    node_memory,
    released_model,
    vantages,
)
from fedsim.config import Config, from_run_config
from fedsim.errors import InputError
from fedsim.federation import Federation
from fedsim.fixed_point import FixedPoint
from fedsim.mechanism import Neighbouring, Trust, Vantage, sensitivity
from fedsim.messages import Request, Role
from fedsim.owner import (
    candidate_masks,
    candidate_sums,
    challenge_contributions,
    contribution,
    gradient_distances,
    local_step_size,
    local_steps,
    noise,
    noise_round,
)
from fedsim.pac_release import Bools
from fedsim.poison_scores import poison_scores
from fedsim.randomness import Role as SeedRole
from fedsim.randomness import generator
from fedsim.sampling import participation

MEMORY = "adversary-memory"
MEMBERSHIP = "adversary-membership"
LOSSES = "adversary-losses"
RELEASED = "adversary-released-model"
AWAITING = "adversary-awaiting"
PROGRESS = "round"
"""The array beside the adversary's memory that says which round it is of."""


def data_digest(message: Message, context: Context) -> Message:
    """Tell the server the digest of this owner's data, before the first round.

    Of the records themselves where there is nothing to protect: no noise would hide what it says.
    """
    partition, records = messages.partition(context), not consent.protects(context.node_config)
    told = messages.reply(message, partition)
    digest = federation.digest(_config(context), partition, records)
    told.content[messages.DATA] = ConfigRecord({"sha256": digest, "records": records})
    return told


def local_sensitivity(message: Message, context: Context) -> Message:
    """Measure the local sensitivity of the challenge: an instrument, not part of a DP release."""
    config, known, request = _prepare(message, context)
    why = "the norm of one record's gradient is asked for, which no noise protects"
    consent.check(context.node_config, dict.fromkeys(consent.UNPROTECTED, why))
    present, absent = _challenge(config, known, request, _model(message, known))
    norms = (present - absent).norm(dim=-1).cpu().numpy()
    told = {messages.SENSITIVITY: messages.array_record(norms=norms)}
    return messages.reply(message, messages.partition(context), told, round=request.round)


def train(message: Message, context: Context) -> Message:
    """Return this owner's clipped gradients' sum or update, with its noise unless trust is central.

    With local steps it is the sum over the steps that the owner took on its own copy of the model.
    Under distributed trust it is integers modulo 2^32, for secure aggregation.
    """
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    partition = messages.partition(context)
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

    def own_noise(step: int) -> torch.Tensor:
        drawn = noise(
            config.noise_seed,
            config.trials.leaves(request.trial_numbers),
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

    contributed = _contribution(message, context, config, known, request, taking_part, masks, grid)
    # Whatever happens from here on, it counts as answered.
    admission.enter(context, config, request, known)
    total = local_steps(
        contributed,
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
        measured = _measurement(config, known, request, parameters, taking_part, noises)
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
    elif request.role == Role.ADVERSARY and _follows_rounds(config):
        _expect(message, context, config, known, request, parameters, sent.double(), taking_part)
    if request.role == Role.ADVERSARY and _follows_losses(config, context):
        _watch_losses(context, config, known, request, parameters)
    if (distances := _distances(config, known, partition, request, parameters)) is not None:
        content[messages.DISTANCES] = messages.array_record(distances=distances.cpu().numpy())
    seconds = time.perf_counter() - start
    return messages.reply(
        message, messages.partition(context), content, seconds=seconds, round=request.round
    )


def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and the last aggregate, from which the adversary concludes.

    An owner answers with nothing of its data: a loss on its own records, which differential privacy
    did not touch, would be one more release. So the adversary looks at losses of records that it
    knows only where nothing is to be protected.
    """
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    if request.role == Role.ADVERSARY:
        if _follows_rounds(config):
            memory = _recall(message, context, config, known, request)
            # No round follows that its residual could be compared with.
            _remember(context, replace(memory, past=None), request.round)
        if Vantage.RELEASED_MODEL in vantages.measured(config) and not released_model.why_not(
            config
        ):
            question = request.question.at(request.round - 1)
            step = released_model.attack(config, known, question, _model(message, known))
            node_memory.remember(
                context,
                RELEASED,
                {name.replace("_", "-"): array for name, array in step.items()},
            )
        if not consent.protects(context.node_config):
            attack = _attack_losses(message, context, config, known, request)
            node_memory.remember(context, MEMBERSHIP, attack)
    return messages.reply(message, messages.partition(context), seconds=time.perf_counter() - start)


def findings(message: Message, context: Context) -> Message:
    """Hand the adversary's findings to the auditor, who asks after the last round."""
    config = from_run_config(context.run_config)
    consent.check(context.node_config, {consent.ADVERSARY: "an adversary's findings are asked for"})
    names = {MEMBERSHIP: ""}
    for name, vantage in ((MEMORY, Vantage.PARTICIPANT), (RELEASED, Vantage.RELEASED_MODEL)):
        names[name] = vantages.suffix(vantage, config.federation.vantage)
    records = {}
    for name, ending in names.items():
        arrays = node_memory.recall(context, name)
        arrays.pop(PROGRESS, None)
        if arrays:
            records[name] = messages.array_record(
                **{f"{key}{ending}": array for key, array in arrays.items()}
            )
    node_memory.forget(context, [*names, AWAITING, LOSSES])
    return messages.reply(message, messages.partition(context), records)


def _prepare(message: Message, context: Context) -> tuple[Config, Federation, Request]:
    config = _config(context)
    request = Request.from_content(message.content)
    partition = messages.partition(context)
    consent.check(context.node_config, admission.needed(config, request, partition))
    known = federation.load(config)
    admission.check(message, context, config, request, known)
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    return config, known, request


def _config(context: Context) -> Config:
    """Return the experiment, with this owner's own files if its node's config says where."""
    config = from_run_config(context.run_config)
    if path := context.node_config.get(consent.DATA):
        # An owner's files are where the owner says, and nobody else needs to know.
        config = config.reading_data_from(str(path), as_they_are=True)
    return config


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


def _contribution(
    message: Message,
    context: Context,
    config: Config,
    known: Federation,
    request: Request,
    taking_part: torch.Tensor | None,
    masks: Bools | None,
    grid: FixedPoint | None,
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what maps a model [T, P] to what this owner adds to the sum, without its noise.

    With masks it is a sum for each candidate; with a grid it is rounded to it.
    """
    partition, question = messages.partition(context), request.question
    challenged = request.role == Role.CHALLENGED
    told = challenged and messages.WORLDS in message.content
    worlds = _array(message, messages.WORLDS, known) if told else None
    canary_seed = _canary_seed(config, context)

    def contributed(model: torch.Tensor) -> torch.Tensor:
        if masks is not None:
            there = question.replacement if challenged else None
            return candidate_sums(known, partition, model, masks, there)
        total = contribution(config, known, partition, model, question, worlds, taking_part)
        if canary_seed is not None:
            trials, norm = request.trial_numbers, config.training.clipping_norm
            added = canary.contribution(canary_seed, trials, request.round, model.shape[1], norm)
            total = total + torch.from_numpy(added).to(total)
        return total if grid is None else grid.nearest(total)

    return contributed


def _canary_seed(config: Config, context: Context) -> int | None:
    """Return the seed of this owner's canaries, None for none. Raises InputError.

    Only where one record's gradient is what clipping bounds: an owner's clipped update with a
    canary on top would be longer than its bound.
    """
    seed = context.node_config.get(canary.SEED)
    if seed is None:
        return None
    consent.check(context.node_config, {consent.CANARIES: "this node has a canary-seed"})
    simple = config.training.local_steps == 1 and config.training.clipping
    simple = simple and config.privacy.sensitivity == "global"
    if config.privacy.unit != "record" or config.privacy.noise == "pac" or not simple:
        raise InputError(
            "this node's config has a canary-seed, but canaries stand for single clipped records: "
            "they need privacy.unit 'record', clipping, isotropic noise of global sensitivity and "
            "no local steps; drop it"
        )
    return int(seed)


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
        request.question.record if request.role == Role.CHALLENGED else None,
        request.question.replacement,
        request.role == Role.ADVERSARY,
    )


def _participation(config: Config, known: Federation, request: Request) -> torch.Tensor | None:
    """Return which records of D take part in this round, bool [T, n]; None if all do."""
    coins = participation(
        config.noise_seed,
        config.trials.leaves(request.trial_numbers),
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


def _challenge(
    config: Config, known: Federation, request: Request, parameters: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the challenge adds to the sum under D and under D', float64 [T, P] both."""
    return challenge_contributions(config, known, parameters, request.question)


def _measurement(
    config: Config,
    known: Federation,
    request: Request,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Return what an owner tells the auditor of an instrumented run."""
    measured = {}
    roles = (request.role == role for role in (Role.CHALLENGED, Role.ADVERSARY, Role.COLLUDER))
    if noises and vantages.tells_noise(config, *roles):
        (measured["noise"],) = noises
    if request.role != Role.CHALLENGED:
        return measured
    present, absent = _challenge(config, known, request, parameters)
    measured["present"] = present
    if config.privacy.neighbouring is Neighbouring.REPLACE:
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


def _follows_rounds(config: Config) -> bool:
    """Whether the adversary itself keeps a belief from round to round."""
    follows = Vantage.PARTICIPANT in vantages.measured(config)
    return follows and config.audit.mode == "participant"


def _follows_losses(config: Config, context: Context) -> bool:
    """Whether an attack wants the challenge's losses at all global models, and may have them."""
    wanted = "trajectory" in membership_attacks.needed(config.audit.attacks)
    return wanted and not consent.protects(context.node_config)


def _attack_losses(
    message: Message, context: Context, config: Config, known: Federation, request: Request
) -> dict[str, npt.NDArray[Any]]:
    """Return what attacks on the final model find, which sees losses of records as they are."""
    trials, model = request.trial_numbers, _model(message, known)
    attack = adversary.infer_membership(
        known,
        _in_question(config, known, request),
        model,
        losses=bool(membership_attacks.chosen(config.audit.attacks)),
    )
    if _follows_losses(config, context):
        watched = _watch_losses(context, config, known, request, model)
        if watched is not None:
            attack[adversary.LOSS_TRAJECTORY] = watched
    if (scores := poison_scores(config, known, trials, model)) is not None:
        attack[adversary.POISON_SCORES] = scores
    return attack


def _in_question(config: Config, known: Federation, request: Request) -> npt.NDArray[np.intp]:
    """Return the positions in D of what is in question: one record, or all of an owner's."""
    if config.privacy.unit == "client":
        return known.owned_by(request.challenged)
    return np.asarray([request.record])


def _watch_losses(
    context: Context,
    config: Config,
    known: Federation,
    request: Request,
    parameters: torch.Tensor,
) -> npt.NDArray[np.float64] | None:
    """Remember the challenge's loss at a model that was received; return all so far, [T, i].

    None where those of earlier rounds were lost: the transcript is then without them.
    """
    before = node_memory.recall(context, LOSSES).get("losses") if request.round > 1 else None
    seen = 0 if before is None else before.shape[1]
    if seen != request.round - 1:
        return None
    column = adversary.challenge_loss(known, _in_question(config, known, request), parameters)
    losses = column[:, None] if before is None else np.concatenate([before, column[:, None]], 1)
    node_memory.remember(context, LOSSES, {"losses": losses})
    return losses


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
    arrays = node_memory.recall(context, MEMORY)
    last = int(arrays.pop(PROGRESS)) if arrays else None
    if last != request.round - 1:
        raise RuntimeError(
            f"the adversary's state is of round {last}, but the message is of round "
            f"{request.round}: its Flower state was lost between rounds"
        )
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
        awaiting = {"model": parameters.cpu().numpy(), "message": sent.cpu().numpy()}
        node_memory.remember(context, AWAITING, awaiting)
    else:
        memory = adversary.expect(
            memory,
            config,
            known,
            messages.partition(context),
            request.question,
            parameters,
            sent,
            taking_part,
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
    own, before = messages.partition(context), replace(request, round=request.round - 1)
    awaiting = node_memory.recall(context, AWAITING)
    owners = messages.participants(message.content)
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
        before.question,
        torch.from_numpy(awaiting["model"]).to(known.device),
        contribution,
        _participation(config, known, before),
        set(range(config.federation.owners)) - set(owners),
        len(set(owners) - {own}) - len(confided),
    )


def _remember(context: Context, memory: adversary.Memory, round: int) -> None:
    node_memory.remember(context, MEMORY, {**memory.to_arrays(), PROGRESS: np.asarray(round)})


def _model(message: Message, known: Federation) -> torch.Tensor:
    return _array(message, messages.MODEL, known)


def _array(message: Message, name: str, known: Federation) -> torch.Tensor:
    return torch.tensor(messages.only(message.content.array_records[name])).to(known.device)
