"""Text of other parties, without terminal commands and secrets, and shortened."""

import re

UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that command a terminal, reorder its text, or cannot be written to it."""

USER = re.compile(r"(?<=://)[^\s/]*@")
"""The user and the password in a URL."""

ASSIGNED = re.compile(
    r"(\b[\w.-]{0,40}(?:passw|pwd|token|secret|credential|signature|(?:api|access)[_-]?key)"
    r"[\w.-]{0,40}(?:=|['\"]:\s?))(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s&#'\",;)}\]]+)",
    re.IGNORECASE,
)
"""The name and the value of a secret in a URL, a setting, an environment variable or a form."""

HEADER = re.compile(
    r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic|token|digest)\s+)?|\bbearer\s+)"
    r"(?!…)[^\s'\",;:)}\]]+",
    re.IGNORECASE,
)
"""The prefix and the value of a secret in a request's header."""


def shown(text: str) -> str:
    """Return text with a replacement character for each character that a terminal would obey."""
    return UNSHOWN.sub("\ufffd", text)


def without_password(text: str) -> str:
    """Return text without the passwords, tokens and keys of URLs, headers and settings."""
    masked = USER.sub("", text)
    for pattern in (HEADER, ASSIGNED):
        masked = pattern.sub(r"\1…", masked)
    return masked


def brief(text: str, most: int) -> str:
    """Return text as `shown` does, with a mark where it was cut off."""
    return shown(text[:most]) + "…" * (len(text) > most)
