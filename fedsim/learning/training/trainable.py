"""The trained parameters of a network, by names with *, and its low-rank adapters."""

import difflib
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from adversaries.errors import InputError


class LowRankLinear(nn.Module):
    """A Linear layer (or GPT-2's transposed one) that is not trained, and a trained addition."""

    def __init__(self, base: Any, rank: int) -> None:
        super().__init__()
        self._transposed = not isinstance(base, nn.Linear)
        shape = base.weight.shape if self._transposed else base.weight.shape[::-1]
        self.in_features, self.out_features = shape
        self.base = base
        self.down = nn.Linear(self.in_features, rank, bias=False)
        self.up = nn.Linear(rank, self.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return W x + b + BA x for x [N, *, in]."""
        added, out = self.up(self.down(x)), self.base(x)
        if len(added) > len(out):  # several trials, which share the layers before the first A
            out = out.repeat(len(added) // len(out), *[1] * (out.dim() - 1))
        return torch.add(out, added)

    @property
    def weight(self) -> Tensor:
        """W + BA, for modules that read a layer's weight instead of calling it."""
        added = self.up.weight @ self.down.weight
        return self.base.weight + (added.mT if self._transposed else added)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias


def adapt(model: nn.Module, rank: int) -> nn.Module:
    """Return the network with adapters at every Linear layer, in place.

    model: is changed; layers whose weight is trained stay unchanged.
    Raises InputError if no layer can have an adapter.
    """
    made: dict[nn.Module, nn.Module] = {}
    # A decoder may use its table of tokens as the output layer, which gets no adapter.
    uses = Counter(id(getattr(layer, "weight", None)) for layer in model.modules())
    # A layer that is used in two places gets one adapter.
    for path, layer in list(model.named_modules(remove_duplicate=False)):
        if _is_linear(layer) and not layer.weight.requires_grad and uses[id(layer.weight)] == 1:
            made.setdefault(layer, LowRankLinear(layer, rank))
            model = _put(model, path, made[layer])
    if not made:
        raise InputError(
            f"model.lora-rank is {rank}, but the network has no untrained Linear layer that could "
            "have adapters; set it to 0, or name fewer layers with model.trainable"
        )
    return model


def merge(model: nn.Module) -> nn.Module:
    """Return the same function as a plain network: each W + BA becomes one matrix, in place."""
    plain: dict[nn.Module, nn.Module] = {}
    for path, layer in list(model.named_modules(remove_duplicate=False)):
        if isinstance(layer, LowRankLinear):
            if layer not in plain:
                plain[layer] = layer.base
                with torch.no_grad():
                    layer.base.weight.copy_(layer.weight)
            model = _put(model, path, plain[layer])
    return model


def _is_linear(layer: Any) -> bool:
    return isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"


def _put(model: nn.Module, path: str, layer: nn.Module) -> Any:
    if not path:
        return layer
    model.set_submodule(path, layer)
    return model


def train_only(model: nn.Module, names: str) -> None:
    """Train only the named layers or parameters ("" for none), in place.

    Raises InputError if unknown.
    """
    parameters = dict(model.named_parameters())
    chosen = _named(parameters, names)
    for path, parameter in parameters.items():
        parameter.requires_grad_(path in chosen)


def _named(parameters: Mapping[str, nn.Parameter], names: str) -> set[str]:
    matches = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        inside = [path for path in parameters if fnmatchcase(f"{path}.", f"{name}.*")]
        if not inside:
            layers = {path.rpartition(".")[0] for path in parameters} - {""}
            near = difflib.get_close_matches(name, [*parameters, *sorted(layers)], n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise InputError(
                f"model.trainable names '{name}', which has no parameters; {hint}give names from "
                f"{', '.join(parameters)}"
            )
        matches.update(inside)
    return matches
