"""Server optimisers: from the aggregate of a round to the next model, row by row of [T, P]."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from adversaries.registry import lookup
from fedsim.config import TrainingConfig
from fedsim.learning.training.schedules import factor

Builder = Callable[[Tensor, TrainingConfig, float], torch.optim.Optimizer]
"""(tensor, training, n) -> optimiser of the tensor, whose gradient is the aggregate over n records.
"""


def _adam(step: Tensor, training: TrainingConfig, records: float) -> torch.optim.Optimizer:
    # m/(sqrt(v) + epsilon) for the mean equals m/(sqrt(v) + n epsilon) for the sum.
    return torch.optim.Adam(
        [step], training.rate, (training.beta1, training.beta2), records * training.adam_epsilon
    )


class _Normalized(torch.optim.Optimizer):
    """Normalised steps with momentum, separately for each row of a [T, P] tensor.

    m and v are running means of the aggregate g and of its squared norm, and the step is -lr m /
    sqrt(v): where noise outweighs the signal, m is shorter than sqrt(v). Only v is corrected for
    its start from 0, which warms up the steps: the first aggregate would be a step of full length.

    Source: Cutkosky & Mehta, "Momentum improves normalized SGD" (2020), with v instead of m's norm.
    """

    def __init__(self, step: Tensor, lr: float) -> None:
        super().__init__([step], {"lr": lr})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the step by one aggregate, which is its gradient."""
        (group,) = self.param_groups
        (step,) = group["params"]
        gradient, state = step.grad, self.state[step]
        if not state:
            state |= {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(step)}
            state["exp_avg_sq"] = torch.zeros_like(step[:, :1])
        state["step"] += 1
        square = gradient.square().sum(1, keepdim=True)
        state["exp_avg"].lerp_(gradient, 1 - MEMORY)
        state["exp_avg_sq"].lerp_(square, 1 - MEMORY)
        unbiased = 1 - MEMORY ** float(state["step"])
        scale = (state["exp_avg_sq"] / unbiased).sqrt().clamp(min=torch.finfo(step.dtype).tiny)
        step.data.sub_(group["lr"] * state["exp_avg"] / scale)


MEMORY = 0.8
"""Share of its running means that the optimiser "normalized" keeps from one round to the next."""


OPTIMIZERS: dict[str, Builder] = {
    "sgd": lambda step, training, records: torch.optim.SGD(
        [step], training.rate / records, training.momentum
    ),
    "adam": _adam,
    "normalized": lambda step, training, _: _Normalized(step, training.rate),
}

LINEAR = frozenset({"sgd"})
"""Optimisers whose steps are linear in the aggregates so far."""


class ServerOptimizer:
    """Steps the models of one batch of trials, round after round.

    Args:
        training: names optimiser and schedule; InputError for an unknown one.
        records: n, the public expected number of records in a step.
    """

    def __init__(self, training: TrainingConfig, records: float) -> None:
        self._training = training
        self._records = records
        self._build = lookup(OPTIMIZERS, training.optimizer, "training.optimizer")
        self._optimizer: torch.optim.Optimizer | None = None
        self._base_rate = 0.0
        self._step = torch.empty(0)

    def step(self, model: Tensor, aggregate: Tensor, round: int) -> Tensor:
        """Return the next model, float32 [T, P], computed in float64.

        Args:
            model: float32 [T, P].
            aggregate: [T, P], the released noisy sum.
            round: counts from 1.
        """
        if self._optimizer is None:
            self._optimizer = self._new_optimizer(model)
        self._optimizer.param_groups[0]["lr"] = self._base_rate * factor(self._training, round)
        self._step.zero_()
        self._step.grad = aggregate.double()
        self._optimizer.step()
        self._step.grad = None
        return (model.double() + self._step).float()

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's memory, by PyTorch's names; empty for plain SGD."""
        state = {} if self._optimizer is None else self._optimizer.state[self._step]
        return {name: torch.as_tensor(value) for name, value in state.items() if value is not None}

    def resume(self, model: Tensor, state: Mapping[str, Tensor]) -> None:
        """Continue where another optimiser with the same configuration stopped.

        Args:
            model: float32 [T, P], to be stepped next.
            state: the other optimiser's `state`.
        """
        self._optimizer = self._new_optimizer(model)
        if state:
            self._optimizer.state[self._step] = dict(state)

    def _new_optimizer(self, model: Tensor) -> torch.optim.Optimizer:
        self._step = torch.zeros(model.shape, dtype=torch.float64, device=model.device)
        optimizer = self._build(self._step, self._training, self._records)
        self._base_rate = optimizer.param_groups[0]["lr"]
        return optimizer
