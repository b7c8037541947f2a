"""What a client's node does with a message; one of the clients is the adversary.

A handler is a function of its message, the run config, its node's own config and, for the
adversary, of what it remembers. Nothing is kept in module globals but caches of pure functions.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from adversaries.errors import InputError
from fedsim.common.randomness import Role as SeedRole
from fedsim.common.randomness import generator
from fedsim.config import from_run_config
from fedsim.config.federation import OWN
from fedsim.federation.client import admission
from fedsim.federation.client.inputs import Received
from fedsim.federation.client.preparation import configured, known_to, prepared
from fedsim.federation.protocol import consent, messages
from fedsim.federation.protocol.messages import Role
from fedsim.game import federation
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
from fedsim.game.known_round import KnownRound, coins_of
from fedsim.game.mechanisms import summing, vantages
from fedsim.game.mechanisms.fixed_point import FixedPoint
from fedsim.game.observers import at_server
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.privacy.noise.mechanism import Bools

if TYPE_CHECKING:
    from fedsim.game.canary import Canaries


def data_digest(message: Message, context: Context) -> Message:
    """Return the digest of this client's data, which the server asks for before the first round.

    Of the records themselves where there is nothing to protect: no noise would hide what it says.
    """
    partition, config = messages.partition(context), configured(context)
    answer = messages.reply(message, partition)
    # Of its own records a client has the schema in common with others, and nothing else.
    records = config.data.name == OWN or not consent.protects(context.node_config)
    known_to(config, partition)
    digest = federation.digest(config, partition, records)
    answer.content[messages.DATA] = ConfigRecord({"sha256": digest, "records": records})
    return answer


def local_sensitivity(message: Message, context: Context) -> Message:
    """Return the local sensitivity of the challenge: an instrument, not part of a DP release.

    Returns: a reply with |g - g'|, float64 [T].
    Raises RefusedError if the node's owner did not agree to it.
    """
    received = prepared(message, context)
    why = "the norm of one record's gradient is asked for, which no noise protects"
    consent.check(context.node_config, dict.fromkeys(consent.UNPROTECTED, why))
    present, absent = challenge_contributions(_known_round(received, received.model))
    norms = (present - absent).norm(dim=-1).cpu().numpy()
    answer = {messages.SENSITIVITY: messages.array_record(norms=norms)}
    return messages.reply(message, received.partition, answer, round=received.request.round)


def train(message: Message, context: Context) -> Message:
    """Return what this client adds to the sum, with its noise unless trust is central.

    With local steps it is the sum over the steps that the client took on its own copy of the model.
    Under distributed trust it is integers modulo 2^32, for secure aggregation.

    message: with the model, and what else the client is told in its role.
    Returns: a reply with the sum float32 or uint32 [T, P], or [T, m, P] of candidates; beside it
    what the auditor or the adversary is given. Without any where the adversary is shown a round
    that it does not join.
    Raises RefusedError if the node's owner did not agree to it, or the run does not plan it.
    Raises RuntimeError if the client drops out of this round, by chance.
    """
    start = time.perf_counter()
    # What is asked, and whether the client's terms allow it.
    received = prepared(message, context)
    config, request, partition = received.config, received.request, received.partition
    _may_drop_out(received)
    parameters = received.model
    if partition not in config.participation.participants(request.round):
        return _looked_on(received, parameters, start)
    # Draw the coins of each local step once: a seed must not be reused.
    coins = [
        coins_of(config.game, received.known, request.game, step)
        for step in range(1, config.training.local_steps + 1)
    ]
    disclosing = at_server.seat(config.audit.mode).reads_noise or request.role == Role.COLLUDER
    grid = summing.grid(config.scheme, request.noise_multiplier, parameters.shape[1])
    noises: list[torch.Tensor] = []
    masks = _candidate_masks(received)

    def own_noise(step: int) -> torch.Tensor:
        drawn = _noise(received, step, parameters.shape[1], grid)
        if disclosing:
            noises.append(drawn)
        return drawn

    contributed = _contribution(received, coins, masks, grid)
    # From here on the request counts as answered, whatever happens.
    admission.enter(received)
    admission.keep_model(received, parameters)
    # A step without noise under central trust; else one noisy step, or several.
    drawing = None if config.federation.trust.model.server_draws else own_noise
    size, steps = local_step_size(config.scheme, request.round), config.training.local_steps
    reply, sent = _encoded(local_steps(contributed, parameters, steps, size, drawing), grid)
    content = {messages.REPLY: messages.array_record(sum=reply)}
    content |= disclosed(received, parameters, coins[0], noises, masks)
    if request.role == Role.ADVERSARY:
        from fedsim.federation.client import adversary_node  # noqa: PLC0415  (its part alone)

        adversary_node.follow(received, parameters, sent, coins[0])
    content |= distances(received, parameters)
    seconds = _seconds(context, start)
    return messages.reply(message, partition, content, seconds=seconds, round=request.round)


def _looked_on(received: Received, parameters: torch.Tensor, start: float) -> Message:
    """Return the reply to a round that this client is shown, as the adversary, and does not join.

    parameters: [T, P], of the message; start: of the clock.
    """
    request = received.request
    if request.role == Role.ADVERSARY:
        from fedsim.federation.client import adversary_node  # noqa: PLC0415  (its part alone)

        sent = torch.zeros_like(parameters, dtype=torch.float64)
        coins = coins_of(received.config.game, received.known, request.game)
        adversary_node.follow(received, parameters, sent, coins)
    seconds = _seconds(received.context, start)
    return messages.reply(
        received.message, received.partition, seconds=seconds, round=request.round
    )


def _seconds(context: Context, start: float) -> float:
    """Return how long an answer took, by the clock; 0 where that would tell of protected records.

    It grows with their number.
    """
    return 0.0 if consent.protects(context.node_config) else time.perf_counter() - start


def _noise(received: Received, step: int, size: int, grid: FixedPoint | None) -> torch.Tensor:
    """Return the client's noise of one local step, float64 [T, P], rounded to the grid if any."""
    config, request = received.config, received.request
    drawn = noise(
        config.noise_seed,
        config.trials.streams(request.trial_numbers),
        config.participation.step_number(request.round, step),
        received.partition,
        _noise_std(received, grid),
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

    Returns: a reply with the seconds that it took.
    """
    start = time.perf_counter()
    received = prepared(message, context)
    if received.request.role == Role.ADVERSARY:
        from fedsim.federation.client import adversary_node  # noqa: PLC0415  (its part alone)

        adversary_node.conclude(received)
    return messages.reply(message, received.partition, seconds=_seconds(context, start))


def findings(message: Message, context: Context) -> Message:
    """Return the adversary's findings to the auditor, who asks after the last round.

    Raises RefusedError if the node's owner did not agree to be the adversary.
    """
    config = from_run_config(context.run_config)
    consent.check(context.node_config, {consent.ADVERSARY: "an adversary's findings are asked for"})
    from fedsim.federation.client import adversary_node  # noqa: PLC0415  (its part alone)

    records = adversary_node.findings(context, config.federation.vantage)
    return messages.reply(message, messages.partition(context), records)


def _may_drop_out(received: Received) -> None:
    """Raise RuntimeError if this client is to fail in this round; the adversary never does.

    One coin for all trials, which share the message.
    """
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
    received: Received,
    coins: Sequence[torch.Tensor | None],
    masks: Bools | None,
    grid: FixedPoint | None,
) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Return what maps a model [T, P] to what this client adds in a step, without its noise.

    With masks it is a sum for each candidate; with a grid it is rounded to it.
    """
    known, request, game = received.known, received.request, received.request.game
    partition = received.partition
    target_client = request.role == Role.TARGET_CLIENT
    told_worlds = target_client and messages.WORLDS in received.message.content
    worlds = received.array(messages.WORLDS) if told_worlds else None
    planted = _planted(received)

    def contributed(model: torch.Tensor, step: int) -> torch.Tensor:
        if masks is not None:
            replacement = game.replacement if target_client else None
            return candidate_sums(known, partition, model, masks, replacement)
        seen = _known_round(received, model, coins[step - 1])
        total = contribution(seen, partition, worlds)
        if planted is not None:
            from fedsim.game.canary import added  # noqa: PLC0415  (for canaries alone)

            total = total + added(planted, known, model, request.trial_numbers, request.round)
        return total if grid is None else grid.nearest(total)

    return contributed


def _known_round(
    received: Received, model: torch.Tensor, coins: torch.Tensor | None = None
) -> KnownRound:
    game = received.request.game
    return KnownRound(received.config.game, received.known, game, model, coins)


def _planted(received: Received) -> "Canaries | None":
    """Return this client's canaries, None for none. Raises InputError.

    Only where one record's gradient is what clipping bounds: a client's clipped update with a
    canary on top would be longer than its bound.
    """
    node, config = received.context.node_config, received.config
    if (seed := node.get(consent.CANARY_SEED)) is None:
        return None
    training, privacy = config.training, config.privacy
    consent.check(node, {consent.CANARIES: "this node has a canary-seed"})
    simple = training.local_steps == 1 and training.clipping
    simple = simple and privacy.sensitivity == "global"
    if privacy.unit != "record" or privacy.noise.mechanism.own_law or not simple:
        raise InputError(
            "this node's config has a canary-seed, but canaries stand for single clipped records: "
            "they need privacy.unit 'record', clipping, isotropic noise of global sensitivity and "
            "no local steps; drop it"
        )
    count = node.get(consent.CANARY_COUNT, 1)
    if type(count) is not int or count < 1:
        raise InputError(
            f"this node's config has {consent.CANARY_COUNT} = {count!r}; give 1 or more"
        )
    from fedsim.game.canary import DIRECTION, TEXT, Canaries  # noqa: PLC0415  (for canaries alone)

    planted = Canaries(int(seed), count, str(node.get(consent.CANARY_KIND, DIRECTION)))
    if planted.kind == TEXT and config.model.task != "next-token":
        raise InputError(
            f'this node\'s config has {consent.CANARY_KIND} = "{TEXT}", which is for a decoder '
            f'(model.task = "next-token"), but model.task is "{config.model.task}"; drop it'
        )
    return planted


def _candidate_masks(received: Received) -> Bools | None:
    """Return which of this client's records each candidate has; None without candidates."""
    config, request = received.config, received.request
    if not config.privacy.noise.mechanism.by_candidate:
        return None
    return candidate_masks(
        config.game,
        received.known,
        received.partition,
        request.game.record if request.role == Role.TARGET_CLIENT else None,
        request.game.replacement,
        request.role == Role.ADVERSARY,
    )


def _noise_std(received: Received, grid: FixedPoint | None) -> torch.Tensor:
    """Return the standard deviation [T] of this client's noise, its share of it on a grid."""
    scheme, request = received.config.scheme, received.request
    if grid is not None:
        std = grid.share_std
    else:
        trust, clients = scheme.federation.trust.model, scheme.participation.expected_clients
        std = request.noise_multiplier * trust.noise_share(clients, 1)
        if scheme.privacy.sensitivity == "local":
            return std * received.array(messages.SENSITIVITY)
        std *= sensitivity(scheme.privacy.neighbouring, scheme.training.clipping_norm)
    return torch.full((request.trials,), std, dtype=torch.float64, device=received.known.device)


def disclosed(
    received: Received,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
    masks: Bools | None,
) -> dict[str, ArrayRecord]:
    """Return the records beside a client's sum: an auditor's measurement, or a colluder's noise.

    parameters: of the model, [T, P].
    taking_part: bool [T, n], of the first step; None where every record takes part.
    noises: of each step, [T, P]; empty where none is disclosed.
    masks: which of the client's records each candidate has; None without candidates.
    """
    known, request = received.known, received.request
    if not at_server.seat(received.config.audit.mode).reads_noise:
        if request.role != Role.COLLUDER or not noises:
            return {}
        (noise_drawn,) = noises
        return {messages.DISCLOSED: messages.array_record(noise=noise_drawn.cpu().numpy())}
    measured = _measurement(received, parameters, taking_part, noises)
    if masks is not None and request.role == Role.TARGET_CLIENT:
        (column,) = (known.owned_by(received.partition) == request.record).nonzero()[0]
        measured["membership"] = torch.from_numpy(masks[:, column])
    if not measured:
        return {}
    arrays = {name: tensor.cpu().numpy() for name, tensor in measured.items()}
    return {messages.MEASUREMENT: messages.array_record(**arrays)}


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
    present, absent = challenge_contributions(_known_round(received, parameters))
    measured["present"] = present
    if config.privacy.neighbouring is Neighbouring.REPLACE:
        measured["absent"] = absent
    if taking_part is not None and config.participation.secret:
        measured["participation"] = taking_part[:, request.game.unit]
    return measured


def distances(received: Received, parameters: torch.Tensor) -> dict[str, ArrayRecord]:
    """Return the record that the Bayesian accountant asks of a client, if it asks anything.

    parameters: of the model, [T, P].
    """
    config, request = received.config, received.request
    evaluated = config.audit.evaluated(request.trial_numbers)
    if not config.audit.bayesian_pairs or not evaluated:
        return {}
    found = gradient_distances(
        config.game,
        config.audit.bayesian_pairs,
        received.known,
        received.partition,
        parameters[:evaluated],
        request.trial_numbers[:evaluated],
        request.round,
    )
    if found is None:
        return {}
    return {messages.DISTANCES: messages.array_record(distances=found.cpu().numpy())}
