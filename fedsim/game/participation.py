"""The coins of a round as tensors."""

import torch

from fedsim.config.campaign import TrialsConfig
from fedsim.game.federation import Federation
from fedsim.game.round_game import RoundGame
from fedsim.privacy.participation.rule import Participation


def coins(
    rule: Participation, trials: TrialsConfig, known: Federation, game: RoundGame, step: int = 1
) -> torch.Tensor | None:
    """Return which records of D, or which clients, take part in a step of a round.

    step: of the local steps within the round, counts from 1.
    Returns: bool [T, n], or [T, m] of clients; None if all do.
    """
    streams = trials.streams(game.trials)
    drawn = rule.coins(streams, game.round, step, game.target_client, known.client_of)
    return None if drawn is None else torch.from_numpy(drawn).to(known.device)
