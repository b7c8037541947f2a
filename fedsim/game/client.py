"""A client's computations: its clipped sums, its noise, and the target's part in them."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from fedsim.common.randomness import gaussian_noise
from fedsim.configuration import Config
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.learning.training.schedules import factor


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
    if not knowledge.config.canaries.count:
        return own
    from fedsim.game import one_run  # noqa: PLC0415  (only for canaries)

    return own + one_run.planted(knowledge, {client})


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
        from fedsim.game import pair  # noqa: PLC0415  (only for the target's client)

        return pair.sum_in_worlds(
            federation, clipped_sum, parameters, positions, weights, record, replacement, worlds
        )
    return clipped_sum(parameters, features, labels, weights, contents=contents)


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
