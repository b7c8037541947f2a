"""Server optimisers: from the released aggregate of a round to the next model.

They work on each row separately, so that the T trials of a [T, P] tensor stay independent. A new
one is one function and one entry in `OPTIMIZERS`. PyTorch's own import its compiler, which takes as
long as PyTorch itself; the steps here are theirs to the bit (tests compare them).
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from adversaries.registry import lookup
from fedsim.configuration.training import TrainingConfig
from fedsim.learning.training.schedules import factor

Memory = dict[str, Tensor]
"""What an optimiser keeps between rounds, by PyTorch's names; empty before the first round."""

Step = Callable[[Memory, Tensor, float, TrainingConfig, float], Tensor]
"""(memory, aggregate over n records, factor of the schedule, training, n) -> change of the model.

Aggregate and change are float64 [T, P]. It updates the memory.
"""


def _sgd(
    memory: Memory, aggregate: Tensor, decay: float, training: TrainingConfig, records: float
) -> Tensor:
    if training.momentum:
        before = memory.get("momentum_buffer")
        # A copy: the caller may use its tensor again.
        aggregate = aggregate.clone() if before is None else before * training.momentum + aggregate
        memory["momentum_buffer"] = aggregate
    return aggregate * -(training.rate / records * decay)


BETA_1, BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-8
"""The constants of "adam", as its authors recommend them."""


def _adam(
    memory: Memory, aggregate: Tensor, decay: float, training: TrainingConfig, records: float
) -> Tensor:
    """Return the step of Kingma and Ba, "Adam" (2015), with epsilon outside the root."""
    count = _count(memory, exp_avg=aggregate, exp_avg_sq=aggregate)
    mean, square = memory["exp_avg"], memory["exp_avg_sq"]
    mean.lerp_(aggregate, 1 - BETA_1)
    square.mul_(BETA_2).addcmul_(aggregate, aggregate, value=1 - BETA_2)
    rate = training.rate * decay / (1 - BETA_1**count)
    # m/(sqrt(v) + epsilon) for the mean equals m/(sqrt(v) + n epsilon) for the sum.
    root = (square.sqrt() / (1 - BETA_2**count) ** 0.5).add_(records * ADAM_EPSILON)
    return torch.zeros_like(mean).addcdiv_(mean, root, value=-rate)


MEMORY = 0.8
"""Share of its running means that the optimiser "normalized" keeps from one round to the next."""


def _normalized(
    memory: Memory, aggregate: Tensor, decay: float, training: TrainingConfig, records: float
) -> Tensor:
    """Return a normalised step with momentum, separately for each row of a [T, P] tensor.

    m and v are running means of the aggregate g and of its squared norm, and the step is -lr m /
    sqrt(v): where noise outweighs the signal, m is shorter than sqrt(v). Only v is corrected for
    its start from 0, which warms up the steps: the first aggregate would be a step of full length.

    Source: Cutkosky & Mehta, "Momentum improves normalized SGD" (2020), with v instead of m's norm.
    """
    count = _count(memory, exp_avg=aggregate, exp_avg_sq=aggregate[:, :1])
    mean, square = memory["exp_avg"], memory["exp_avg_sq"]
    # lerp keeps MEMORY of the running mean and takes the rest from the new value.
    mean.lerp_(aggregate, 1 - MEMORY)
    square.lerp_(aggregate.square().sum(1, keepdim=True), 1 - MEMORY)
    # The divisor undoes the start of the mean from 0. The clamp avoids 0/0 if every aggregate was
    # 0.
    scale = (square / (1 - MEMORY**count)).sqrt().clamp(min=torch.finfo(mean.dtype).tiny)
    return -(training.rate * decay * mean / scale)


def _count(memory: Memory, **means: Tensor) -> float:
    """Count a round, and begin the running means of the first one. Return the number of rounds."""
    if not memory:
        memory |= {"step": torch.tensor(0.0)}
        memory |= {name: torch.zeros_like(like) for name, like in means.items()}
    memory["step"] += 1
    return float(memory["step"])


OPTIMIZERS: dict[str, Step] = {"sgd": _sgd, "adam": _adam, "normalized": _normalized}

LINEAR = frozenset({"sgd"})
"""Optimisers whose steps are linear in the aggregates so far."""


class ServerOptimizer:
    """Steps the models of one batch of trials, round after round.

    Args:
        training: names the optimiser, the schedule and their numbers; InputError for an unknown
            optimiser.
        records: n, the public expected number of records in a step.
        factors: of the learning rate in each trial, [T, 1].
    """

    def __init__(
        self, training: TrainingConfig, records: float, factors: Tensor | None = None
    ) -> None:
        self._training = training
        self._records = records
        self._factors = factors
        self._change = lookup(OPTIMIZERS, training.optimizer, "training.optimizer")
        self._memory: Memory = {}

    def step(self, model: Tensor, aggregate: Tensor, round: int) -> Tensor:
        """Return the next model, float32 [T, P], computed in float64.

        Args:
            model: float32 [T, P].
            aggregate: [T, P], the released noisy sum.
            round: counts from 1.
        """
        decay = factor(self._training, round)
        change = self._change(
            self._memory, aggregate.double(), decay, self._training, self._records
        )
        if self._factors is not None:  # every optimiser's change is proportional to its rate
            change *= self._factors
        return (model.double() + change).float()

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's memory, by PyTorch's names; empty for plain SGD."""
        return dict(self._memory)

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Continue where another optimiser with the same configuration stopped, at its `state`."""
        self._memory = dict(state)
