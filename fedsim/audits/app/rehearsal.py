"""Training twice, from other seeds: whether anything in it is drawn at random."""

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from flwr.app import Context, Message, RecordDict

from fedsim.audits.sandbox.seeding import set_seeds

Train = Callable[[Message, Context], Message]


def rehearsed(train: Train, message: Message, context: Context, seed: int) -> tuple[Message, bool]:
    """Train, then once more on a copy from another seed; return the reply, and whether they differ.

    The first time goes on from the generators as they are, and whatever comes after it as if there
    had been no second. A second time that fails counts as different.

    Args:
        train: the app's own, which may change the message and the context.
        seed: of all global generators the second time.
    """
    # Before the first time, which may change either.
    message_again, context_again = copy.deepcopy(message), copy.deepcopy(context)
    reply = train(message, context)
    if reply.has_error():
        return reply, True
    with _generators_kept():
        set_seeds(seed)
        try:
            other = train(message_again, context_again)
        except Exception:
            return reply, True
        return reply, other.has_error() or _arrays(other.content) != _arrays(reply.content)


@contextmanager
def _generators_kept() -> Iterator[None]:
    torch = sys.modules.get("torch")
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    of_torch = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(of_torch)


def _arrays(content: RecordDict) -> dict[tuple[str, str], bytes]:
    return {
        (name, key): array.data
        for name, record in content.array_records.items()
        for key, array in record.items()
    }
