"""What the parts of an experiment are made with; `Config` builds each, and each is small.

Mathematics and the game receive these instead of the whole configuration.
"""

from dataclasses import dataclass

from fedsim.config.campaign import TrialsConfig
from fedsim.config.challenge import CanariesConfig, ChallengeConfig
from fedsim.config.federation import FederationConfig
from fedsim.config.privacy import PrivacyConfig
from fedsim.config.training import ModelConfig, TrainingConfig
from fedsim.privacy.participation.rule import Participation


@dataclass(frozen=True)
class Scheme:
    """The privacy mechanism as it is planned: who releases what, under which noise.

    Attributes:
        privacy: the mechanism and its budget.
        federation: who adds the noise, and to whom it is released.
        training: how many rounds there are, and how they are clipped.
        participation: who takes part in which round.
        records: number of records of D.
        copies: number of copies of the target in D.
        trial_count: number of trainings.
    """

    privacy: PrivacyConfig
    federation: FederationConfig
    training: TrainingConfig
    participation: Participation
    records: int
    copies: int
    trial_count: int


@dataclass(frozen=True)
class GameRules:
    """What the game is played with: what clients compute, and what the adversary expects of them.

    Attributes:
        scheme: the privacy mechanism.
        challenge: what the adversary is to find out.
        canaries: of a one-run audit.
        model: the network.
        trials: repetitions of the whole training.
        seed: of all random numbers but those of D and of the privacy noise.
        data_seed: of the draw of D.
        noise_seed: of the privacy noise; None where it comes from the operating system.
        candidates: number of secrets that PAC noise chooses from; 1 for other noise.
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
