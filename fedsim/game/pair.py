"""The target's part in a sum, and what is known beside it: of adversaries and instruments."""

from collections.abc import Callable, Collection

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Ints
from fedsim.configuration import Config
from fedsim.game import local_training, one_run
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms import fixed_point
from fedsim.privacy.mechanism import aggregate_noise_multiplier


def challenge_contributions(knowledge: KnownRound) -> tuple[Tensor, Tensor]:
    """Return the target's part of the sum under D and under D': float64 [T, P], twice."""
    game, config = knowledge.game, knowledge.config
    if game.target_client not in config.participation.participants(game.round):
        nothing = torch.zeros_like(knowledge.parameters, dtype=torch.float64)
        return nothing, nothing.clone()
    if config.privacy.unit == "client":
        return local_training.challenge_contributions(knowledge)
    return challenge_gradients(
        knowledge.federation, knowledge.parameters, game.the_record, game.replacement
    )


def common_part(knowledge: KnownRound, clients: Collection[int]) -> Tensor:
    """Return what some clients, without the target, add to a sum, float64 [T, P]."""
    federation, game = knowledge.federation, knowledge.game
    if knowledge.config.privacy.unit == "client":
        common = local_training.total(knowledge, set(clients) - {game.target_client})
    else:
        inside = np.isin(federation.client_of, sorted(clients))
        inside[game.the_record] = False
        positions = np.flatnonzero(inside)
        common = federation.clipped_sum(knowledge.parameters, positions, knowledge.participation)
    return (
        common + one_run.planted(knowledge, clients) if knowledge.config.canaries.count else common
    )


def sum_in_worlds(
    federation: Federation,
    clipped_sum: Callable[..., Tensor],
    parameters: Tensor,
    positions: Ints,
    weights: Tensor | None,
    record: int,
    replacement: int | None,
    worlds: Tensor,
) -> Tensor:
    """Return the sum of the client that holds the target, in each trial's world, float64 [T, P].

    clipped_sum: of the federation's clipper.
    positions: of the client's records in D, the target's among them.
    weights: float32 [T, n] of these; None for all ones.
    worlds: bool [T]; where False, the record is left out or replaced.
    """
    if weights is None:
        weights = torch.ones(len(parameters), len(positions), device=parameters.device)
    features, labels = federation.members(positions)
    contents = federation.contents(positions)
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
    """Return records with one of the pool behind them; None for none."""
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
    bound = fixed_point.sensitivity(config, nominal, difference.shape[1])
    return torch.full_like(difference[:, 0], multiplier * bound)
