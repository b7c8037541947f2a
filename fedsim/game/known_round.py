"""A round as a party with D and D' knows it: input of clients and adversaries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsim.configuration import Config
from fedsim.game.federation import Federation
from fedsim.game.round_game import RoundGame


@dataclass(frozen=True)
class KnownRound:
    """A sent model [T, P], and coins [T, n] or [T, m]; an adversary must not read the target's."""

    config: Config
    federation: Federation
    game: RoundGame
    parameters: Tensor
    participation: Tensor | None = None

    @classmethod
    def drawn(
        cls, config: Config, federation: Federation, game: RoundGame, parameters: Tensor
    ) -> "KnownRound":
        """Return the round with the coins of its first step."""
        return cls(config, federation, game, parameters, coins_of(config, federation, game))


def coins_of(
    config: Config, federation: Federation, game: RoundGame, step: int = 1
) -> Tensor | None:
    """Return which records [T, n] or clients [T, m] take part in a local step; None if all do."""
    rule = config.participation
    drawn = rule.coins(game.trials, game.round, step, game.target_client, federation.client_of)
    return None if drawn is None else torch.from_numpy(drawn).to(federation.device)
