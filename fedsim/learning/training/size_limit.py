"""The size of a network that somebody else describes, before memory is taken for it.

A few bytes of a description can ask for any number of units, classes or layers. What is built is
counted, and no network may be larger than the file of values that comes with it.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import nn
from torch.nn.modules import module

from adversaries.errors import InputError

Shapes = Mapping[str, tuple[int, ...]]

SPARE = 2**24
"""Numbers that a network may have beyond those of its file: a classifier drawn anew, masks."""

MODULES = 20
"""Layers, containers and activations that a network may have for each array of its file."""


@contextmanager
def no_larger(shapes: Shapes, where: str) -> Iterator[None]:
    """Stop the construction of a network that is larger than a file of values.

    shapes: of the file's arrays, by name.
    Raises InputError if more is built inside of the block.
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
                f"the network is described as larger than the values in '{where}': it is of "
                "another model, or damaged; restore both from a copy"
            )

    with ExitStack() as hooks:
        for register in (
            module.register_module_parameter_registration_hook,
            module.register_module_buffer_registration_hook,
            module.register_module_module_registration_hook,
        ):
            hooks.callback(register(count).remove)
        yield


def check(network: nn.Module, shapes: Shapes, where: str) -> None:
    """Check that a network's values are those of a file, by names and shapes.

    shapes: of the file's arrays, by name.
    Raises InputError if they are not.
    """
    own = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    for name in {**own, **shapes}:
        if own.get(name) != shapes.get(name):
            raise InputError(
                f"'{where}' is damaged or of another model: its '{name}' is "
                f"{_said(shapes.get(name))}, and the network's {_said(own.get(name))}"
            )


def _said(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else str(list(shape))
