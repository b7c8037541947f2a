"""Handlers of the messages to a client's node. One of the clients is the adversary."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from adversaries.errors import InputError
from fedsim.common import device
from fedsim.common.randomness import StreamRole as SeedRole
from fedsim.common.randomness import generator
from fedsim.configuration import from_run_config
from fedsim.configuration.federation import OWN
from fedsim.federation.client import admission, kept_answer
from fedsim.federation.client.admission import Received, admitted
from fedsim.federation.protocol import consent, messages
from fedsim.federation.protocol.messages import Role
from fedsim.game import federation
from fedsim.game.client import contribution, local_step_size, local_steps, noise
from fedsim.game.known_round import KnownRound, coins_of
from fedsim.game.mechanisms import vantages
from fedsim.learning.training import clipped_block
from fedsim.privacy.mechanism import Neighbouring, sensitivity

if TYPE_CHECKING:
    from fedsim.game.canary import Canaries
    from fedsim.game.mechanisms.fixed_point import FixedPoint

LARGEST = float(np.finfo(np.float32).max)
"""Largest number that a message can hold."""


def data_digest(message: Message, context: Context) -> Message:
    """Return the digest of this client's data, with its records only where they are unprotected.

    A message with a run's first request is refused if the run plans more than the client's budget.
    """
    partition = messages.partition(context)
    if messages.REQUEST in message.content:
        received = Received.of(message, context)
        admission.check_plan(received)
        config = received.config
    else:
        config = admission.configured(context)
        admission.known_to(config, partition)
    # Clients with their own records have only the schema in common.
    records = config.data.name == OWN or not consent.protects(context.node_config)
    digest = federation.digest(config, partition, records)
    answer = messages.reply(message, partition)
    answer.content[messages.DATA] = ConfigRecord({"sha256": digest, "records": records})
    return answer


def local_sensitivity(message: Message, context: Context) -> Message:
    """Return the local sensitivity of the challenge, |g - g'|, float64 [T]."""
    received = admitted(message, context)
    why = "the server asks for the norm of one record's gradient, which no noise protects"
    consent.require(context.node_config, dict.fromkeys(consent.UNPROTECTED, why))
    from fedsim.game.pair import challenge_contributions  # noqa: PLC0415  (instruments only)

    present, absent = challenge_contributions(_known_round(received, received.model))
    norms = (present - absent).norm(dim=-1).cpu().numpy()
    answer = {messages.SENSITIVITY: messages.array_record(norms=norms)}
    return messages.reply(message, received.partition, answer, round=received.request.round)


def train(message: Message, context: Context) -> Message:
    """Return this client's part of the sum, with its noise unless trust is central.

    Returns: float32 [T, P]; uint32, modulo 2^32, under distributed trust. No sum where the
    adversary sees a round that it does not join.
    Raises RefusedError if the owner did not agree, or the run does not plan the request.
    Raises RuntimeError if the client drops out of this round by chance.
    """
    received = admitted(message, context)
    request, partition = received.request, received.partition
    _may_drop_out(received)
    parameters = received.model
    content: dict[str, ArrayRecord] = {}
    if partition in received.config.participation.participants(request.round):

        def enter() -> None:
            # From here on the request counts as answered, even if the answer fails.
            admission.enter(received)
            admission.keep_model(received, parameters)

        answer = _computing(received, parameters)
        content = kept_answer.answered(received, messages.REPLY, enter, answer)
    else:
        sent = torch.zeros_like(parameters, dtype=torch.float64)
        coins = coins_of(received.config, received.loaded, request.game)
        _follow(received, parameters, sent, coins)
    return messages.reply(message, partition, content, round=request.round)


def _computing(
    received: Received, parameters: torch.Tensor
) -> Callable[[], dict[str, ArrayRecord]]:
    """Return the function that computes an answer. Whatever can be refused is refused here."""
    config, request = received.config, received.request
    coins = coins_of(config, received.loaded, request.game)
    disclosing = admission.reads_noise(config.audit.mode) or request.role == Role.COLLUDER
    grid = None
    if config.federation.trust.model.summed_securely:
        from fedsim.game.mechanisms import fixed_point  # noqa: PLC0415  (integers only)

        grid = fixed_point.grid(config, request.noise_multiplier, parameters.shape[1])
    noises: list[torch.Tensor] = []

    def own_noise(step: int) -> torch.Tensor:
        drawn = _noise(received, step, parameters.shape[1], grid)
        if disclosing:
            noises.append(drawn)
        return drawn

    contributed = _contribution(received, coins, grid)
    # One step without noise under central trust; else one or more noisy steps.
    drawing = None if config.federation.trust.model.server_draws else own_noise
    size, steps = local_step_size(config, request.round), config.training.local_steps
    bounded = received.loaded.clipper.exact and config.training.clipping

    def answer() -> dict[str, ArrayRecord]:
        total = local_steps(contributed, parameters, steps, size, drawing)
        reply, sent = _encoded(total, grid, bounded)
        content = {messages.REPLY: messages.array_record(sum=reply)}
        if disclosing:
            content |= _disclosed(received, parameters, coins, noises)
        _follow(received, parameters, sent, coins)
        return content

    return answer


def _follow(
    received: Received, parameters: torch.Tensor, sent: torch.Tensor, coins: torch.Tensor | None
) -> None:
    """Let the adversary follow a round in which it knows its own message."""
    if received.request.role == Role.ADVERSARY:
        from fedsim.federation.client import adversary_node  # noqa: PLC0415  (adversary only)

        adversary_node.follow(received, parameters, sent, coins)


def _noise(received: Received, step: int, size: int, grid: "FixedPoint | None") -> torch.Tensor:
    """Return the client's noise of one local step, float64 [T, P], on the grid if there is one."""
    config, request = received.config, received.request
    drawn = noise(
        config.noise_seed,
        request.trial_numbers,
        config.participation.step_number(request.round, step),
        received.partition,
        _noise_std(received, grid),
        size,
    )
    return drawn if grid is None else grid.nearest(drawn)


def _encoded(
    total: torch.Tensor, grid: "FixedPoint | None", bounded: bool
) -> tuple[npt.NDArray[np.generic], torch.Tensor]:
    """Return the sum as it is sent, and as the server will read it.

    bounded: whether clipping with real noise made the sum finite for all records. Then it is cut
    off where float32 ends, because an error would tell the server something about the records.
    Raises FloatingPointError if a gradient is not finite, unless bounded.
    """
    if bounded and grid is None:
        total = total.clamp(-LARGEST, LARGEST)
    sent = total.float() if grid is None else total
    on_host = sent.cpu()
    if not bounded:
        clipped_block.check_finite(on_host)
    if grid is None:
        return on_host.numpy(), sent
    reply = grid.message(on_host.numpy())
    return reply, torch.from_numpy(grid.values(reply)).to(total)


def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and aggregate, from which the adversary alone concludes."""
    received = admitted(message, context)
    if received.request.role == Role.ADVERSARY:
        from fedsim.federation.client import adversary_node  # noqa: PLC0415  (adversary only)

        adversary_node.conclude(received)
    return messages.reply(message, received.partition)


def findings(message: Message, context: Context) -> Message:
    """Return the adversary's findings to the auditor, after the last round, if the owner agreed."""
    config = from_run_config(context.run_config)
    why = "the server asks for an adversary's findings"
    consent.require(context.node_config, {consent.ADVERSARY: why})
    from fedsim.federation.client import adversary_node  # noqa: PLC0415  (adversary only)

    records = adversary_node.findings(context, config.federation.vantage)
    return messages.reply(message, messages.partition(context), records)


def _may_drop_out(received: Received) -> None:
    """Raise RuntimeError if chance makes this client fail in this round, never the adversary."""
    request, rate = received.request, received.config.federation.dropout_rate
    if not rate or request.role == Role.ADVERSARY:
        return
    seed, partition = received.config.run.seed, received.partition
    coin = generator(seed, SeedRole.DROPOUT, round=request.round, partition=partition).random()
    if coin < rate:
        raise RuntimeError(
            f"dropped out of round {request.round} by chance (federation.dropout-rate {rate:g})"
        )


def _contribution(
    received: Received, coins: torch.Tensor | None, grid: "FixedPoint | None"
) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Return the function from a model [T, P] to this client's part of a step, without noise.

    coins: of the first step. Coins are drawn once for each step: a seed must not be reused.
    """
    loaded, request, game = received.loaded, received.request, received.request.game
    partition = received.partition
    target_client = request.role == Role.TARGET_CLIENT
    has_worlds = target_client and messages.WORLDS in received.message.content
    worlds = received.array(messages.WORLDS) if has_worlds else None
    planted = _planted(received)

    def contributed(model: torch.Tensor, step: int) -> torch.Tensor:
        own = coins if step == 1 else coins_of(received.config, loaded, game, step)
        known_round = _known_round(received, model, own)
        total = contribution(known_round, partition, worlds)
        if planted is not None:
            from fedsim.game.canary import added  # noqa: PLC0415  (canaries only)

            total = total + added(planted, loaded, model, request.trial_numbers, request.round)
        return total if grid is None else grid.clean(total)

    return contributed


def _known_round(
    received: Received, model: torch.Tensor, coins: torch.Tensor | None = None
) -> KnownRound:
    game = received.request.game
    return KnownRound(received.config, received.loaded, game, model, coins)


def _planted(received: Received) -> "Canaries | None":
    """Return this client's canaries or None. Raises InputError if the run does not allow them."""
    node, config = received.context.node_config, received.config
    if (seed := node.get(consent.CANARY_SEED)) is None:
        return None
    training, privacy = config.training, config.privacy
    consent.require(node, {consent.CANARIES: "this node has a canary-seed"})
    simple = training.local_steps == 1 and training.clipping
    simple = simple and privacy.sensitivity == "global"
    if privacy.unit != "record" or not simple:
        raise InputError(
            "this node's config has a canary-seed, but canaries stand for single clipped records; "
            "they need privacy.unit 'record', clipping, noise of global sensitivity and "
            "no local steps; remove the canary-seed"
        )
    count = node.get(consent.CANARY_COUNT, 1)
    if type(count) is not int or count < 1:
        raise InputError(
            f"this node's config has {consent.CANARY_COUNT} = {count!r}; give 1 or more"
        )
    from fedsim.game.canary import Canaries  # noqa: PLC0415  (canaries only)

    return Canaries(int(seed), count)


def _noise_std(received: Received, grid: "FixedPoint | None") -> torch.Tensor:
    """Return the standard deviation [T] of this client's noise; on a grid, of its share."""
    config, request = received.config, received.request
    if grid is not None:
        std = grid.share_std
    else:
        trust, clients = config.federation.trust.model, config.participation.expected_clients
        std = request.noise_multiplier * trust.noise_share(clients, 1)
        if config.privacy.sensitivity == "local":
            return std * received.array(messages.SENSITIVITY)
        std *= sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
    return torch.full((request.trials,), std, dtype=torch.float64, device=received.loaded.device)


def _disclosed(
    received: Received,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, ArrayRecord]:
    """Return what a client sends beside its sum: a measurement, or a colluder's noises [T, P]."""
    if not admission.reads_noise(received.config.audit.mode):
        if received.request.role != Role.COLLUDER or not noises:
            return {}
        (noise_drawn,) = noises
        return {messages.DISCLOSED: messages.array_record(noise=noise_drawn.cpu().numpy())}
    measured = _measurement(received, parameters, taking_part, noises)
    if not measured:
        return {}
    return {messages.MEASUREMENT: messages.array_record(**device.to_host(measured))}


def _measurement(
    received: Received,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, torch.Tensor]:
    config, request = received.config, received.request
    measured = {}
    roles = (request.role == role for role in (Role.TARGET_CLIENT, Role.ADVERSARY, Role.COLLUDER))
    if noises and vantages.tells_noise(config.federation, config.audit.vantages, *roles):
        (measured["noise"],) = noises
    if request.role != Role.TARGET_CLIENT:
        return measured
    known = KnownRound(config, received.loaded, request.game, parameters)
    from fedsim.game.pair import challenge_contributions  # noqa: PLC0415  (audits only)

    present, absent = challenge_contributions(known)
    measured["present"] = present
    if config.privacy.neighbouring is Neighbouring.REPLACE:
        measured["absent"] = absent
    if taking_part is not None and config.participation.secret:
        measured["participation"] = taking_part[:, request.game.unit]
    return measured
