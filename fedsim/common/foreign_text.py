"""Text of others, as it may be shown and kept: it commands no terminal, and is as long as we say.

Whoever writes to us decides what its errors, names and messages say, and how much.
"""

import re

UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that command a terminal, reorder its text, or cannot be written to it."""

USER = re.compile(r"(?<=://)(?:[^/\s:@]*:(?!\d*(?:[/?#\s]|$))(?:(?!://).)*|(?:(?!://)\S)*)@")
"""Of a URL, who asks and with which password.

People write passwords as they are, with slashes, spaces and at signs. So that rather too much goes:
after a user and a colon (that begins no port) all up to the line's last @, else a word up to its.
"""

SECRET = re.compile(
    r"([?&][\w.-]{0,40}(?:pass|pwd|token|secret|key|sig|credential|auth)[\w.-]{0,40}=)"
    r"(?:(?!: )[^&#'\"\n])*",
    re.IGNORECASE,
)
"""Of a URL's query, the name and the value of what lets somebody in."""


def shown(text: str) -> str:
    """Return text with a replacement character for each that a terminal would not merely show."""
    return UNSHOWN.sub("\ufffd", text)


def without_password(text: str) -> str:
    """Return text in which no URL says who asks, and with which password, token or key.

    Args:
        text: before any of it is cut off.
    """
    return SECRET.sub(r"\1…", USER.sub("", text))


def brief(text: str, most: int) -> str:
    """Return text as `shown`, with a mark where it was cut off.

    Args:
        text: of somebody else.
        most: letters that are kept.
    """
    return shown(text[:most]) + "…" * (len(text) > most)
