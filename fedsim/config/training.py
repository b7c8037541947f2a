"""The network and how the federation trains it."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from adversaries.errors import InputError
from fedsim.common.tables import PositiveInt, Table

DRAWN = ("", "glorot")
"""What `model.weights` may be besides a path: laws from which the first values are drawn."""


class ModelConfig(Table):
    """The network that the federation trains.

    Attributes:
        name: one of the models, a torchvision:NAME, or hugging-face.
        hidden: width of the hidden layer, for models that leave it open.
        task: what the network is trained for: the class of a record ("classification"), the next
            token of a text ("next-token"), or a number, by its squared error ("regression") or by
            Huber's ("huber"), which large errors move less.
        class_priors: public shares of the classes in their order, with commas between them: the
            loss of a record is weighted by the inverse of its class's share before its gradient is
            clipped. Empty: all records weigh the same.
        batch_norm: what takes the place of layers that mix the records of a batch.
        frozen: names of layers or parameters that are not trained, with commas between them; *
            stands for any part of a name.
        weights: what the network starts from: "" for values as PyTorch draws them, "glorot" as
            Keras does, or the path of a safetensors file or of a Hugging Face directory that holds
            the network; on a client's machine its node's weights-path takes the path's place.
        weights_sha256: SHA-256 of the file of `weights`, which all parties must have; "" for
            that of the file that is there.
        trainable: names, as of `frozen`, of the only parameters that are trained; "" for all, or
            for nothing but adapters.
        lora_rank: rank of the adapters that are trained at every Linear layer and attention
            projection that is not trained itself; 0 for none.
        initialisation: whether every trial draws a first model of its own, all start from that of
            the first, or all from that one fitted to the records that both worlds have.
    """

    name: str = "mlp"
    hidden: PositiveInt = 32
    task: Literal["classification", "next-token", "regression", "huber"] = "classification"
    class_priors: str = ""
    batch_norm: Literal["refuse", "group-norm", "channel-affine"] = "refuse"
    frozen: str = ""
    weights: str = ""
    weights_sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    trainable: str = ""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    initialisation: Literal["random", "fixed", "worst-case"] = "random"

    @property
    def weights_path(self) -> str:
        """Where the file of `weights` is, "" where the first values are drawn."""
        return "" if self.weights in DRAWN else self.weights


DISTANCE = 40.0
"""D, how far from its first values a model is expected to be trained, in the Euclidean norm.

Steps of a normalised length cover it best, in the worst case, with length D/sqrt(k) in each of k
rounds (Nesterov, "Introductory lectures on convex optimization", 2004, section 3.2.3). The value is
measured: docs/lab-notes/learning.md.
"""

RATES = {"adam": 0.1, "sgd": 0.5}
"""The learning rate of an optimiser where none is given."""


class TrainingConfig(Table):
    """DP-SGD: in every round each client sums clipped gradients and the server takes one step.

    Where privacy.unit is "client" a client sends the clipped update of its own training instead.

    Attributes:
        rounds: how many rounds, k.
        learning_rate: learning rate of the server's step, times the schedule; 0 for 40/sqrt(rounds)
            of the optimiser "normalized", 0.1 of "adam" and 0.5 of "sgd".
        clipping_norm: C, the longest that one record's gradient, or one client's update, may be.
        clipping: whether gradients are clipped; false sums them as they are, and clipping_norm is
            then the unit of the noise alone.
        sampling_rate: the probability that a record takes part in a round (1: full batch).
        local_steps: noisy steps that a client takes on its own model within a round.
        local_learning_rate: learning rate of local steps, or of a client's own training; 0 for
            that of the server.
        local_epochs: epochs of a client's own training.
        local_batches: batches of a client's own training, in place of whole epochs; 0 for
            local_epochs.
        local_momentum: momentum of a client's own training, which begins anew in every round.
        proximal_term: how strongly a client's own training is drawn back to the model of the round
            (mu of FedProx).
        batch_size: batch size of a client's own training; 0 for all its records in one batch.
        optimizer: the server's optimiser; "" for "normalized", which needs no learning rate, or for
            "sgd" where a learning rate or momentum is given, clients take local steps, whole
            clients are protected, or the released model is attacked.
        momentum: momentum of the optimiser "sgd".
        beta1: decay of the mean of gradients of the optimiser "adam".
        beta2: decay of the mean of squared gradients of the optimiser "adam".
        adam_epsilon: what "adam" adds to the root of the mean of squares.
        schedule: how the learning rate changes over the rounds; "" for "linear" with the optimiser
            "normalized", else "constant".
        warmup_rounds: rounds over which the learning rate grows to its full value.
        decay_every: after how many rounds the schedule "step" lowers the learning rate.
        decay_factor: what the schedule "step" multiplies the learning rate by.
    """

    rounds: PositiveInt = 30
    learning_rate: Annotated[float, Field(ge=0)] = 0.0
    clipping_norm: Annotated[float, Field(gt=0)] = 1.0
    clipping: bool = True
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    local_steps: PositiveInt = 1
    local_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    local_epochs: PositiveInt = 1
    local_batches: Annotated[int, Field(ge=0)] = 0
    local_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    proximal_term: Annotated[float, Field(ge=0)] = 0.0
    batch_size: Annotated[int, Field(ge=0)] = 0
    optimizer: str = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-8
    schedule: str = "constant"
    warmup_rounds: Annotated[int, Field(ge=0)] = 0
    decay_every: PositiveInt = 10
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.5

    @property
    def rate(self) -> float:
        """The learning rate of the server's step: the given one, or the optimiser's own."""
        if self.learning_rate or self.optimizer != "normalized":
            return self.learning_rate or RATES.get(self.optimizer, RATES["sgd"])
        return DISTANCE / math.sqrt(self.rounds)

    @property
    def local_rate(self) -> float:
        """The learning rate of a client's own steps."""
        return self.local_learning_rate or self.rate


NEED_SGD = (
    ("privacy", "unit", "client"),
    ("federation", "vantage", "released-model"),
    ("federation", "adversary-rounds", "own"),
)
"""Tables, keys and values that need server steps which are linear in the aggregates, or of the
clients' own scale."""


def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return [training] with the optimiser and the schedule that a configuration leaves open.

    given: the configuration's tables, as they are in a file.
    """
    training: Mapping[str, Any] = given.get("training", {})
    sgd = any(training.get(key, 0) != 0 for key in ("learning-rate", "momentum"))
    sgd |= training.get("local-steps", 1) != 1
    for table, key, value in NEED_SGD:
        values = given.get(table, {})
        sgd |= isinstance(values, Mapping) and values.get(key) == value
    optimizer = training.get("optimizer") or ("sgd" if sgd else "normalized")
    schedule = "linear" if optimizer == "normalized" else "constant"
    return {
        **training,
        "optimizer": optimizer,
        "schedule": training.get("schedule") or schedule,
    }


def refuse_unless_classified(task: str, command: str) -> None:
    """Raise InputError for another task than classification, whose accuracy a command compares.

    task: model.task.
    """
    if task != "classification":
        raise InputError(
            f"model.task is {task}, and {command} compares accuracies of classes; run or train "
            "such a model with fedsim run and fedsim train"
        )
