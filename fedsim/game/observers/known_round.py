"""A round as somebody sees it who knows D and D': what every adversary's hypotheses start from."""

from dataclasses import dataclass

from torch import Tensor

from fedsim.config import Config
from fedsim.game.federation import Federation
from fedsim.game.round_game import RoundGame


@dataclass(frozen=True)
class KnownRound:
    """The model that was sent, and what its receiver knows of the round.

    Attributes:
        config: the experiment.
        federation: its data and model, as far as background knowledge covers them.
        game: the round, its trials and the challenge.
        parameters: float32 [T, P], the model as it was sent.
        participation: bool [T, n], which records of D take part, or which clients where privacy is
            a client's, None for all; the challenge's column is not looked at.
    """

    config: Config
    federation: Federation
    game: RoundGame
    parameters: Tensor
    participation: Tensor | None
