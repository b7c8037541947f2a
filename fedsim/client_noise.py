"""Signs that a client's training is differentially private by itself, and what it reports of that.

Such a guarantee is of the client's records, and its noise is part of the update before anybody else
sees it: neither a server's transcript nor an app's trials, in which no training is run, can measure
it.
"""

import re
from collections.abc import Mapping
from typing import Any


def reported_epsilon(metrics: Mapping[str, Any]) -> float | None:
    """Return the largest epsilon among a client's metrics, None if it reports none."""
    found = [
        float(value)
        for name, value in metrics.items()
        if {"epsilon", "eps"} & set(re.split(r"[^a-z]+", name.lower()))
        and isinstance(value, int | float)
        and value >= 0
    ]
    return max(found, default=None)
