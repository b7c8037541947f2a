"""What a data owner computes: its clipped sum, its noise, the challenge's part in them."""

import numpy as np
import torch
from torch import Tensor

from fedsim.federation import Federation
from fedsim.randomness import gaussian_noise


def clean_sum(
    federation: Federation,
    owner: int,
    parameters: Tensor,
    record: int | None = None,
    replacement: int | None = None,
    worlds: Tensor | None = None,
) -> Tensor:
    """Return the owner's sum of clipped gradients, float64 [T, P].

    The owner of the challenge record also gets `worlds` bool [T]: where False, `record` (a position
    in D) is left out, or replaced by `replacement` (a position in the pool).
    """
    positions = federation.owned_by(owner)
    features, labels = federation.members(positions)
    if record is None or worlds is None:
        return federation.clipper.clipped_sum(parameters, features, labels)
    present = worlds.to(parameters)
    weights = torch.ones(len(parameters), len(positions), device=parameters.device)
    weights[:, torch.from_numpy(positions == record)] = present[:, None]
    if replacement is not None:
        other_features, other_labels = federation.pool([replacement])
        features, labels = torch.cat([features, other_features]), torch.cat([labels, other_labels])
        weights = torch.cat([weights, 1 - present[:, None]], dim=1)
    return federation.clipper.clipped_sum(parameters, features, labels, weights)


def challenge_gradients(
    federation: Federation, parameters: Tensor, record: int, replacement: int | None
) -> tuple[Tensor, Tensor]:
    """Return the clipped gradients of the challenge record and of what D' has in its place.

    Both float64 [T, P]; the second is zero where D' has nothing in its place.
    """
    features, labels = federation.members(np.asarray([record]))
    if replacement is None:
        present = federation.clipper.clipped_gradients(parameters, features, labels)[:, 0]
        return present, torch.zeros_like(present)
    other_features, other_labels = federation.pool([replacement])
    both = federation.clipper.clipped_gradients(
        parameters, torch.cat([features, other_features]), torch.cat([labels, other_labels])
    )
    return both[:, 0], both[:, 1]


def noise(
    seed: int | None, trials: range, round: int, partition: int, std: Tensor, size: int
) -> Tensor:
    """Return N(0, std^2 I) as float64 [T, size]; std [T] on any device, the noise on the same."""
    standard = torch.from_numpy(gaussian_noise(seed, trials, round, partition, size))
    return standard.to(std.device) * std[:, None]
