"""What the card of a trained model says: `model_card.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsim.audits.results.client_measures import ClientMeasures
from fedsim.audits.results.numbers import Ends, Real


@dataclass(frozen=True)
class Charged:
    """Noisy steps alike: from these, delta and the neighbouring relation epsilon follows."""

    noise_multiplier: Real
    """Of the noise that is unknown there, over the sensitivity; 0 for none."""
    count: int
    """Steps of all rounds, local ones and those of interrupted attempts included."""
    sampling_rate: Real
    """Probability with which a record takes part in a step."""


@dataclass(frozen=True)
class Towards:
    """What the training released to one vantage."""

    vantage: str
    """Where somebody stands: server, participant, released-model."""
    sees: str
    """What is seen from there, in words."""
    epsilon: Mapping[str, Real]
    """At delta, by the name of each accountant; the first is the configured one."""
    steps: list[Charged] = field(default_factory=list)
    """That epsilon accounts for; none on cards of earlier versions."""


@dataclass(frozen=True)
class Privacy:
    """What protects the records, and how well."""

    guaranteed: bool
    """Whether epsilon is a guarantee of differential privacy; else it is what the same noise would
    give if nobody could draw it again."""
    note: str
    """Why it is one, or none."""
    unit: str
    """Whom it protects: a record, or a client with all its records."""
    neighbouring: str
    """How two data sets differ that the adversary cannot tell apart."""
    delta: Real
    """Of every epsilon."""
    noise_multiplier: Real
    """Standard deviation of the noise over the sensitivity, as configured."""
    clipping_norm: Real
    """Bound of the norm of a record's gradient, or of a client's update."""
    sampling_rate: Real
    """Probability with which a record takes part in a round."""
    trust: str
    """Who added the noise, and how the messages were summed, in words."""
    towards: list[Towards]
    """Of each vantage."""
    rounds_charged: int
    """Rounds that left something, interrupted attempts included."""
    attempts: int
    """How often the training was begun or gone on with."""
    local_steps: int = 1
    """Noisy steps that a client takes in a round."""
    measures_epsilon: Real = 0.0
    """Of a record that its client held back from the rounds, for what the client said of the model
    about such records, every time it was asked; 0 where no client was."""


@dataclass(frozen=True)
class Utility:
    """How good the model is on records that nobody trained on."""

    records: int
    """How many were held out; they are public where clients have data of their own."""
    accuracy: Real
    """Share of right predictions, in [0, 1]: of records, or of next tokens."""
    loss: Real
    """Mean, in nats."""
    majority: Real
    """Share of the most frequent label: the accuracy of a model that has learnt nothing."""
    balanced_accuracy: Real | None
    """The mean over the classes of the share that is right; None for other tasks."""
    area_under_curve: Real | None
    """Under the ROC curve, of more than two classes the mean over each against the rest; None where
    it was not measured."""
    loss_before: Real | None = None
    """That of the first model; None where it is unknown."""
    clipped: Real | None = None
    """Share of some of these records whose gradient is longer than the clipping norm, at the model
    that is kept; None where it is unknown."""
    classes: list[str] = field(default_factory=list)
    """Their names."""
    confusion: list[list[int]] = field(default_factory=list)
    """Records by class, a row each, and by the model's answer; empty where it is unknown."""
    calibration: list[tuple[int, Real, Real]] = field(default_factory=list)
    """Of records whose likeliest class has about one probability: how many, that probability's
    mean, and the share that is right."""
    errors: dict[str, tuple[Real, Real, Real]] = field(default_factory=dict)
    """Of a regression, as shares of the target's range and with their intervals at 95 %:
    "mean_absolute", "root_mean_squared"; and "r_squared", which has no unit."""
    target: list[Real] = field(default_factory=list)
    """The least and the largest value of the number that a regression predicts."""
    baseline_loss: Real | None = None
    """The mean loss of a model that has learnt nothing; None where only accuracies are compared."""
    loss_interval: tuple[Real, Real] | None = None
    """Of the loss, at 95 %; None where it was not measured."""


@dataclass(frozen=True)
class Rehearsal:
    """What the identification game found for the same rounds and noise, on other records."""

    name: str
    """Of the rehearsal's run."""
    data: str
    """Name of the data that it was played on."""
    records: int
    """In D there."""
    trials: int
    """Trainings that were attacked."""
    vantage: str
    """From which the adversary looked."""
    confidence: Real
    """Of the interval."""
    advantage: Real | None
    """True less false positive rate; None for no finding."""
    advantage_interval: Ends | None
    """At this confidence."""
    rho_alpha: Real
    """The bound on the advantage."""
    delta_prime: Real | None
    """Share of the trials on D whose belief passed rho_beta."""
    rho_beta: Real
    """The bound on the belief."""


@dataclass(frozen=True)
class ModelCard:
    """The card of a trained model."""

    name: str
    """run.name."""
    purpose: str
    """run.purpose."""
    created: str
    """When, in ISO 8601."""
    fedsim: str
    """The version that trained it."""
    data: str
    """Name of the data set."""
    records: int
    """n, the public number that the sums are divided by."""
    clients: int
    """How many trained it."""
    classes: int
    """How many it tells apart."""
    network: str
    """model.name."""
    parameters: int
    """Trained numbers."""
    rounds: int
    """Of the training."""
    optimizer: str
    """training.optimizer."""
    privacy: Privacy
    """What protects the records."""
    utility: Utility | None
    """None where no records are held out."""
    rehearsal: Rehearsal | None
    """None where none was named."""
    sha256: str
    """Of model.safetensors."""
    limits: list[str]
    """What the guarantee does not say."""
    task: str = "classification"
    """model.task."""
    client_measures: list[ClientMeasures] = field(default_factory=list)
    """Of the clients that agreed and whose ledgers allowed it."""
