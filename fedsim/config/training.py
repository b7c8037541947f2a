"""The network and how the federation trains it."""

from typing import Annotated, Literal

from pydantic import Field

from fedsim.common.tables import PositiveInt, Table

DRAWN = ("", "glorot")
"""What `model.weights` may be besides a path: laws from which the first values are drawn."""


class ModelConfig(Table):
    """The network that the federation trains.

    Attributes:
        name: one of the models, a torchvision:NAME, or hugging-face.
        hidden: width of the hidden layer, for models that leave it open.
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


class TrainingConfig(Table):
    """DP-SGD: in every round each client sums clipped gradients and the server takes one step.

    Where privacy.unit is "client" a client sends the clipped update of its own training instead.

    Attributes:
        rounds: how many rounds, k.
        learning_rate: learning rate of the server's step, times the schedule.
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
        optimizer: the server's optimiser.
        momentum: momentum of the optimiser "sgd".
        beta1: decay of the mean of gradients of the optimiser "adam".
        beta2: decay of the mean of squared gradients of the optimiser "adam".
        adam_epsilon: what "adam" adds to the root of the mean of squares.
        schedule: how the learning rate changes over the rounds.
        warmup_rounds: rounds over which the learning rate grows to its full value.
        decay_every: after how many rounds the schedule "step" lowers the learning rate.
        decay_factor: what the schedule "step" multiplies the learning rate by.
    """

    rounds: PositiveInt = 30
    learning_rate: Annotated[float, Field(gt=0)] = 0.5
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
