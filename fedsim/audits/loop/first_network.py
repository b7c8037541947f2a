"""The same first network in all attacked runs of a loop.

The claim must hold for each first network, which the adversary may know. A network that every run
draws anew hides the target behind its own randomness, and noise that is too small stays unseen.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

FIRST = 1 << 20
"""Seed of the first parameter that is drawn; the next ones have the next seeds."""


@contextmanager
def same_first_network() -> Iterator[None]:
    """Let `torch.nn.init` fill the parameters of every run with the same numbers.

    Each call counts from the last entry of this block. The numbers that the loop draws elsewhere,
    such as its noise, do not depend on it.
    """
    from torch import default_generator, get_rng_state, set_rng_state  # noqa: PLC0415
    from torch.nn import Parameter, init  # noqa: PLC0415

    seeds = count(FIRST)

    def fixed(fill: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fill)
        def wrapped(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(tensor, Parameter):  # it may be noise
                return fill(tensor, *args, **kwargs)
            state = get_rng_state()
            default_generator.manual_seed(next(seeds))
            try:
                return fill(tensor, *args, **kwargs)
            finally:
                set_rng_state(state)

        return wrapped

    names = [name for name in vars(init) if name.endswith("_") and not name.startswith("_")]
    had = {name: getattr(init, name) for name in names}
    try:
        vars(init).update({name: fixed(fill) for name, fill in had.items()})
        yield
    finally:
        vars(init).update(had)
