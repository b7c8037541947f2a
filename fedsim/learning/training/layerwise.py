"""Per-example gradients of a whole model from one forward and one backward pass."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call

from fedsim.common.device import Precision, at_least_float32, reduced
from fedsim.learning.training.gradients import Backward, Gradient, Rule, joined, weighted_sum
from fedsim.learning.training.layers import ChannelAffine, by_torch_func, refusal, rule_of
from fedsim.learning.training.models import flatten, parameter_shapes, size, unflatten
from fedsim.learning.training.tasks import task_of


@dataclass(frozen=True)
class _Layer:
    """A parametrised layer, its rule, the names of its trained parameters, and frozen ones."""

    module: nn.Module
    rule: Rule
    names: dict[str, str]
    frozen: dict[str, Tensor]


@dataclass(frozen=True)
class _Call:
    """A call of a layer: its input, its backward function, and the graph edge for e."""

    layer: str
    x: Tensor
    version: int
    backward: Backward
    output: GradientEdge | None


class LayerwiseModel:
    """A private copy of a model whose parametrised layers run T trials as one batch.

    It is not thread-safe. `fallbacks` says why a layer goes through `torch.func`.
    """

    def __init__(self, model: nn.Module, precision: Precision = "float32") -> None:
        self._model = copy.deepcopy(model)
        self._precision = precision
        self._shapes = parameter_shapes(model)
        self._layers: dict[str, _Layer] = {}
        self._calls: list[_Call] = []
        self._values: dict[str, Tensor] = {}
        self._apart = False
        self.fallbacks: dict[str, str] = {}
        originals = {id(p): name for name, p in self._model.named_parameters()}
        for name, module in _parametrised(self._model):
            reason = refusal(module)
            if reason is not None:
                self.fallbacks[name] = reason
            own = dict(module.named_parameters(remove_duplicate=False))
            self._layers[name] = _Layer(
                # torch.func calls the module itself, so it needs one whose forward stays original.
                module if reason is None else copy.deepcopy(module),
                (reason is None and rule_of(module)) or by_torch_func,
                {key: originals[id(p)] for key, p in own.items() if p.requires_grad},
                {key: p.detach() for key, p in own.items() if not p.requires_grad},
            )
        for name in self._layers:
            self._model.get_submodule(name).forward = partial(self._forward, name)
        self._pool_early()
        self._activate_in_place()

    def gradients(self, parameters: Tensor, features: Tensor, labels: Tensor) -> list[Gradient]:
        """Return the unclipped gradients, one item for each trained parameter in order.

        features: [n, *shape], or [T, n, *shape] if trials have separate records.
        labels: [n] or [T, n].
        Raises ValueError unless the model calls every parametrised layer on an unchanged batch of
        examples.
        """
        self._begin(parameters.detach().requires_grad_(), labels.shape[-1])
        # Records that all trials share become T * n rows at the first layer.
        if labels.dim() == 2:
            features, labels = features.flatten(0, 1), labels.flatten()
        else:
            labels = labels.repeat(len(parameters))
        # One backward pass of the sum of all losses suffices: a row's e depends on its own loss.
        with reduced(self._precision, features.device):
            logits = self._run(features)
            self._check(logits)
            loss = task_of(self._model).loss(logits, labels).sum()
            edges = [call.output for call in self._calls if call.output is not None]
            errors = torch.autograd.grad(loss, edges)
        # A rule may overwrite its e, but added branches share one e: copy e if it is shared.
        uses = Counter(error.untyped_storage().data_ptr() for error in errors)
        parts: dict[str, list[Gradient]] = {name: [] for name in self._shapes}
        # Each call's rule turns its e into gradients; a tied parameter gets several.
        for call, error in zip(self._calls, errors, strict=True):
            own = error if uses[error.untyped_storage().data_ptr()] == 1 else error.clone()
            if 0 in own.stride():  # expanded, as behind a sum
                own = own.contiguous()
            gradients = call.backward(at_least_float32(own.unflatten(0, self._size)))
            for key, name in self._layers[call.layer].names.items():
                parts[name].append(gradients[key])
        self._end()
        return [joined(uses) for uses in parts.values()]

    @torch.no_grad()
    def logits(self, parameters: Tensor, features: Tensor) -> Tensor:
        """Return the logits [T, n, c] of records [n, *shape], in full precision."""
        self._begin(parameters.detach(), len(features))
        logits = self._run(features)
        self._check(logits)
        self._end()
        return logits.unflatten(0, self._size)

    def _run(self, features: Tensor) -> Tensor:
        """Return the logits of all trials.

        The layers before the first trained layer run once for all trials. If a shortcut leads past
        the trained layer and meets the outputs of every trial, they run once for each trial.
        """
        trials, records = self._size
        if not self._apart:
            try:
                return self._model(features)
            except RuntimeError:
                if trials == 1 or len(features) != records:
                    raise
            self._apart, self._calls = True, []
        if len(features) == records:
            features = features.repeat(trials, *[1] * (features.dim() - 1))
        return self._model(features)

    def _begin(self, parameters: Tensor, records: int) -> None:
        self._size = (len(parameters), records)
        self._values = unflatten(parameters, self._shapes)
        self._calls = []

    def _end(self) -> None:
        self._calls, self._values = [], {}

    def _forward(self, name: str, x: Tensor) -> Tensor:
        layer, (trials, records) = self._layers[name], self._size
        if len(x) == 1:  # the same for all records, such as the numbers of positions
            x = x.expand(records, *x.shape[1:])
        if len(x) not in (records, records * trials):
            raise ValueError(f"layer '{name}' gets {len(x)} rows, which are not the records")
        # Before the first parametrised layer all trials are equal, and run once.
        x = x.unflatten(0, (-1, records))
        values = {key: self._values[own] for key, own in layer.names.items()}
        values |= {key: p.expand(trials, *p.shape) for key, p in layer.frozen.items()}
        output, backward = layer.rule(layer.module, values, x)
        output = output.flatten(0, 1)
        # e arrives at the output's edge of the graph, even if an activation overwrites the output.
        # Writing into a view would replace the edge; this makes it no view, without a copy.
        output = torch.ops.aten._unsafe_view(output, output.shape)
        edge = get_gradient_edge(output) if torch.is_grad_enabled() else None
        self._calls.append(_Call(name, x.detach(), x._version, backward, edge))
        return output

    def _pool_early(self) -> None:
        """Let a max-pooling run before a ReLU, and a channel-wise affine map, that precede it.

        The largest number of a window stays the largest under a map that rises. Where outputs tie,
        by rounding or because a scale is 0, PyTorch's gradient goes to the first of them and this
        one's to the largest input; both are subgradients. The maps then run on a quarter of the
        memory. Only in a Sequential, behind a layer with a rule, for modules
        that occur once in the model. A GPU, where each kernel costs a launch, runs affine maps
        where they are.
        """
        modules = Counter(module for _, module in self._model.named_modules(remove_duplicate=False))
        names = {module: name for name, module in self._model.named_modules()}
        for chain in self._model.modules():
            if type(chain) is not nn.Sequential:
                continue
            children = [
                (name, module) for name, module in chain._modules.items() if module is not None
            ]
            for place in range(1, len(children) - 1):
                layer, *follow = (module for _, module in children[place - 1 : place + 3])
                scaled = len(follow) > 2 and isinstance(follow[1], ChannelAffine)
                pool = follow[1 + scaled]
                after = [module for _, module in children[place + 2 + scaled : place + 3 + scaled]]
                if (
                    names[layer] in self._layers.keys() - self.fallbacks.keys()
                    and isinstance(follow[0], nn.ReLU)
                    and isinstance(pool, nn.MaxPool2d)
                    and not pool.return_indices
                    and all(modules[each] == 1 for each in follow[: 2 + scaled])
                    and not (scaled and follow[1].weight.device.type != "cpu")
                    # It would overwrite what the ReLU's gradient needs.
                    and not any(getattr(each, "inplace", False) for each in after)
                ):
                    if scaled:
                        signed = partial(self._extremes, names[follow[1]], pool.forward)
                        pool.forward = signed  # type: ignore[method-assign]
                    children.insert(place, children.pop(place + 1 + scaled))
                    follow[0].inplace = True  # nothing else sees the pooled output
            chain._modules = dict(children)

    def _extremes(self, affine: str, pool: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the number of each window that an affine map makes largest.

        Where a channel's weight is negative, that is the smallest.

        affine: name of the map.
        x: [T * n, channels, *sizes].
        """
        trials, records = self._size
        trained = self._layers[affine].names.get("weight") if affine in self._layers else None
        weight = self._values[trained] if trained else self._model.get_parameter(f"{affine}.weight")
        negative = weight.detach() < 0
        if not bool(negative.any()):
            return pool(x)
        sign = torch.where(negative, -1.0, 1.0).to(x.dtype).expand(trials, -1)
        sign = sign[:, None, :, None, None].expand(-1, records, -1, -1, -1).flatten(0, 1)
        return sign * pool(sign * x)

    def _activate_in_place(self) -> None:
        """Let a ReLU in a Sequential overwrite the output before it, which no rule needs again."""
        places = Counter(module for _, module in self._model.named_modules(remove_duplicate=False))
        ruled = {id(self._model.get_submodule(name)) for name in self._layers}
        ruled -= {id(self._model.get_submodule(name)) for name in self.fallbacks}
        for chain in self._model.modules():
            if type(chain) is nn.Sequential:
                for layer, activation in pairwise(chain):
                    alone = isinstance(activation, nn.ReLU) and places[activation] == 1
                    if alone and id(layer) in ruled:
                        activation.inplace = True  # type: ignore[assignment]

    def _check(self, logits: Tensor) -> None:
        called = {call.layer for call in self._calls}
        if missing := [name for name in self._layers if name not in called]:
            raise ValueError(f"layer '{missing[0]}' takes no part in the forward pass")
        for call in self._calls:
            if call.x._version != call.version:
                raise ValueError(f"the input of layer '{call.layer}' is overwritten after its use")
        trials, records = self._size
        if len(logits) != records * trials:
            raise ValueError("the model does not map each record to separate logits")


def fallbacks(model: nn.Module, record: Tensor) -> dict[str, str]:
    """Return the layers that must go through `torch.func`, by name, and why.

    Compares `LayerwiseModel` on copies of a record with autograd. A model that mixes or reorders
    the examples of a batch would get wrong gradients without an error. It runs once for a kind of
    record, on the CPU: an error of a GPU says nothing about the model.

    record: [*shape]; only shape and type matter.
    Returns: '' stands for the whole model.
    """
    by_kind = _fallbacks.setdefault(model, {})
    kind = (record.shape, record.dtype)
    if kind not in by_kind:
        by_kind[kind] = _find_fallbacks(model, record.cpu())
    return by_kind[kind]


_fallbacks: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], dict[str, str]]] = (
    WeakKeyDictionary()
)


def _find_fallbacks(model: nn.Module, record: Tensor) -> dict[str, str]:
    try:
        layerwise = LayerwiseModel(model)
        if "" not in layerwise.fallbacks:
            _compare(copy.deepcopy(model).cpu().double(), record)
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        return {"": next(iter(str(error).splitlines()), type(error).__name__)}
    return layerwise.fallbacks


def _compare(model: nn.Module, record: Tensor) -> None:
    """Raise ValueError unless the sums over records agree with autograd's, record by record."""
    shapes, task = parameter_shapes(model), task_of(model)
    # Different numbers of trials and records, so that swapped axes are detected.
    trials, records = 3, 2
    generator = torch.Generator().manual_seed(0)
    jitter = 0.1 * torch.randn(trials, size(model), generator=generator).to(record.device)
    parameters = flatten(model) + jitter
    features = _different(model, record, records, generator)
    # Different labels, and different weights for all examples, so that mixed examples are detected.
    with torch.no_grad():
        classes = max(2, model(features[:1]).shape[-1])
    labels = torch.arange(records, device=record.device) % classes
    weights = torch.rand(trials, records, dtype=torch.float64, generator=generator).to(
        labels.device
    )
    gradients = LayerwiseModel(model).gradients(parameters, features, labels)
    total = weighted_sum(gradients, weights)
    # The same weighted sum from autograd, trial by trial and record by record.
    for trial in range(trials):
        values = unflatten(parameters[trial].requires_grad_(), shapes)
        loss = torch.stack(
            [
                task.loss(functional_call(model, values, (feature[None],)), label[None])[0]
                for feature, label in zip(features, labels, strict=True)
            ]
        ).dot(weights[trial])
        expected = torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(values.values()))]
        )
        # Compare norms: single entries of a gradient may be pure rounding error.
        if not (total[trial] - expected).norm() <= 1e-6 * expected.norm():  # also false for NaN
            raise ValueError("its layer-by-layer gradients differ from autograd's")


def _different(
    model: nn.Module, record: Tensor, records: int, generator: torch.Generator
) -> Tensor:
    """Return different records like one: near it, or of random tokens where a table has rows."""
    shape = (records, *record.shape)
    rows = [each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding)]
    # Positions and kinds of tokens may have tables too; every number below the largest is a token.
    if rows:
        tokens = torch.randint(0, max(rows), shape, generator=generator).to(record.device)
        return tokens.double() if record.is_floating_point() else tokens.to(record.dtype)
    if record.is_floating_point():
        return record.double() + torch.randn(shape, generator=generator).to(record.device)
    return torch.stack([record, record.flip(0) if record.dim() else record])


def _parametrised(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules with trained parameters, except inside a module without a rule."""
    whole: list[str] = []
    for name, module in model.named_modules():
        if any(f"{name}.".startswith(outer) for outer in whole):
            continue
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            if refusal(module) is not None:
                whole.append(f"{name}." if name else "")
            yield name, module
