"""Parts of a configuration, which `Config` builds for the mathematics and for the game."""

from dataclasses import dataclass

from fedsim.configuration.campaign import RunConfig, TrialsConfig
from fedsim.configuration.challenge import CanariesConfig, ChallengeConfig
from fedsim.configuration.federation import DataConfig, FederationConfig
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.configuration.training import ModelConfig, TrainingConfig
from fedsim.privacy.participation.rule import Participation


@dataclass(frozen=True)
class Scheme:
    """The planned privacy mechanism: the released values and their noise."""

    privacy: PrivacyConfig
    federation: FederationConfig
    training: TrainingConfig
    participation: Participation
    records: int
    trial_count: int

    @property
    def scored_by_counts(self) -> bool:
        """Whether the participant's log-odds average over how often a target was sampled."""
        return self.training.local_steps > 1 and self.training.sampling_rate < 1


@dataclass(frozen=True)
class GameRules:
    """The rules of the game: what clients compute, and what the adversary expects of them.

    Attributes:
        noise_seed: seed of the privacy noise; None: the noise comes from the operating system.
    """

    scheme: Scheme
    challenge: ChallengeConfig
    canaries: CanariesConfig
    model: ModelConfig
    trials: TrialsConfig
    seed: int
    data_seed: int
    noise_seed: int | None


@dataclass(frozen=True)
class Experiment:
    """The parts of a federation: its records, the game on them, and the machine that trains."""

    data: DataConfig
    game: GameRules
    run: RunConfig
