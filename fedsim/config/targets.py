"""The noise target: one of several keys decides how much noise is added.

A target on the command line replaces one in the file; two in one place are refused.
"""

from collections.abc import Mapping
from typing import Any

TABLE = "privacy"

TARGETS = (
    *("rho-beta", "rho-alpha", "max-risk", "epsilon", "noise-multiplier"),
    "mutual-information",
)
"""Keys of the table that set a target. 0, or "" in an app's declaration, means not set."""

KEYS = tuple(f"{TABLE}.{name}" for name in TARGETS)


def given(values: Mapping[str, Any]) -> list[str]:
    """Return the keys of the noise targets that a configuration sets."""
    return [key for key in KEYS if values.get(key)]


def overlaid(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merged values of two places. The later place wins for each key, and its target."""
    replaced = KEYS if given(later) else ()
    kept = {key: value for key, value in earlier.items() if key not in replaced}
    return kept | dict(later)
