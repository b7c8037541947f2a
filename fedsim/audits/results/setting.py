"""Who trained what on which data, where, and who is the target: the part of a report about a run's
set-up.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fedsim.audits.results.numbers import Real


@dataclass(frozen=True)
class Data:
    """The data, and who held them."""

    name: str
    """Of the dataset."""
    records: int
    """In D."""
    held_out: int
    """Records on which the model's worth was measured."""
    partition: str
    """The scheme by which records were dealt to clients."""
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
    """As in `model.name`."""
    parameters: int
    """How many numbers are trained."""
    gradient_fallbacks: Mapping[str, str]
    """Layers whose gradients went through torch.func, with the reason."""
    frozen: str
    """Which layers or parameters are not trained, as configured."""
    frozen_parameters: int
    """How many numbers are not trained."""
    batch_norm: str
    """What takes the place of batch normalisation."""


@dataclass(frozen=True)
class Training:
    """The training's settings, but for those of the mechanism."""

    learning_rate: Real
    """The server's, of which the schedule takes a share in each round."""
    local_learning_rate: Real
    """Of a client's own steps; 0 for that of the server."""
    local_epochs: int
    """Of a client's own training, where the unit of privacy is a client."""
    local_batches: int
    """Of a client's own training, in place of whole epochs; 0 where those count."""
    local_momentum: Real
    """In [0, 1), of a client's own training."""
    proximal_term: Real
    """How strongly a client's own training is drawn back to the model of the round."""
    batch_size: int
    """Records in a batch of a client's own training; 0 for all of them."""
    optimizer: str
    """The server's."""
    momentum: Real
    """In [0, 1), of "sgd"."""
    beta1: Real
    """In [0, 1), of "adam": how much of the mean gradient is kept."""
    beta2: Real
    """In [0, 1), of "adam": how much of the mean squared gradient is kept."""
    adam_epsilon: Real
    """What "adam" adds to the root before it divides by it."""
    schedule: str
    """By which the learning rate falls over the rounds."""
    warmup_rounds: int
    """Over which the learning rate grows to its full value; 0 for none."""
    decay_every: int
    """Rounds between two falls, of the schedule "step"."""
    decay_factor: Real
    """What each fall multiplies by, of the schedule "step"."""


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
    choice: str
    """How it was chosen: "max", "min" or "median" of the dissimilarity, or "given"."""
    measure: str
    """The dissimilarity by which it was chosen."""
    distance: Real | None
    """Its dissimilarity to the replacement, or to D, by the measure; None if unmeasured."""
    kind: str
    """"record" for one of D; otherwise how it was crafted."""
    copies: int
    """How often D has it."""
    label: int | None
    """Of a crafted record."""
    records: int
    """In how many records D and D' differ."""


@dataclass(frozen=True)
class Rounding:
    """What sending integers costs, under distributed trust."""

    secure_aggregation: str
    """"simulated", in the clear, or "secagg+"."""
    note: str
    """How the messages were summed, in words that follow "they were"."""
    step: Real
    """g, of the grid."""
    bits: int
    """Of an integer that is sent."""
    limit: Real
    """The largest coordinate that is sent."""
    sensitivity: Real
    """Of a sum of rounded messages; the noise is scaled to it."""
    relative_growth: Real
    """By how much the sensitivity, and the noise with it, is larger for it."""
    total_variation: Real
    """How far all rounds are from the Gaussian mechanism that is accounted for; 0 where that is
    below what a double holds."""


@dataclass(frozen=True)
class Mechanism:
    """The mechanism as configured and as accounted for."""

    noise_multiplier: Real
    """Nominal: standard deviation of all noise over the sensitivity."""
    effective_noise_multiplier: Real | None
    """Of the noise that hides the target from the configured vantage; None where rounds differ."""
    clipping_norm: Real
    """C: the largest length of what a record, or a client, contributes to a step."""
    clipping: bool
    """Whether C is enforced."""
    sensitivity: str
    """What noise is scaled to: "global", or "local" for the challenge's own."""
    noise: str
    """"isotropic", or "pac" for noise that the candidates shaped."""
    steps: int
    """Noisy steps that are accounted for."""
    mu: Real
    """Of Gaussian privacy, of all steps were none sampled."""
    local_steps: int
    """Steps of every client on its own in a round."""
    sampling_rate: Real
    """The probability that a record takes part in a step; 1 for always."""
    joining_rate: Real
    """With which a client joins a round, where records are the unit and its coin is public."""
    learning_rate: Real
    """The server's, by which the released model moves."""
    rounding: Rounding | None
    """None where nothing is rounded."""
    dp_guarantee: bool
    """Whether everything that was released has a finite epsilon by noise nobody can take away."""
    dp_note: str
    """What was released, or why there is no guarantee."""


@dataclass(frozen=True)
class Dropouts:
    """Which rounds lacked clients."""

    tolerated: int
    """How many clients may be missing in a round."""
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
    """From the first round of the trials to the last."""
    clients_computing: Real
    """Of those, until the clients had answered."""
    total: Real
    """With all that came before and after."""
