"""A client's computations: its clipped sums, its noise, and the target's part in them."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedsim.common.randomness import gaussian_noise
from fedsim.configuration import Config
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.learning.training.schedules import factor
from fedsim.privacy.mechanism import aggregate_noise_multiplier


def _canaries(knowledge: KnownRound, clients: Collection[int]) -> Tensor | None:
    """Return what the canaries of some clients add to a sum; None without canaries."""
    if not knowledge.config.canaries.count:
        return None
    from fedsim.game import one_run  # noqa: PLC0415  (only for canaries)

    trials = knowledge.game.trials
    return one_run.planted(
        knowledge.config, knowledge.federation, clients, knowledge.parameters, trials
    )


def contribution(knowledge: KnownRound, client: int, worlds: Tensor | None = None) -> Tensor:
    """Return a client's part of a sum, float64 [T, P], in the target client's worlds [T].

    A part is NaN where a gradient is not finite. The caller checks it once it is on the host,
    because each check makes the CPU wait for a GPU.
    """
    if knowledge.config.privacy.unit == "client":
        from fedsim.game import local_training  # noqa: PLC0415  (only for whole clients)

        own = local_training.contribution(knowledge, client, worlds)
    else:
        target = knowledge.game.record, knowledge.game.replacement
        own = clean_sum(
            knowledge.federation,
            client,
            knowledge.parameters,
            *target,
            worlds,
            knowledge.participation,
            checked=False,
        )
    added = _canaries(knowledge, {client})
    return own if added is None else own + added


def challenge_contributions(knowledge: KnownRound) -> tuple[Tensor, Tensor]:
    """Return the target's part of the sum under D and under D': float64 [T, P], twice."""
    game, config = knowledge.game, knowledge.config
    if game.target_client not in config.participation.participants(game.round):
        nothing = torch.zeros_like(knowledge.parameters, dtype=torch.float64)
        return nothing, nothing.clone()
    if config.privacy.unit == "client":
        from fedsim.game import local_training  # noqa: PLC0415  (only for whole clients)

        return local_training.challenge_contributions(knowledge)
    return challenge_gradients(
        knowledge.federation, knowledge.parameters, game.the_record, game.replacement
    )


def common_part(knowledge: KnownRound, clients: Collection[int]) -> Tensor:
    """Return what some clients, without the target, add to a sum, float64 [T, P]."""
    federation, game = knowledge.federation, knowledge.game
    if knowledge.config.privacy.unit == "client":
        from fedsim.game import local_training  # noqa: PLC0415  (only for whole clients)

        common = local_training.total(knowledge, set(clients) - {game.target_client})
    else:
        inside = np.isin(federation.client_of, sorted(clients))
        inside[game.the_record] = False
        positions = np.flatnonzero(inside)
        common = federation.clipped_sum(knowledge.parameters, positions, knowledge.participation)
    added = _canaries(knowledge, clients)
    return common if added is None else common + added


def clean_sum(
    federation: Federation,
    client: int,
    parameters: Tensor,
    record: int | None = None,
    replacement: int | None = None,
    worlds: Tensor | None = None,
    participation: Tensor | None = None,
    checked: bool = True,
) -> Tensor:
    """Return a client's sum of clipped gradients, float64 [T, P].

    record: position of the target in D, if the client has it: it counts as often as D has it.
    replacement: position in the pool of its replacement in D', None for nothing.
    worlds: bool [T]; where False, the record is left out or replaced.
    participation: bool [T, n] of D; the replacement takes part where the record does.
    checked: False if the caller checks the sum, which is NaN if a gradient is not finite.
    """
    sampled = participation is not None
    clipped_sum = partial(federation.clipper.clipped_sum, checked=checked, sampled=sampled)
    positions = federation.owned_by(client)
    contents = federation.contents_of(client)
    features, labels = federation.members(positions)
    weights = None if participation is None else participation[:, positions].to(parameters)
    if record is not None and worlds is not None:
        if weights is None:
            weights = torch.ones(len(parameters), len(positions), device=parameters.device)
        (column,) = np.flatnonzero(positions == record)
        # A crafted gradient replaces the record's, as often as the record takes part.
        if federation.direction is not None:
            taking_part = weights[:, column, None].double()
            weights[:, column] = 0
            total = clipped_sum(parameters, features, labels, weights, contents=contents)
            present, absent = challenge_gradients(federation, parameters, record, replacement)
            return total + taking_part * torch.where(worlds[:, None], present, absent)
        # The record counts in world D, and the replacement, in one more column, in world D'.
        taking_part = weights[:, column].clone()
        weights[:, column] = taking_part * worlds
        features, labels = _and_replacement(federation, features, labels, replacement)
        if replacement is not None:
            weights = torch.cat([weights, (taking_part * ~worlds)[:, None]], dim=1)
            contents = None
    return clipped_sum(parameters, features, labels, weights, contents=contents)


def _and_replacement(
    federation: Federation, features: Tensor, labels: Tensor, replacement: int | None
) -> tuple[Tensor, Tensor]:
    if replacement is None:
        return features, labels
    others = federation.pool([replacement])
    return torch.cat([features, others[0]]), torch.cat([labels, others[1]])


def challenge_gradients(
    federation: Federation, parameters: Tensor, record: int, replacement: int | None
) -> tuple[Tensor, Tensor]:
    """Return the clipped gradients of the target and of its replacement in D', float64 [T, P] each.

    A crafted vector has length C, and is opposed where it is replaced; without a replacement the
    second is zero.
    """
    if federation.direction is not None:
        assert federation.crafted is not None
        vector = federation.clipper.clipping_norm * federation.direction
        present = vector.expand(parameters.shape)
        return present, -present if federation.crafted.opposed else torch.zeros_like(present)
    records = federation.members(np.asarray([record]))
    features, labels = _and_replacement(federation, *records, replacement)
    gradients = federation.clipper.clipped_gradients(parameters, features, labels)
    present = gradients[:, 0]
    return present, torch.zeros_like(present) if replacement is None else gradients[:, 1]


def noise(
    seed: int | None, trials: Sequence[int], round: int, partition: int, std: Tensor, size: int
) -> Tensor:
    """Return N(0, std^2 I), independent for every trial.

    seed: seed of the run; None draws from the operating system's entropy.
    round: round of the seed tree, from `Participation.step_number`.
    partition: source of the noise: a client, or `SERVER`.
    std: [T], on any device.
    Returns: float64 [T, P], on the device of `std`.
    """
    standard = torch.from_numpy(gaussian_noise(seed, trials, round, partition, size))
    return standard.to(std.device) * std[:, None]


def noise_std(config: Config, nominal: float, difference: Tensor, round: int) -> Tensor:
    """Return sigma of a round's noise [T]; difference: of the worlds' sums [T, P]."""
    trust, present = config.federation.trust, config.participation.participants(round)
    sources = 1 if trust.model.server_draws else len(present)
    multiplier = aggregate_noise_multiplier(
        nominal, trust, config.participation.expected_clients, sources
    )
    if not sources:  # without clients there is no noise
        multiplier = 0.0
    if config.privacy.sensitivity == "local":
        return multiplier * difference.norm(dim=-1) / config.training.sampling_rate
    from fedsim.game.mechanisms import fixed_point  # noqa: PLC0415  (no client asks)

    bound = fixed_point.sensitivity(config, nominal, difference.shape[1])
    return torch.full_like(difference[:, 0], multiplier * bound)


def local_steps(
    clean: Callable[[Tensor, int], Tensor],
    parameters: Tensor,
    steps: int,
    step_size: float,
    noise: Callable[[int], Tensor] | None = None,
) -> Tensor:
    """Return R = r_1 + ... + r_L, which a client sends after L steps of its own.

    r_l = clean(theta_{l-1}, l) + noise(l), theta_l = theta_{l-1} - step_size r_l.

    clean: maps models [T, P] and the step to clipped sums, float64 [T, P], which are overwritten.
    noise: of step l, from 1, [T, P]. None: the replay without noise of the adversary.
    """

    def release(model: Tensor, step: int) -> Tensor:
        total = clean(model, step)
        return total if noise is None else total.add_(noise(step))

    model, released = parameters, release(parameters, 1)
    total = released
    for step in range(2, steps + 1):
        model = (model.double() - step_size * released).float()
        released = release(model, step)
        total = total + released
    return total


def local_step_size(config: Config, round: int) -> float:
    """Return a clipped sum's factor in a client's step: eta_local m / (q n), as in FedAvg."""
    training = config.training
    return (
        training.local_rate
        * factor(training, round)
        * config.federation.clients
        / config.participation.divisor
    )
