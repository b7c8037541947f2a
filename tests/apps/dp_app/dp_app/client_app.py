"""The clients: one step of softmax regression on a share of the digits."""

from functools import cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod

from dp_app.variants import known

app = ClientApp()


def privacy_mod(message: Message, context: Context, call_next: Any) -> Message:
    """Apply the mod that the variant asks for."""
    config = context.run_config
    norm, epsilon, delta = (float(config[key]) for key in ("clipping-norm", "epsilon", "delta"))
    mods = {
        "client-fixed": fixedclipping_mod,
        "accountant-and-local": LocalDpMod(norm, norm, 200.0, delta),
        "local-dp": LocalDpMod(norm, norm, epsilon, delta),
    }
    mod = mods.get(known(config["variant"]))
    return call_next(message, context) if mod is None else mod(message, context, call_next)


@app.train(mods=[privacy_mod])
def train(message: Message, context: Context) -> Message:
    """Take one gradient step on this client's digits."""
    arrays = message.content.array_records["arrays"]
    weights, bias = (arrays[name].numpy() for name in ("weights", "bias"))
    partition, partitions = (
        int(context.node_config[key]) for key in ("partition-id", "num-partitions")
    )
    images, labels = _digits()
    # Shares of unequal size: client j has about (j + 1) times as many digits as client 0.
    bounds = (
        np.cumsum([0, *range(1, partitions + 1)])
        * len(images)
        // (partitions * (partitions + 1) // 2)
    )
    mine = slice(bounds[partition], bounds[partition + 1])
    images, labels = images[mine], labels[mine]
    scores = images @ weights + bias
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    errors = scores / scores.sum(axis=1, keepdims=True)
    errors[np.arange(len(labels)), labels] -= 1
    rate = float(context.run_config["learning-rate"]) / len(images)
    moved = {
        "weights": weights - rate * images.T @ errors,
        "bias": bias - rate * errors.sum(axis=0),
    }
    record = ArrayRecord({name: Array(value.astype(np.float32)) for name, value in moved.items()})
    metrics = MetricRecord({"num-examples": len(images), "one": 1})
    return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits  # noqa: PLC0415  (slow; a scripted run needs no data)

    digits = load_digits()
    return (digits.data / 16).astype(np.float32), digits.target
