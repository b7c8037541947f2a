"""The card of a trained model: `model_card.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsim.audits.results.numbers import Real
from fedsim.learning.training.criterion import Measured
from fedsim.privacy import delta


@dataclass(frozen=True)
class Charged:
    """Equal noisy steps; epsilon follows from these, delta and the neighbouring relation."""

    noise_multiplier: Real
    """Multiplier of the noise that the vantage does not know; 0 for no noise."""
    count: int
    """Number of steps, local ones and those of interrupted attempts included."""
    sampling_rate: Real
    """Probability that a record takes part in a step."""


@dataclass(frozen=True)
class ReleasedTowards:
    """What the training released to one vantage."""

    vantage: str
    """Vantage: server, participant or released-model."""
    sees: str
    """What an observer at this vantage sees, in words."""
    epsilon: Mapping[str, Real]
    """Epsilon at delta, by accountant; the first is the configured one."""
    steps: list[Charged] = field(default_factory=list)
    """Steps that epsilon accounts for; empty on cards of earlier versions."""


@dataclass(frozen=True)
class Privacy:
    """The protection of the records."""

    guaranteed: bool
    """Whether epsilon is a guarantee of differential privacy. If not, it is what the same noise
    would give if it could not be drawn again."""
    note: str
    """Why it is a guarantee, or why not."""
    unit: str
    """Unit of privacy: a record, or a client with all its records."""
    neighbouring: str
    """How two neighbouring data sets differ."""
    delta: Real
    """Delta of every epsilon."""
    noise_multiplier: Real
    """Standard deviation of the noise over the sensitivity, as configured."""
    clipping_norm: Real
    """Largest norm of a record's gradient, or of a client's update."""
    sampling_rate: Real
    """Probability that a record takes part in a round."""
    trust: str
    """Source of the noise, and how the messages were summed, in words."""
    towards: list[ReleasedTowards]
    """What was released to each vantage."""
    rounds_charged: int
    """Rounds that released something, interrupted attempts included."""
    attempts: int
    """How often the training was started or resumed."""
    local_steps: int = 1
    """Noisy steps of a client in a round."""


@dataclass(frozen=True)
class ModelUtility:
    """Quality of the model on held-out records."""

    records: int
    """Number of held-out records; public ones where clients have data of their own."""
    accuracy: Real
    """Share of right predictions, in [0, 1]: of records, or of next tokens."""
    loss: Real
    """Mean loss, in nats."""
    majority: Real
    """Share of the most frequent label: the accuracy of a model that has learnt nothing."""
    balanced_accuracy: Real | None
    """Mean over the classes of the share of right answers; None for other tasks."""
    area_under_curve: Real | None
    """Area under the ROC curve; with more than two classes, the mean over each against the rest.
    None where it was not measured."""
    loss_before: Real | None = None
    """Loss of the first model; None where it is unknown."""
    clipped: Real | None = None
    """Share of these records whose gradient is longer than the clipping norm at the final model,
    measured on some of them; None where it is unknown."""
    classes: list[str] = field(default_factory=list)
    """Names of the classes."""
    confusion: list[list[int]] = field(default_factory=list)
    """Records by class (rows) and by the model's answer (columns); empty where it is unknown."""
    errors: dict[str, tuple[Real, Real, Real]] = field(default_factory=dict)
    """Errors of a regression with their 95 % intervals. "mean_absolute" and "root_mean_squared" are
    shares of the target's range; "r_squared" has no unit."""
    target: list[Real] = field(default_factory=list)
    """Smallest and largest value of a regression's target."""
    baseline_loss: Real | None = None
    """Mean loss of a model that has learnt nothing; None where only accuracies are compared."""
    loss_interval: tuple[Real, Real] | None = None
    """95 % interval of the loss; None where it was not measured."""

    def measured(self, task: str) -> Measured:
        """Return the measures of the model, for `judge`; `task` is model.task."""
        counts = tuple(map(sum, self.confusion))
        interval = self.loss_interval
        if "mean_absolute" in self.errors:
            _, low, high = self.errors["mean_absolute"]
            interval = (1 - high, 1 - low)
        return Measured(
            task=task,
            records=self.records,
            accuracy=self.accuracy,
            majority=self.majority,
            loss=self.loss,
            of_class=counts,
            recalls=tuple(
                self.confusion[label][label] / count if count else None
                for label, count in enumerate(counts)
            ),
            balanced_accuracy=self.balanced_accuracy,
            area_under_curve=self.area_under_curve,
            baseline_loss=self.baseline_loss,
            interval=interval,
        )


@dataclass(frozen=True)
class ModelCard:
    """The card of a trained model."""

    name: str
    """run.name."""
    purpose: str
    """run.purpose."""
    created: str
    """Time of creation, in ISO 8601."""
    fedsim: str
    """Version of fedsim that trained the model."""
    data: str
    """Name of the data set."""
    records: int
    """n, the public number by which the sums are divided."""
    clients: int
    """Number of clients that trained the model."""
    classes: int
    """Number of classes."""
    network: str
    """model.name."""
    parameters: int
    """Number of trained parameters."""
    rounds: int
    """Rounds of the training."""
    optimizer: str
    """training.optimizer."""
    privacy: Privacy
    """The protection of the records."""
    utility: ModelUtility | None
    """None where no records are held out."""
    sha256: str
    """SHA-256 of model.safetensors."""
    limits: list[str]
    """What the guarantee does not cover."""
    task: str = "classification"
    """model.task."""
    uncovered: list[str] | None = None
    """What the reading of the records released without noise, in sentences; None on cards of
    earlier versions."""

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before the numbers, in sentences."""
        privacy = self.privacy
        count = self.clients if privacy.unit == "client" else self.records
        vague = delta.too_large(privacy.delta, count, privacy.unit)
        return [*filter(None, [vague]), *(self.uncovered or [])]
