"""What a client's node does with a message; one of the clients is the adversary.

A handler is a function of its message, the run config, its node's own config and, for the
adversary, of what it remembers. Nothing is kept in module globals but caches of pure functions.
"""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from adversaries import registry
from adversaries.errors import InputError
from fedsim.client import admission, adversary_node, inputs
from fedsim.client.adversary_node import Received
from fedsim.common import device
from fedsim.common.randomness import Role as SeedRole
from fedsim.common.randomness import generator
from fedsim.config import Config, from_run_config
from fedsim.config.federation import OWN
from fedsim.data import schema as schemas
from fedsim.game import canary, federation, participation
from fedsim.game.canary import Canaries
from fedsim.game.client import (
    candidate_masks,
    candidate_sums,
    challenge_contributions,
    contribution,
    gradient_distances,
    local_step_size,
    local_steps,
    noise,
)
from fedsim.game.federation import Federation
from fedsim.mechanisms import joining, summing, vantages
from fedsim.mechanisms.fixed_point import FixedPoint
from fedsim.noise.mechanism import Bools
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.protocol import consent, messages
from fedsim.protocol.consent import RefusedError
from fedsim.protocol.messages import Request, Role
from fedsim.seats import at_server
from fedsim.training import pretrained

LOG = logging.getLogger(__name__)


def data_digest(message: Message, context: Context) -> Message:
    """Return the digest of this client's data, which the server asks for before the first round.

    Of the records themselves where there is nothing to protect: no noise would hide what it says.

    Args:
        message: as received.
        context: of the node.
    """
    partition, config = messages.partition(context), _config(context)
    answer = messages.reply(message, partition)
    # Of its own records a client has the schema in common with others, and nothing else.
    records = config.data.name == OWN or not consent.protects(context.node_config)
    _known(config, partition)
    digest = federation.digest(config, partition, records)
    answer.content[messages.DATA] = ConfigRecord({"sha256": digest, "records": records})
    return answer


def local_sensitivity(message: Message, context: Context) -> Message:
    """Return the local sensitivity of the challenge: an instrument, not part of a DP release.

    Args:
        message: with the model.
        context: of the node.

    Returns:
        A reply with |g - g'|, float64 [T].

    Raises:
        RefusedError: the node's owner did not agree to it.
    """
    config, known, request = _prepare(message, context)
    why = "the norm of one record's gradient is asked for, which no noise protects"
    consent.check(context.node_config, dict.fromkeys(consent.UNPROTECTED, why))
    present, absent = _challenge(config, known, request, inputs.model(message, known))
    norms = (present - absent).norm(dim=-1).cpu().numpy()
    answer = {messages.SENSITIVITY: messages.array_record(norms=norms)}
    return messages.reply(message, messages.partition(context), answer, round=request.round)


def train(message: Message, context: Context) -> Message:
    """Return what this client adds to the sum, with its noise unless trust is central.

    With local steps it is the sum over the steps that the client took on its own copy of the model.
    Under distributed trust it is integers modulo 2^32, for secure aggregation.

    Args:
        message: with the model, and what else the client is told in its role.
        context: of the node.

    Returns:
        A reply with the sum float32 or uint32 [T, P], or [T, m, P] of candidates; beside it what
        the auditor or the adversary is given. Without any where the adversary is shown a round that
        it does not join.

    Raises:
        RefusedError: the node's owner did not agree to it, or the run does not plan it.
        RuntimeError: the client drops out of this round, by chance.
    """
    start = time.perf_counter()
    # What is asked, and whether the client's terms allow it.
    config, known, request = _prepare(message, context)
    partition = messages.partition(context)
    _may_drop_out(config, request, partition)
    parameters = inputs.model(message, known)
    if partition not in joining.participants(config, request.round):
        return _looked_on(Received(message, context, config, known, request), parameters, start)
    # Of each of its steps; drawn once, since no seed may repeat them.
    coins = [
        participation.coins(config, known, request.game, step)
        for step in range(1, config.training.local_steps + 1)
    ]
    taking_part = coins[0]
    disclosing = at_server.seat(config).reads_noise or request.role == Role.COLLUDER
    grid = summing.grid(config, request.noise_multiplier, parameters.shape[1])
    noises: list[torch.Tensor] = []
    masks = _candidate_masks(config, known, partition, request)

    def own_noise(step: int) -> torch.Tensor:
        std = _noise_std(message, config, known, request, grid)
        drawn = _drawn(config, request, partition, step, std, parameters.shape[1], grid)
        if disclosing:
            noises.append(drawn)
        return drawn

    contributed = _contribution(message, context, config, known, request, coins, masks, grid)
    admission.keep_model(context, config, request, parameters)
    # Whatever happens from here on, it counts as answered.
    admission.enter(context, config, request, known)
    # A step without noise under central trust; else one noisy step, or several.
    total = local_steps(
        contributed,
        parameters,
        config.training.local_steps,
        local_step_size(config, request.round),
        None if config.federation.trust.model.server_draws else own_noise,
    )
    reply, sent = _encoded(total, grid)
    content = {messages.REPLY: messages.array_record(sum=reply)}
    content |= _disclosed(config, known, request, partition, parameters, taking_part, noises, masks)
    if request.role == Role.ADVERSARY:
        received = Received(message, context, config, known, request)
        adversary_node.follow(received, parameters, sent, taking_part)
    if (distances := _distances(config, known, partition, request, parameters)) is not None:
        content[messages.DISTANCES] = messages.array_record(distances=distances.cpu().numpy())
    seconds = time.perf_counter() - start
    return messages.reply(
        message, messages.partition(context), content, seconds=seconds, round=request.round
    )


def _looked_on(received: Received, parameters: torch.Tensor, start: float) -> Message:
    """Return the reply to a round that this client is shown, as the adversary, and does not join.

    received: the message; parameters: [T, P], of it; start: of the clock.
    """
    message, config, request = received.message, received.config, received.request
    if request.role == Role.ADVERSARY:
        sent = torch.zeros_like(parameters, dtype=torch.float64)
        coins = participation.coins(config, received.known, request.game)
        adversary_node.follow(received, parameters, sent, coins)
    partition, seconds = messages.partition(received.context), time.perf_counter() - start
    return messages.reply(message, partition, seconds=seconds, round=request.round)


def _drawn(
    config: Config,
    request: Request,
    partition: int,
    step: int,
    std: torch.Tensor,
    size: int,
    grid: FixedPoint | None,
) -> torch.Tensor:
    """Return the client's noise of one local step, float64 [T, P], rounded to the grid if any."""
    drawn = noise(
        config.noise_seed,
        config.trials.streams(request.trial_numbers),
        participation.step_number(config, request.round, step),
        partition,
        std,
        size,
    )
    return drawn if grid is None else grid.nearest(drawn)


def _encoded(
    total: torch.Tensor, grid: FixedPoint | None
) -> tuple[npt.NDArray[np.generic], torch.Tensor]:
    """Return the sum as it leaves, and the same as the server will add it up."""
    if grid is None:
        sent = total.float()
        return sent.cpu().numpy(), sent
    reply = grid.message(total.cpu().numpy())
    return reply, torch.from_numpy(grid.values(reply)).to(total)


def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and the last aggregate, from which the adversary concludes.

    A client answers with nothing of its data: a loss on its own records, which differential privacy
    did not touch, would be one more release. So the adversary looks at losses of records that it
    knows only where nothing is to be protected.

    Args:
        message: with both.
        context: of the node.

    Returns:
        A reply with the seconds that it took.

    Raises:
        RefusedError: as of `train`.
    """
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    if request.role == Role.ADVERSARY:
        adversary_node.conclude(Received(message, context, config, known, request))
    return messages.reply(message, messages.partition(context), seconds=time.perf_counter() - start)


def findings(message: Message, context: Context) -> Message:
    """Return the adversary's findings to the auditor, who asks after the last round.

    Args:
        message: as received.
        context: of the node, whose state holds them.

    Raises:
        RefusedError: the node's owner did not agree to be the adversary.
    """
    config = from_run_config(context.run_config)
    consent.check(context.node_config, {consent.ADVERSARY: "an adversary's findings are asked for"})
    records = adversary_node.findings(context, config)
    return messages.reply(message, messages.partition(context), records)


def _prepare(message: Message, context: Context) -> tuple[Config, Federation, Request]:
    config = _config(context)
    request = Request.from_content(message.content)
    partition = messages.partition(context)
    consent.check(context.node_config, admission.needed(config, request, partition))
    known = _known(config, partition)
    admission.check(message, context, config, request, known)
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    return config, known, request


def _known(config: Config, partition: int) -> Federation:
    """Return what this client knows of the federation.

    Raises:
        InputError: as of `federation.load`.
        RefusedError: its own records are not as the schema says. Which, and how, is for its own
            log: the server is told what this function raises.
    """
    if config.data.name != OWN or config.run.job != "training":
        return federation.load(config)
    try:
        return federation.load(config, partition)
    except InputError as error:
        LOG.error("this client's records: %s", error)
        raise RefusedError(
            "this client's records are not as data.public-schema says; its own log says where"
        ) from None


def _config(context: Context) -> Config:
    """Return the experiment, with this client's own files if its node's config says where.

    Raises:
        RefusedError: the run's model starts from a file of which this node has no copy, or its
            schema is not the one that this node keeps.
    """
    registry.allow(str(context.node_config.get(consent.CODE, "")).split(","))
    config = from_run_config(context.run_config)
    if path := context.node_config.get(consent.DATA):
        # A client's files are where the client says, and nobody else needs to know.
        config = config.reading_data_from(str(path), as_they_are=True)
    weights = str(context.node_config.get(consent.WEIGHTS, config.model.weights))
    digest = config.model.weights_sha256
    if digest and not pretrained.same(weights, digest):
        raise RefusedError(
            f"this client has no copy of model.weights with SHA-256 {digest}; set "
            f"{consent.WEIGHTS} in its node.toml to where it lies"
        )
    if config.data.name == OWN:
        _check_schema(str(context.node_config.get(consent.SCHEMA, "")), config)
    return config.starting_from(weights if digest else config.model.weights)


def _check_schema(path: str, config: Config) -> None:
    """Raise RefusedError if a run's schema is another than the node's copy; "" is none."""
    if not path:
        return
    try:
        own = schemas.load(path)
    except InputError as error:
        LOG.error("%s: %s", consent.SCHEMA, error)
        raise RefusedError(
            f"this client's {consent.SCHEMA} names no schema; its own log says why"
        ) from None
    if said := schemas.difference(own, schemas.parse(config.data.public_schema)):
        raise RefusedError(f"data.public-schema is not the schema that this client keeps: {said}")


def _may_drop_out(config: Config, request: Request, partition: int) -> None:
    """Raise RuntimeError if this client is to fail in this round; the adversary never does.

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
    coins: Sequence[torch.Tensor | None],
    masks: Bools | None,
    grid: FixedPoint | None,
) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Return what maps a model [T, P] to what this client adds in a step, without its noise.

    With masks it is a sum for each candidate; with a grid it is rounded to it.
    """
    partition, game = messages.partition(context), request.game
    target_client = request.role == Role.TARGET_CLIENT
    told_worlds = target_client and messages.WORLDS in message.content
    worlds = inputs.array(message, messages.WORLDS, known) if told_worlds else None
    planted = _planted(config, context)

    def contributed(model: torch.Tensor, step: int) -> torch.Tensor:
        if masks is not None:
            there = game.replacement if target_client else None
            return candidate_sums(known, partition, model, masks, there)
        total = contribution(config, known, partition, model, game, worlds, coins[step - 1])
        if planted is not None:
            trials, norm = request.trial_numbers, config.training.clipping_norm
            added = planted.total(trials, request.round, model.shape[1], norm)
            total = total + torch.from_numpy(added).to(total)
        return total if grid is None else grid.nearest(total)

    return contributed


def _planted(config: Config, context: Context) -> Canaries | None:
    """Return this client's canaries, None for none. Raises InputError.

    Only where one record's gradient is what clipping bounds: a client's clipped update with a
    canary on top would be longer than its bound.
    """
    seed = context.node_config.get(canary.SEED)
    if seed is None:
        return None
    consent.check(context.node_config, {consent.CANARIES: "this node has a canary-seed"})
    simple = config.training.local_steps == 1 and config.training.clipping
    simple = simple and config.privacy.sensitivity == "global"
    if config.privacy.unit != "record" or config.privacy.noise.mechanism.own_law or not simple:
        raise InputError(
            "this node's config has a canary-seed, but canaries stand for single clipped records: "
            "they need privacy.unit 'record', clipping, isotropic noise of global sensitivity and "
            "no local steps; drop it"
        )
    count = context.node_config.get(canary.COUNT, 1)
    if type(count) is not int or count < 1:
        raise InputError(f"this node's config has {canary.COUNT} = {count!r}; give 1 or more")
    return Canaries(int(seed), count)


def _candidate_masks(
    config: Config, known: Federation, partition: int, request: Request
) -> Bools | None:
    """Return which of this client's records each candidate has; None without candidates."""
    if not config.privacy.noise.mechanism.by_candidate:
        return None
    return candidate_masks(
        config,
        known,
        partition,
        request.game.record if request.role == Role.TARGET_CLIENT else None,
        request.game.replacement,
        request.role == Role.ADVERSARY,
    )


def _noise_std(
    message: Message,
    config: Config,
    known: Federation,
    request: Request,
    grid: FixedPoint | None,
) -> torch.Tensor:
    """Return the standard deviation [T] of this client's noise, its share of it on a grid."""
    if grid is not None:
        shape = (request.trials,)
        return torch.full(shape, grid.share_std, dtype=torch.float64, device=known.device)
    federation_ = config.federation
    share = federation_.trust.model.noise_share(config.expected_clients, 1)
    own = request.noise_multiplier * share
    if config.privacy.sensitivity == "local":
        return own * inputs.array(message, messages.SENSITIVITY, known)
    bound = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
    return torch.full((request.trials,), own * bound, dtype=torch.float64, device=known.device)


def _challenge(
    config: Config, known: Federation, request: Request, parameters: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the challenge adds to the sum under D and under D', float64 [T, P] both."""
    return challenge_contributions(config, known, parameters, request.game)


def _disclosed(
    config: Config,
    known: Federation,
    request: Request,
    partition: int,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
    masks: Bools | None,
) -> dict[str, ArrayRecord]:
    """Return the records beside its sum: what the auditor is told, or a colluder's noise."""
    if not at_server.seat(config).reads_noise:
        if request.role != Role.COLLUDER or not noises:
            return {}
        (noise_drawn,) = noises
        return {messages.DISCLOSED: messages.array_record(noise=noise_drawn.cpu().numpy())}
    measured = _measurement(config, known, request, parameters, taking_part, noises)
    if masks is not None and request.role == Role.TARGET_CLIENT:
        (column,) = (known.owned_by(partition) == request.record).nonzero()[0]
        measured["membership"] = torch.from_numpy(masks[:, column])
    if not measured:
        return {}
    arrays = {name: tensor.cpu().numpy() for name, tensor in measured.items()}
    return {messages.MEASUREMENT: messages.array_record(**arrays)}


def _measurement(
    config: Config,
    known: Federation,
    request: Request,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Return what a client tells the auditor of an oracle audit."""
    measured = {}
    roles = (request.role == role for role in (Role.TARGET_CLIENT, Role.ADVERSARY, Role.COLLUDER))
    if noises and vantages.tells_noise(config, *roles):
        (measured["noise"],) = noises
    if request.role != Role.TARGET_CLIENT:
        return measured
    present, absent = _challenge(config, known, request, parameters)
    measured["present"] = present
    if config.privacy.neighbouring is Neighbouring.REPLACE:
        measured["absent"] = absent
    if taking_part is not None and config.sampling_rate < 1:
        measured["participation"] = taking_part[:, request.game.unit]
    return measured


def _distances(
    config: Config, known: Federation, partition: int, request: Request, parameters: torch.Tensor
) -> torch.Tensor | None:
    """Return what the Bayesian accountant asks of this client; None where it asks nothing."""
    evaluated = config.audit.evaluated(request.trial_numbers)
    if not config.audit.bayesian_pairs or not evaluated:
        return None
    trials = request.trial_numbers[:evaluated]
    return gradient_distances(
        config, known, partition, parameters[:evaluated], trials, request.round
    )
