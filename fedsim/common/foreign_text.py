"""Text of other parties, without terminal commands and secrets, and shortened."""

import re

UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that command a terminal, reorder its text, or cannot be written to it."""

ADDRESS = re.compile(r"(?<=://)(?:[^\s'\"]*@)?([^\s'\"/?#@]*)(?:([/?#])[^\s'\"]*)?")
"""The user, the host, and the rest of a URL."""

SECRET = re.compile(
    r"((?:\b[\w.-]{0,40}(?:passw|pwd|token|secret|credential|api[_-]?key|access[_-]?key)[\w.-]{0,40}"
    r"(?:['\"]?=|['\"]:\s?)|\bauthorization['\"]?[:=]\s?)['\"]?(?:(?:bearer|basic)\s)?|\bbearer\s)"
    r"[^\s'\",;:)}\]]+",
    re.IGNORECASE,
)
"""The name and the value of a secret in a setting, an environment variable or a header."""


def shown(text: str) -> str:
    """Return text with a replacement character for each character that a terminal would obey."""
    return UNSHOWN.sub("\ufffd", text)


def without_password(text: str) -> str:
    """Return text without secrets of settings and headers, with only the host of each URL."""
    hosts = ADDRESS.sub(lambda url: f"{url[1]}{f'{url[2]}…' if url[2] else ''}", text)
    return SECRET.sub(r"\1…", hosts)


def brief(text: str, most: int) -> str:
    """Return text as `shown` does, with a mark where it was cut off."""
    return shown(text[:most]) + "…" * (len(text) > most)
