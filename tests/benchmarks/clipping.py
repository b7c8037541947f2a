"""Examples per second of a clipped-gradient step: fedsim, torch.func, Opacus and no privacy.

Each step takes the clipped sum of T models over the same records; Opacus and the step without
privacy train the models one after another. Rounds alternate between the contestants, so that a
busy machine slows them all alike; medians are shown. Run

    python tests/benchmarks/clipping.py [--smoke]
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from unittest.mock import patch

import opacus
import torch
from opacus.grad_sample import GradSampleModule
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from fedsim import clipping
from fedsim.clipping import Clipper
from fedsim.layers import Fit
from fedsim.models import ChannelAffine, build, initial_parameters

CLIPPING_NORM = 1.0
SHAPE, CLASSES, HIDDEN = (1, 28, 28), 10, 32
Step = Callable[[], object]


@opacus.grad_sample.register_grad_sampler(ChannelAffine)
def _channel_affine(
    layer: nn.Module, inputs: list[Tensor], errors: Tensor
) -> dict[nn.Parameter, Tensor]:
    product = (inputs[0] * errors).sum((-2, -1))
    return {layer.weight: product, layer.bias: errors.sum((-2, -1))}


def steps(name: str, trials: int, records: int) -> dict[str, Step]:
    """Return one step of every contestant on the same models and records."""
    parameters = initial_parameters(lambda: _model(name), 0, range(trials))
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(records, *SHAPE, generator=generator)
    labels = torch.randint(CLASSES, (records,), generator=generator)
    clipper = Clipper(_model(name), CLIPPING_NORM, torch.get_num_threads())
    reason = clipper.fallback_reason(features[0])
    assert reason is None, reason

    def fedsim() -> Tensor:
        return clipper.clipped_sum(parameters, features, labels)

    generic = Clipper(_model(name), CLIPPING_NORM, torch.get_num_threads())
    with patch.object(clipping, "fit", lambda model, record: Fit("to compare")):
        generic.fallback_reason(features[0])

    def by_torch_func() -> Tensor:
        return generic.clipped_sum(parameters, features, labels)

    plain = [_with_parameters(name, flat) for flat in parameters]
    hooked = [GradSampleModule(_with_parameters(name, flat)) for flat in parameters]
    optimizers = [
        opacus.optimizers.DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=CLIPPING_NORM,
            expected_batch_size=1,
        )
        for model in hooked
    ]

    def by_opacus() -> None:
        for model, optimizer in zip(hooked, optimizers, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(features), labels).backward()
            optimizer.clip_and_accumulate()

    def without_privacy() -> None:
        for model in plain:
            model.zero_grad()
            functional.cross_entropy(model(features), labels).backward()

    return {
        "fedsim": fedsim,
        "torch.func": by_torch_func,
        "Opacus, one by one": by_opacus,
        "no privacy, one by one": without_privacy,
    }


def seconds(contestants: dict[str, Step], rounds: int) -> dict[str, float]:
    """Return each contestant's median wall-clock seconds, after one round to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, step in contestants.items():
            start = time.perf_counter()
            step()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in taken.items()}


def main() -> None:
    """Print one table for all models and numbers of trials."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--smoke", action="store_true", help="two trials, few records, one round")
    smoke = parser.parse_args().smoke
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    records, rounds = (8, 1) if smoke else (100, 3)
    table = Table(title=f"{records} records, {torch.get_num_threads()} threads")
    for column in ("model", "T", "contestant", "examples/s", "fedsim is faster by"):
        table.add_column(column, justify="left" if column in ("model", "contestant") else "right")
    for model in ("mlp", "mnist-cnn"):
        for trials in (2,) if smoke else (1, 8, 64):
            medians = seconds(steps(model, trials, records), rounds)
            for name, median in medians.items():
                rate, ratio = trials * records / median, median / medians["fedsim"]
                table.add_row(model, str(trials), name, f"{rate:,.0f}", f"{ratio:.2f}")
            table.add_section()
    Console().print(table)


def _model(name: str) -> nn.Module:
    return build(name, SHAPE, CLASSES, HIDDEN)


def _with_parameters(name: str, flat: Tensor) -> nn.Module:
    model = _model(name)
    nn.utils.vector_to_parameters(flat, model.parameters())
    return model


if __name__ == "__main__":
    main()
