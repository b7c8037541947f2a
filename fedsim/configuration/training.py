"""Configuration of the network and its training."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from fedsim.common.tables import PositiveInt, TomlTable

DRAWN = ("", "glorot")
"""Values of `model.weights` that are not paths: distributions of the initial values."""


class ModelConfig(TomlTable):
    """The network that the federation trains.

    Attributes:
        name: Name of the network. A registered name, torchvision:NAME, or hugging-face.
        hidden: Width of the hidden layer, where the network allows it.
        task: Task of the network. "classification": the class of a record; "next-token": the next
            token of a text; "regression": a number, by squared error. "huber": a number, by Huber's
            loss, which limits large errors.
        class_priors: Public shares of the classes, separated by commas. Give them in the order of
            the classes. A record's clipped gradient is weighted by the inverse share of its class,
            and is at most training.clipping-norm long in the rarest class. Empty: all records
            weigh the same.
        batch_norm: Treatment of batch normalisation, which mixes records. "refuse": an error; the
            other values replace those layers.
        weights: Initial values, or the path of a file that holds them. "": as PyTorch draws them;
            "glorot": as Keras draws them; else a safetensors file or a Hugging Face directory. On a
            client's machine the node's weights-path replaces the path.
        weights_sha256: SHA-256 of the file of model.weights. All parties must have this file.
            Empty: the hash of the local file.
        trainable: Parameters to train, separated by commas. All others keep their values. * stands
            for any part of a name. Empty: all, or only the adapters where there are adapters.
        lora_rank: Rank of the low-rank adapters (LoRA). Adapters are trained at every Linear layer
            that is not trained itself. 0: no adapters.
        initialisation: Initial model of each trial. "random": drawn anew; "fixed": the same for
            all; "worst-case": the same for all, trained on the records that both worlds share.
    """

    name: str = "mlp"
    hidden: PositiveInt = 32
    task: Literal["classification", "next-token", "regression", "huber"] = "classification"
    class_priors: str = ""
    batch_norm: Literal["refuse", "group-norm", "channel-affine"] = "refuse"
    weights: str = ""
    weights_sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    trainable: str = ""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    initialisation: Literal["random", "fixed", "worst-case"] = "random"

    @property
    def weights_path(self) -> str:
        """The path of the file in `weights`; "" where the initial values are drawn."""
        return "" if self.weights in DRAWN else self.weights


DISTANCE = 40.0
"""D: expected Euclidean distance between a model's initial and trained parameters.

In the worst case, k steps of normalised length cover it best with the length D/sqrt(k) (Nesterov,
"Introductory lectures on convex optimization", 2004, section 3.2.3). The value is measured:
docs/evidence.md.
"""

RATES = {"adam": 0.1, "sgd": 0.5}
"""Default learning rate of each optimiser."""


class TrainingConfig(TomlTable):
    """DP-SGD: in every round each client sums clipped gradients and the server takes one step.

    Where privacy.unit is "client", a client sends the clipped update of its own training instead.

    Attributes:
        rounds: Number of rounds (k).
        learning_rate: Learning rate of the server. The schedule multiplies it. 0: 40/sqrt(rounds)
            for the optimiser "normalized", 0.1 for "adam", 0.5 for "sgd".
        clipping_norm: Clipping norm (C). The largest norm of a record's gradient, or of a client's
            update.
        clipping: Clipping of gradients. false: sum them as they are; training.clipping-norm then
            only scales the noise.
        sampling_rate: Probability that a record joins a round. 1: full batch.
        local_steps: Number of noisy local steps in each round. Each client takes them on its own
            model.
        local_learning_rate: Learning rate of local steps or local training. 0: the server's
            learning rate.
        local_epochs: Number of epochs of local training in each round.
        batch_size: Batch size of local training. 0: all records of the client in one batch.
        optimizer: Optimiser of the server. "normalized" needs no learning rate. Empty: "normalized"
            in most cases. Empty means "sgd" if you set a learning rate or momentum, local steps,
            privacy.unit = "client" or the vantage "released-model".
        momentum: Momentum of the optimiser "sgd".
        schedule: Schedule of the learning rate. Empty: "linear" for the optimiser "normalized",
            else "constant".
        warmup_rounds: Rounds until the learning rate reaches its full value.
    """

    rounds: PositiveInt = 30
    learning_rate: Annotated[float, Field(ge=0)] = 0.0
    clipping_norm: Annotated[float, Field(gt=0)] = 1.0
    clipping: bool = True
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    local_steps: PositiveInt = 1
    local_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    local_epochs: PositiveInt = 1
    batch_size: Annotated[int, Field(ge=0)] = 0
    optimizer: str = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    schedule: str = "constant"
    warmup_rounds: Annotated[int, Field(ge=0)] = 0

    @property
    def rate(self) -> float:
        """The learning rate of the server's step; the optimiser's default where none is set."""
        if self.learning_rate or self.optimizer != "normalized":
            return self.learning_rate or RATES.get(self.optimizer, RATES["sgd"])
        return DISTANCE / math.sqrt(self.rounds)

    @property
    def local_rate(self) -> float:
        return self.local_learning_rate or self.rate

    @property
    def scored_by_counts(self) -> bool:
        """Whether the participant's log-odds average over how often a target was sampled."""
        return self.local_steps > 1 and self.sampling_rate < 1


NEED_SGD = (("privacy", "unit", "client"), ("federation", "vantage", "released-model"))
"""Tables, keys and values whose server steps must be linear in the aggregates, or have the scale
of the clients' updates."""


def chosen(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table [training] with defaults for an optimiser and schedule that are not set."""
    given: Mapping[str, Any] = tables.get("training", {})
    training = {
        key.replace("_", "-"): value for key, value in given.items()
    }  # as Python names them
    sgd = any(training.get(key, 0) != 0 for key in ("learning-rate", "momentum"))
    sgd |= training.get("local-steps", 1) != 1
    for table, key, value in NEED_SGD:
        values = tables.get(table, {})
        sgd |= isinstance(values, Mapping) and values.get(key) == value
    optimizer = training.get("optimizer") or ("sgd" if sgd else "normalized")
    schedule = "linear" if optimizer == "normalized" else "constant"
    return {**training, "optimizer": optimizer, "schedule": training.get("schedule") or schedule}
