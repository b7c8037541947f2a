"""Replies of clients in a scripted run, and the test whether their own training is random."""

import copy
import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict

from fedsim.audits.app.process import Script, Vector, direction
from fedsim.audits.sandbox.channel import AppFailedError, set_seeds

Train = Callable[[Message, Context], Message]


def scripted(template: RecordDict, message: Message, script: Script, partition: int) -> RecordDict:
    """Return the honest reply with the script's arrays and weight in it.

    Args:
        template: a copy of the honest run's reply, which is changed in place.
        script: gives the target its update and weight; all other clients send the idle update.
    """
    model = next(iter(message.content.array_records.values()))
    size = sum(math.prod(array.shape) for array in model.values() if _floating(array))
    if partition == script.target:
        update = script.length * direction(script.seed, size)
    else:
        update = np.zeros(size)
        update[0] = script.idle
    for name in template.array_records:
        template[name] = _moved(model, update)
    if partition == script.target and script.weight is not None:
        for metrics in template.metric_records.values():
            if script.weighted_by in metrics:
                whole = isinstance(metrics[script.weighted_by], int)
                metrics[script.weighted_by] = int(script.weight) if whole else script.weight
    return template


def _moved(model: ArrayRecord, update: Vector) -> ArrayRecord:
    """Return the model plus the update [P]."""
    moved, start = {}, 0
    for name, array in model.items():
        moved[name] = array
        if _floating(array):
            change = update[start : start + math.prod(array.shape)]
            start += change.size
            if change.any():
                values = array.numpy()
                moved[name] = Array((values + change.reshape(array.shape)).astype(values.dtype))
    return ArrayRecord(moved)


def flat(content: RecordDict) -> Vector:
    """Return all floating-point numbers of a message's one model, float64 [P].

    Raises:
        AppFailedError: it holds several models, or none.
    """
    records = list(content.array_records.values())
    if len(records) != 1:
        raise AppFailedError(f"a message holds {len(records)} models; one can be audited")
    return flat_record(records[0])


def flat_record(record: ArrayRecord) -> Vector:
    """Return all floating-point numbers of a model, float64 [P]."""
    floating = [array.numpy().ravel() for array in record.values() if _floating(array)]
    return np.concatenate(floating).astype(np.float64) if floating else np.empty(0)


def _floating(array: Array) -> bool:
    return np.issubdtype(np.dtype(array.dtype), np.floating)


def rehearsed(train: Train, message: Message, context: Context, seed: int) -> tuple[Message, bool]:
    """Train, then train a copy with another seed; return the reply, and whether the two differ.

    The second training leaves no trace in the generators. If it fails, it counts as different.
    """
    # Copied first, since training may change both.
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
