"""Who takes part in a round: the coins of records, or of clients where privacy is a client's."""

from functools import lru_cache

import numpy as np
import torch

from fedsim.config import Config
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import joining
from fedsim.game.round_game import RoundGame
from fedsim.learning.training import sampling

_clients = lru_cache(maxsize=4)(sampling.clients)


def coins(config: Config, known: Federation, game: RoundGame, step: int = 1) -> torch.Tensor | None:
    """Return which records of D, or which clients, take part in a step of a round.

    Args:
        config: the experiment.
        known: the federation, whose device the answer is on.
        game: the round, its trials and the target.
        step: of the local steps within the round, counts from 1.

    Returns:
        bool [T, n], or [T, m] of clients; None if all do.
    """
    streams, rate = config.trials.streams(game.trials), config.sampling_rate
    there = joining.joined(config, game.round)
    if config.privacy.unit == "client" and there is not None:
        return torch.from_numpy(np.tile(there, (len(streams), 1))).to(known.device)
    if config.privacy.unit == "client":
        clients, target = config.federation.clients, game.target_client
        # Every client that one process plays asks for the same coins.
        draw = sampling.clients if config.noise_seed is None else _clients
        drawn = draw(config.noise_seed, tuple(streams), game.round, clients, rate, target)
    else:
        records = len(known.client_of)
        number = step_number(config, game.round, step)
        drawn = sampling.participation(config.noise_seed, streams, number, records, rate)
        if there is not None:
            # A record takes part by its own coin, where its client joined.
            everyone = np.ones((len(streams), records), dtype=np.bool_)
            drawn = there[known.client_of] & (everyone if drawn is None else drawn)
    return None if drawn is None else torch.from_numpy(drawn).to(known.device)


def step_number(config: Config, round: int, step: int) -> int:
    """Return the round number in the seed tree of a local step, for its noise and its coins.

    Args:
        config: the experiment.
        round: counts from 1.
        step: within the round, counts from 1.
    """
    return (round - 1) * config.training.local_steps + step
