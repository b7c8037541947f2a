"""Who trained what on which data, where, and who is the target: the part of a report about a run's
set-up.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fedsim.results.numbers import Real


@dataclass(frozen=True)
class Data:
    """The data, and who held them."""

    name: str
    records: int
    """In D."""
    held_out: int
    """Records on which the model's worth was measured."""
    partition: str
    partition_key: str | None
    """The column of which no value is split; None where there is none."""
    client_sizes: list[int]
    """Records of each client."""
    label_skew: Mapping[str, Real] | None
    """How unlike D the mixes of labels are, as measured and by chance."""


@dataclass(frozen=True)
class Model:
    """The network."""

    name: str
    parameters: int
    """How many numbers are trained."""
    gradient_fallbacks: Mapping[str, str]
    """Layers whose gradients went through torch.func, with the reason."""
    frozen: str
    """Which layers or parameters are not trained, as configured."""
    frozen_parameters: int
    batch_norm: str
    """What takes the place of batch normalisation."""


@dataclass(frozen=True)
class Training:
    """The training's settings, but for those of the mechanism."""

    learning_rate: Real
    local_learning_rate: Real
    local_epochs: int
    batch_size: int
    optimizer: str
    momentum: Real
    beta1: Real
    beta2: Real
    adam_epsilon: Real
    schedule: str
    warmup_rounds: int
    decay_every: int
    decay_factor: Real


@dataclass(frozen=True)
class Challenge:
    """What D has and D' has not."""

    record: int | None
    """Its position in D; None where it is no one record."""
    replacement: int | str | None
    """What D' has in its place: a position in the pool, or in words; None for nothing."""
    client: int
    """Who has it."""
    adversary: int
    """Who is asked about it."""
    measure: str
    """The dissimilarity by which it was chosen."""
    distance: Real | None
    kind: str
    copies: int
    label: int | None
    """Of a crafted record."""
    records: int
    """In how many records D and D' differ."""


@dataclass(frozen=True)
class Rounding:
    """What sending integers costs, under distributed trust."""

    secure_aggregation: str
    note: str
    step: Real
    """g, of the grid."""
    bits: int
    limit: Real
    """The largest coordinate that is sent."""
    sensitivity: Real
    relative_growth: Real
    """By how much the sensitivity, and the noise with it, is larger for it."""
    total_variation: Real
    """How far all rounds are from the Gaussian mechanism that is accounted for; 0 where that is
    below what a double holds."""


@dataclass(frozen=True)
class Mechanism:
    """The mechanism as configured and as accounted for."""

    noise_multiplier: Real
    effective_noise_multiplier: Real | None
    """Of the noise that hides the target from the configured vantage; None where rounds differ."""
    clipping_norm: Real
    clipping: bool
    sensitivity: str
    """What noise is scaled to: "global", or "local" for the challenge's own."""
    noise: str
    steps: int
    """Noisy steps that are accounted for."""
    mu: Real
    """Of Gaussian privacy, of all steps were none sampled."""
    local_steps: int
    sampling_rate: Real
    learning_rate: Real
    rounding: Rounding | None
    dp_guarantee: bool
    """Whether everything that was released has a finite epsilon by noise nobody can take away."""
    dp_note: str
    """What was released, or why there is no guarantee."""


@dataclass(frozen=True)
class Dropouts:
    """Which rounds lacked clients."""

    tolerated: int
    rounds_with_missing_clients: int
    """Over all batches of trials and attempts; what the seed repeats counts once."""
    fewest_shares: int
    """Of how many clients the noise was at worst."""
    effective_noise_multiplier: tuple[Real, Real]
    """The smallest and the largest that the configured vantage faced in a round."""


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    federation: Real
    clients_computing: Real
    total: Real
