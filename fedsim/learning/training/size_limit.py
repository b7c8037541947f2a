"""A limit on the size of a network from another party, checked before memory is taken for it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import nn
from torch.nn.modules import module

from adversaries.errors import InputError

Shapes = Mapping[str, tuple[int, ...]]

SPARE = 2**24
"""Numbers that a network may have beyond its file's: a new classifier, masks."""

MODULES = 20
"""Layers, containers and activations that a network may have for each array of its file."""


@contextmanager
def no_larger(shapes: Shapes, where: str) -> Iterator[None]:
    """Stop a network's construction in the block if it is larger than shapes.

    Raises InputError if it is.
    """
    most = 2 * sum(map(math.prod, shapes.values())) + SPARE
    modules = MODULES * (len(shapes) + 10)
    numbers = built = 0

    def count(_: nn.Module, name: str, value: object) -> None:
        nonlocal numbers, built
        built += 1
        numbers += getattr(value, "numel", int)() if name else 0
        if numbers > most or built > modules:
            raise InputError(
                f"the network is described as larger than the values in '{where}': the file is "
                "damaged, or of another model; restore both from a copy"
            )

    with ExitStack() as hooks:
        for register in (
            module.register_module_parameter_registration_hook,
            module.register_module_buffer_registration_hook,
            module.register_module_module_registration_hook,
        ):
            hooks.callback(register(count).remove)
        yield


def check_shapes(network: nn.Module, shapes: Shapes, where: str) -> None:
    """Raise InputError unless a network's values have the names and shapes of a file's arrays."""
    own = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    for name in {**own, **shapes}:
        if own.get(name) != shapes.get(name):
            raise InputError(
                f"'{where}' is damaged or of another model: the shape of '{name}' is "
                f"{shapes.get(name, 'missing')}, but the network's is {own.get(name, 'missing')}"
            )
