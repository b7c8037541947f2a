"""The noise that a transcript's mechanism speaks of, as numbers that can be believed."""

import math
from collections.abc import Mapping
from typing import Any

CONFIGURED = 1e-30, 1e30
"""Between these a configured number other than 0 is believed: squares of noise can be formed."""

NUMBERS = (
    "noise_multiplier",
    "clipping_norm",
    "noise_clipping_norm",
    "num_sampled_clients",
    "clipped_count_std",
    "local_clipping_norm",
    "local_sensitivity",
    "local_epsilon",
    "local_delta",
    "local_noise_std",
    "divisor",
    "neighbour_divisor",
    "total_weight",
    "sample_rate",
    "expected_batch_size",
    "accountant_noise_multiplier",
    "accountant_sample_rate",
)
"""What an audit takes of a mechanism as a number."""


def claimed_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's central DP: z C/n, with the C that scaled the noise."""
    multiplier = number(mechanism, "noise_multiplier")
    norm = number(mechanism, "noise_clipping_norm") or number(mechanism, "clipping_norm")
    clients = number(mechanism, "num_sampled_clients")
    if multiplier is None or norm is None or not clients:
        return None
    return multiplier * norm / clients


def claimed_local_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the declared noise, or Flower's LocalDpMod's: s sqrt(2 ln(1.25/delta)) / epsilon."""
    declared = number(mechanism, "local_noise_std")
    if declared is not None:
        return declared
    sensitivity, epsilon, delta = (
        number(mechanism, f"local_{name}") for name in ("sensitivity", "epsilon", "delta")
    )
    if sensitivity is None or not epsilon or not delta or delta >= 1.25:
        return None
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def number(mechanism: Mapping[str, Any], name: str) -> float | None:
    """Return a configured number, None if there is none that can be believed.

    Args:
        name: one of `NUMBERS`, or "client_epsilon".
    """
    value = mechanism.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if unbelievable(value) else float(value)


def unbelievable(value: Any) -> bool:
    """Return whether this is a number, but none that noise can be worked out from."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    smallest, largest = CONFIGURED
    return not (value == 0 or smallest <= value <= largest)
