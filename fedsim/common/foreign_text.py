"""Text of other parties, without terminal commands, and shortened."""

import re

UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that command a terminal, reorder its text, or cannot be written to it."""


def shown(text: str) -> str:
    """Return text with a replacement character for each character that a terminal would obey."""
    return UNSHOWN.sub("\ufffd", text)


def brief(text: str, most: int) -> str:
    """Return text as `shown` does, with a mark where it was cut off."""
    return shown(text[:most]) + "…" * (len(text) > most)
