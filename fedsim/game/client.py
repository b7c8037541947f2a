"""What a client computes: its clipped sums, its noise, the challenge's part in them."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.common.randomness import gaussian_noise
from fedsim.config.federation import FederationConfig
from fedsim.config.objects import GameRules, Scheme
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.learning.training.schedules import factor
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.noise.mechanism import Bools
from fedsim.privacy.participation.sampling import groups


def _canaries(seen: KnownRound, clients: Collection[int]) -> Tensor | None:
    """Return what the canaries of some clients add to a sum, as of `one_run.planted`."""
    if not seen.rules.canaries.count:
        return None
    from fedsim.game import one_run  # noqa: PLC0415  (for canaries alone)

    trials = seen.game.trials
    return one_run.planted(seen.rules, seen.federation, clients, seen.parameters, trials)


def contribution(seen: KnownRound, client: int, worlds: Tensor | None = None) -> Tensor:
    """Return what a client adds to the sum of a round, by the unit of privacy.

    Its clipped gradients' sum, or its clipped update, and the canaries that are planted at it.

    worlds: bool [T], for the target client only: False where a trial trains on D'.
    Returns: float64 [T, P].
    """
    if seen.rules.scheme.privacy.unit == "client":
        from fedsim.game import client_level  # noqa: PLC0415  (for whole clients alone)

        own = client_level.contribution(seen, client, worlds)
    else:
        target = seen.game.record, seen.game.replacement
        own = clean_sum(
            seen.federation, client, seen.parameters, *target, worlds, seen.participation
        )
    added = _canaries(seen, {client})
    return own if added is None else own + added


def challenge_contributions(seen: KnownRound) -> tuple[Tensor, Tensor]:
    """Return what the challenge adds to the sum under D and under D'.

    A record's clipped gradients, or a client's clipped updates, by the unit of privacy; nothing
    where it is public that the target's client does not join.

    Returns: float64 [T, P], twice.
    """
    game, scheme = seen.game, seen.rules.scheme
    if game.target_client not in scheme.participation.participants(game.round):
        nothing = torch.zeros_like(seen.parameters, dtype=torch.float64)
        return nothing, nothing.clone()
    if scheme.privacy.unit == "client":
        from fedsim.game import client_level  # noqa: PLC0415  (for whole clients alone)

        return client_level.challenge_contributions(seen)
    return challenge_gradients(seen.federation, seen.parameters, game.the_record, game.replacement)


def common_part(seen: KnownRound, clients: Collection[int]) -> Tensor:
    """Return what some clients add to a sum in both worlds, float64 [T, P].

    Of the target client the other records count, where the target is a record; planted canaries
    do.
    """
    federation, game = seen.federation, seen.game
    if seen.rules.scheme.privacy.unit == "client":
        from fedsim.game import client_level  # noqa: PLC0415  (for whole clients alone)

        known = client_level.total(seen, set(clients) - {game.target_client})
    else:
        inside = np.isin(federation.client_of, sorted(clients))
        inside[game.the_record] = False
        positions = np.flatnonzero(inside)
        known = federation.clipped_sum(seen.parameters, positions, seen.participation)
    added = _canaries(seen, clients)
    return known if added is None else known + added


def clean_sum(
    federation: Federation,
    client: int,
    parameters: Tensor,
    record: int | None = None,
    replacement: int | None = None,
    worlds: Tensor | None = None,
    participation: Tensor | None = None,
) -> Tensor:
    """Return a client's sum of clipped gradients.

    The challenge counts as often as D has it, and a crafted vector in its stead.

    parameters: float32 [T, P].
    record: position of the challenge record in D, if the client has it.
    replacement: position in the pool of what D' has in its place, None for nothing.
    worlds: bool [T]; where False, the record is left out, or replaced. None for D.
    participation: bool [T, n], which records of D take part, None for all; the replacement does
    where the record does.
    Returns: float64 [T, P].
    """
    positions = federation.owned_by(client)
    features, labels = federation.members(positions)
    weights = None if participation is None else participation[:, positions].to(parameters)
    if record is not None and worlds is not None:
        if weights is None:
            weights = torch.ones(len(parameters), len(positions), device=parameters.device)
        (column,) = np.flatnonzero(positions == record)
        # A crafted gradient comes in place of the record's, as often as the record takes part.
        if federation.direction is not None:
            there = weights[:, column, None].double()
            weights[:, column] = 0
            total = federation.clipper.clipped_sum(parameters, features, labels, weights)
            present, absent = challenge_gradients(federation, parameters, record, replacement)
            return total + there * torch.where(worlds[:, None], present, absent)
        # The record where the world is D, and the replacement, one column more, where it is D'.
        taking_part = federation.copies * weights[:, column]
        weights[:, column] = taking_part * worlds
        features, labels = _and_replacement(federation, features, labels, replacement)
        if replacement is not None:
            weights = torch.cat([weights, (taking_part * ~worlds)[:, None]], dim=1)
    return federation.clipper.clipped_sum(parameters, features, labels, weights)


def _and_replacement(
    federation: Federation, features: Tensor, labels: Tensor, replacement: int | None
) -> tuple[Tensor, Tensor]:
    if replacement is None:
        return features, labels
    others = federation.pool([replacement])
    return torch.cat([features, others[0]]), torch.cat([labels, others[1]])


def candidate_masks(
    rules: GameRules,
    federation: Federation,
    client: int,
    record: int | None,
    replacement: int | None,
    adversary: bool,
) -> Bools:
    """Return which of a client's records each candidate of the stated prior has.

    record: position of the challenge record in D, None unless the client has it.
    replacement: position in the pool of what D' has in its place, None for nothing.
    adversary: whether the client is the adversary, who would recognise its own records, so that
    every candidate has them.
    Returns: bool [m, n], or [1, n] where all candidates have the same; [m, n + 1] where the client
    of the challenge also has a replacement, the last column.
    """
    from fedsim.privacy.noise.pac_release import halves, pair  # noqa: PLC0415  (PAC noise alone)

    positions = federation.owned_by(client)
    if rules.scheme.privacy.pac_prior == "halves" and not adversary:
        return halves(rules.seed, client, len(positions), rules.candidates)
    if record is None:
        return np.ones((1, len(positions)), dtype=np.bool_)
    (column,) = np.flatnonzero(positions == record)
    return pair(len(positions), int(column), replacement is not None)


def candidate_sums(
    federation: Federation,
    client: int,
    parameters: Tensor,
    masks: Bools,
    replacement: int | None = None,
) -> Tensor:
    """Return a client's sums of clipped gradients under every candidate.

    parameters: float32 [T, P].
    masks: bool [m, n] as of `candidate_masks`, or [m, n + 1] with a replacement.
    replacement: position in the pool of the record of the last column, None for none.
    Returns: float64 [T, m, P].
    """
    records = federation.members(federation.owned_by(client))
    features, labels = _and_replacement(federation, *records, replacement)
    on_device = torch.from_numpy(masks).to(parameters.device)
    return federation.clipper.clipped_sums(parameters, features, labels, on_device)


def challenge_gradients(
    federation: Federation, parameters: Tensor, record: int, replacement: int | None
) -> tuple[Tensor, Tensor]:
    """Return the clipped gradients of the challenge record and of what D' has in its place.

    As often as D has the challenge. A crafted vector is C long, and opposed
    where it is replaced.

    parameters: float32 [T, P].
    replacement: position in the pool, None for nothing.
    Returns: float64 [T, P], twice; the second is zero where D' has nothing in its place.
    Raises AssertionError if a gradient is longer than the clipping norm, on which every statement
    about privacy rests; where clipping is off, that is infinite and no such statement is made.
    """
    if federation.direction is not None:
        assert federation.crafted is not None
        vector = federation.clipper.clipping_norm * federation.direction
        present = (federation.copies * vector).expand(parameters.shape)
        return present, -present if federation.crafted.opposed else torch.zeros_like(present)
    records = federation.members(np.asarray([record]))
    features, labels = _and_replacement(federation, *records, replacement)
    gradients = federation.clipper.clipped_gradients(parameters, features, labels)
    longest, bound = float(gradients.norm(dim=-1).max()), federation.clipper.clipping_norm
    if longest > bound * (1 + 1e-5):
        raise AssertionError(
            f"a clipped gradient has norm {longest}, above {bound}: clipping is broken"
        )
    gradients = federation.copies * gradients
    present = gradients[:, 0]
    return present, torch.zeros_like(present) if replacement is None else gradients[:, 1]


def gradient_distances(
    rules: GameRules,
    bayesian_pairs: int,
    federation: Federation,
    client: int,
    parameters: Tensor,
    trials: range,
    round: int,
) -> Tensor | None:
    """Return what the Bayesian accountant asks of a client in a round.

    How far a record moves the sum, for `audit.bayesian-pairs` random pairs of the client's records
    of D, or as many as are disjoint: |g(x)| where neighbours lack a record, |g(x) - g(x')| where it
    is replaced.

    bayesian_pairs: how many pairs of its records each client compares in a round, in the evaluated
    trials, for the Bayesian accountant.
    parameters: float32 [E, P], the models of the evaluated trials.
    Returns: float64 [E, m]; None where the client has fewer than two records.
    """
    positions = federation.owned_by(client)
    if len(positions) < 2:
        return None
    members = 2 if rules.scheme.privacy.neighbouring is Neighbouring.REPLACE else 1
    drawn = groups(rules.noise_seed, trials, round, client, len(positions), bayesian_pairs, members)
    chosen = torch.from_numpy(drawn).to(parameters.device)
    features, labels = federation.members(positions)
    return federation.clipper.clipped_distances(parameters, features, labels, chosen)


def noise(
    seed: int | None, trials: Sequence[int], round: int, partition: int, std: Tensor, size: int
) -> Tensor:
    """Return N(0, std^2 I), independent for every trial.

    seed: of the run; None draws from the operating system's entropy.
    round: of the seed tree, as of `Participation.step_number`.
    partition: who draws: a client, or `SERVER`.
    std: [T], on any device.
    Returns: float64 [T, P], on the device of `std`.
    """
    standard = torch.from_numpy(gaussian_noise(seed, trials, round, partition, size))
    return standard.to(std.device) * std[:, None]


def noise_sources(federation: FederationConfig) -> Sequence[int]:
    """Return whose noise stands for that of a round, where one place plays all: partitions."""
    return federation.trust.model.played_by(federation.clients)


def local_steps(
    clean: Callable[[Tensor, int], Tensor],
    parameters: Tensor,
    steps: int,
    step_size: float,
    noise: Callable[[int], Tensor] | None = None,
) -> Tensor:
    """Return R = r_1 + ... + r_L: what a client sends after L steps of its own.

    r_l = clean(theta_{l-1}, l) + noise(l), theta_l = theta_{l-1} - step_size r_l.

    clean: maps models [T, P], and the number of the step, to the client's clipped sums, float64 [T,
    P], which are overwritten.
    parameters: theta_0, float32 [T, P].
    noise: of step l, counted from 1, [T, P]; None for the replay without noise that the adversary
    linearises around.
    Returns: float64 [T, P].
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


def local_step_size(scheme: Scheme, round: int) -> float:
    """Return what a client multiplies a clipped sum with to step its own model.

    eta_local m / (q n): the records that one client takes are q n/m of the public n on average,
    and with the server's learning rate the mean of the clients' models is the server's next one.

    Source: FedAvg: McMahan et al., 2017, Algorithm 1.
    """
    training = scheme.training
    return (
        training.local_rate
        * factor(training, round)
        * scheme.federation.clients
        / scheme.participation.divisor
    )
