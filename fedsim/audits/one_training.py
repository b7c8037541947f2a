"""What can be told of a single training, and what cannot: it has no statistics.

How often an adversary is right, or surer than it may be, is a share of several trials. Of one there
is none, and a report leaves these values out: an adversary that was right has no advantage of 1.
"""

from collections.abc import Mapping
from typing import Any

CAUTION = (
    "One training has no statistics: how often an adversary is right cannot be told from it, nor "
    "whether its noise is what was claimed. Measure that beforehand, with many trials on data that "
    "need no protection."
)

RATES = (
    *("advantage", "advantage_interval", "standard_error"),
    *("delta_prime", "delta_prime_interval", "within_bound", "near_prediction"),
    *("wins", "losses", "ties"),
)
"""What is measured and is a share of the trials."""


def is_single(report: Mapping[str, Any]) -> bool:
    """Whether a report is of one training."""
    return bool(report["trials"] == 1)


def without_rates(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of one training with None for everything that is a share of trials."""
    vantages = {
        name: {**row, "empirical": row["empirical"] and _without(row["empirical"])}
        for name, row in report["vantages"].items()
    }
    empirical = _without(report["empirical"])
    empirical["epsilon"] = {**empirical["epsilon"], "advantage": None}
    success = {"pac": {**report["pac"], "success": None}}
    return {**report, "empirical": empirical, "vantages": vantages, **success}


def _without(measured: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if name in RATES else value for name, value in measured.items()}
