"""The loss of each example, for gradients, beliefs and evaluations."""

from torch import Tensor
from torch.nn import functional

from fedsim.common.device import at_least_float32


def per_example(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each example, in nats.

    logits: [..., c]; a single one (c = 1) is the log-odds of class 1.
    labels: [...] integers.
    Returns: [...], at least float32.
    """
    # bfloat16 has only eight bits of precision, too few for a log-sum-exp.
    logits = at_least_float32(logits)
    if logits.shape[-1] == 1:
        targets = labels.to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(
            logits.squeeze(-1), targets, reduction="none"
        )
    rows = logits.reshape(-1, logits.shape[-1])
    return functional.cross_entropy(rows, labels.reshape(-1), reduction="none").reshape(
        labels.shape
    )


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return whether the likeliest class of logits [..., c] is the label, bool [...]."""
    if logits.shape[-1] == 1:
        return (logits.squeeze(-1) > 0) == labels.bool()
    return logits.argmax(-1) == labels
