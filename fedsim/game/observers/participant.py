"""The participant: an ordinary client that also keeps a posterior belief about the challenge.

It knows D, D', the mechanism, theta_0 and other records' coins. No function here takes a world, the
target record's coin or another client's noise.
"""

import math
from collections.abc import Collection
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.attacks import membership
from adversaries.attacks.posterior import log_likelihood_ratio
from adversaries.attacks.residuals import Residual, nothing, residual
from fedsim.common.device import to_host
from fedsim.configuration import Config
from fedsim.game.client import clean_sum, local_step_size, local_steps
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound, coins_of
from fedsim.game.mechanisms import fixed_point
from fedsim.game.observers.memory import HISTORY, POPULATION, POPULATION_LOSSES, Memory
from fedsim.game.observers.question import Question
from fedsim.game.pair import challenge_contributions, common_part
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import Neighbouring, aggregate_noise_multiplier
from fedsim.privacy.trust import Vantage


def expect(
    memory: Memory,
    knowledge: KnownRound,
    adversary: int,
    own_message: Tensor,
    missing: Collection[int] = (),
    unknown_shares: int | None = None,
) -> Memory:
    """Return the memory with two hypotheses about the aggregate that answers this round's model.

    own_message: [T, P], the adversary's own with its noise, plus colluders' noise.
    missing: clients that are known to be missing; without the target's client, the worlds are
    equal.
    unknown_shares: number of clients whose noise is unknown; None: all others that join the round.
    """
    config, game, parameters = knowledge.config, knowledge.game, knowledge.parameters
    bound = fixed_point.sensitivity(config, game.noise_multiplier, parameters.shape[1])
    multiplier = _unknown_multiplier(config, game, adversary, unknown_shares)
    if config.training.local_steps > 1:
        known, difference = _replay(knowledge, adversary)
        std = parameters.new_tensor(multiplier * bound, dtype=torch.float64)
        question = of_local_steps(config, known + own_message, difference, std)
        return replace(memory, pending=question.hypotheses, known=None, batch=None)
    # The part of the aggregate that both worlds share, and the target's part in each.
    known = common_part(knowledge, set(range(config.federation.clients)) - {adversary, *missing})
    known += own_message
    present, absent = challenge_contributions(knowledge)
    if game.target_client in missing:
        present, absent = torch.zeros_like(present), torch.zeros_like(absent)
    question = Question(
        known,
        present,
        absent if config.privacy.neighbouring is Neighbouring.REPLACE else None,
        multiplier * _scale(config.privacy.sensitivity, bound, present, absent),
        config.participation.rate,
    )
    # With x^' where it surely takes part: the residual then differs by g - g' alone.
    common = known if config.participation.secret else known + absent
    batch = _batch(config.privacy.unit, game, knowledge.participation)
    return replace(memory, pending=question.hypotheses, known=common.float(), batch=batch)


def _unknown_multiplier(
    config: Config, game: RoundGame, adversary: int, unknown_shares: int | None
) -> float:
    """Return sigma of the noise that the adversary does not know, over the sensitivity."""
    trust, participation = config.federation.trust, config.participation
    if unknown_shares is None:
        present = participation.participants(game.round)
        unknown_shares = len(
            trust.model.unknown_noise(Vantage.PARTICIPANT, present, game.target_client, adversary)
        )
    if not (unknown_shares or trust.model.server_draws):
        return 0.0  # no other client joins: the only noise is the adversary's own
    return aggregate_noise_multiplier(
        game.noise_multiplier, trust, participation.expected_clients, unknown_shares
    )


def of_local_steps(
    config: Config, common: Tensor, difference: Tensor, step_std: Tensor
) -> Question:
    """Return the question about a sum over local steps whose path was replayed.

    common: [T, P], the sum under D'.
    difference: [T, P], expected part of D, all steps together.
    step_std: standard deviation of each step's noise.
    """
    steps, rate = config.training.local_steps, config.participation.rate
    # The steps' noises are independent, so their variances add up.
    noise_std = step_std * math.sqrt(steps)
    if rate == 1:
        return Question(common, difference, None, noise_std)
    # The expected difference holds rate * steps draws: divide for the gradient of one.
    return Question(common, difference / (rate * steps), None, noise_std, rate, steps)


def _scale(sensitivity: str, bound: float, present: Tensor, absent: Tensor) -> Tensor:
    """Return the scale of the noise, float64 [T]: the bound, or the distance of the worlds."""
    if sensitivity == "local":
        return (present - absent).norm(dim=-1)
    return torch.full(present.shape[:1], bound, dtype=torch.float64, device=present.device)


def _batch(unit: str, game: RoundGame, taking_part: Tensor | None) -> Tensor | None:
    if taking_part is None or unit == "client":  # all trials share the coins of clients
        return None
    # The adversary must not use the target record's own coin.
    others = taking_part.sum(dim=1) - taking_part[:, game.the_record].long()
    return others.double()


def replay_target(knowledge: KnownRound) -> tuple[Tensor, Tensor]:
    """Return the target client's sum without noise under D and D', float64 [T, P], twice."""
    federation, game, parameters = knowledge.federation, knowledge.game, knowledge.parameters
    record, replacement, trials = game.record, game.replacement, len(parameters)
    # Both worlds in one pass, along the axis of the trials.
    worlds = torch.arange(2 * trials, device=parameters.device) < trials

    def clean(theta: Tensor, step: int) -> Tensor:
        coins = coins_of(knowledge.config, federation, game, step)
        if coins is not None:
            coins = coins.to(theta)
            # The adversary does not know the target's coin, so its gradient has the coin's mean.
            coins[:, game.the_record] = knowledge.config.participation.rate
            coins = coins.repeat(2, 1)
        client = game.target_client
        return clean_sum(federation, client, theta, record, replacement, worlds, coins)

    both = local_steps(
        clean,
        parameters.repeat(2, 1),
        knowledge.config.training.local_steps,
        local_step_size(knowledge.config, game.round),
    )
    return both[:trials], both[trials:]


def _replay(knowledge: KnownRound, adversary: int) -> tuple[Tensor, Tensor]:
    """Return other clients' sums without noise, [T, P]: under D', and the difference D - D'."""
    config, game, parameters = knowledge.config, knowledge.game, knowledge.parameters
    steps, step_size = config.training.local_steps, local_step_size(config, game.round)
    present, absent = replay_target(knowledge)
    common = absent.clone()
    for client in sorted(set(range(config.federation.clients)) - {adversary, game.target_client}):

        def sum_of(theta: Tensor, step: int, client: int = client) -> Tensor:
            coins = coins_of(knowledge.config, knowledge.federation, game, step)
            return clean_sum(knowledge.federation, client, theta, participation=coins)

        common += local_steps(sum_of, parameters, steps, step_size)
    return common, present - absent


def observe(memory: Memory, aggregate: Tensor) -> Memory:
    """Return the memory after the aggregate [T, P] of the previous round."""
    pending = memory.pending
    if pending is None:
        raise RuntimeError("an aggregate arrived for a round whose start the adversary did not see")
    left, past = nothing(len(aggregate)), None
    batch = pending.noise_std.new_zeros(len(aggregate)) if memory.batch is None else memory.batch
    if memory.known is not None:
        past = torch.zeros_like(memory.known) if memory.past is None else memory.past
        left, past = residual(pending, memory.known, past, aggregate)
    columns = {
        "ratios": log_likelihood_ratio(pending, aggregate),
        "sensitivities": pending.sensitivity,
        "noise_stds": pending.noise_std,
        "present_norms": pending.present_norm,
        "absent_norms": pending.absent_norm,
        "batch_sizes": batch,
        **{f"residual_{field.name}": getattr(left, field.name) for field in fields(Residual)},
    }
    latest = to_host({name: columns[name] for name in HISTORY})
    history = {
        name: torch.cat([getattr(memory, name), torch.from_numpy(latest[name])[:, None]], dim=1)
        for name in HISTORY
    }
    return Memory(pending=None, known=None, past=past, batch=None, **history)


def infer_membership(
    federation: Federation,
    target_records: npt.NDArray[np.intp],
    parameters: Tensor,
    losses: bool = False,
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the results of a membership attack by the final models' losses, for comparison.

    target_records: positions in D.
    parameters: float32 [T, P], the final models.
    losses: whether to return losses for attacks with shadow models: the target's mean [T], and [T,
    h] of some non-members.
    Returns: by name (`MEMBERSHIP`) and trial. Source: Yeom et al.
    """
    # Only the records of both worlds are surely members.
    certain = np.delete(np.arange(len(federation.client_of)), target_records)
    members, _ = federation.evaluate(parameters, *federation.members(certain))
    non_members, _ = federation.evaluate(parameters, *federation.held_out())
    target, _ = federation.evaluate(parameters, *federation.members(target_records))
    true_positives, false_positives = membership.yeom(members, non_members)
    results: dict[str, npt.NDArray[np.generic]] = {
        "true-positive-rate": true_positives,
        "false-positive-rate": false_positives,
        "challenge-is-member": membership.yeom_challenge(target.mean(1), members),
    }
    if losses:
        results["challenge-loss"] = target.mean(1).cpu().numpy()
        results[POPULATION_LOSSES] = non_members[:, :POPULATION].cpu().numpy()
    return results
