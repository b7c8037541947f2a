"""Parts of a configuration, which `Config` builds for the mathematics and for the game."""

from dataclasses import dataclass

from fedsim.config.campaign import TrialsConfig
from fedsim.config.challenge import CanariesConfig, ChallengeConfig
from fedsim.config.federation import FederationConfig
from fedsim.config.privacy import PrivacyConfig
from fedsim.config.training import ModelConfig, TrainingConfig
from fedsim.privacy.participation.rule import Participation


@dataclass(frozen=True)
class Scheme:
    """The planned privacy mechanism: the released values and their noise."""

    privacy: PrivacyConfig
    federation: FederationConfig
    training: TrainingConfig
    participation: Participation
    records: int
    copies: int
    trial_count: int


@dataclass(frozen=True)
class GameRules:
    """The rules of the game: what clients compute, and what the adversary expects of them.

    Attributes:
        noise_seed: seed of the privacy noise; None: the noise comes from the operating system.
        candidates: number of candidates of PAC noise; 1 for other noise.
    """

    scheme: Scheme
    challenge: ChallengeConfig
    canaries: CanariesConfig
    model: ModelConfig
    trials: TrialsConfig
    seed: int
    data_seed: int
    noise_seed: int | None
    candidates: int
