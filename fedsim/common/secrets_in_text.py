"""Text of other programs, without secrets."""

import re

USER = re.compile(r"(?<=://)(?:[^/\s:@]*:(?!\d*(?:[/?#\s]|$))(?:(?!://).)*|(?:(?!://)\S)*)@")
"""The user and the password in a URL.

Passwords may have slashes, spaces and at signs, so the pattern removes rather too much.
"""

SECRET = re.compile(
    r"([?&#;][\w.-]{0,40}(?:pass|pwd|token|secret|key|sig|credential|auth)[\w.-]{0,40}=)"
    r"(?:(?!: )[^&#'\"\n])*",
    re.IGNORECASE,
)
"""The name and the value of a secret in a URL's query or fragment."""

VALUE = r"""(?:'[^'\n]*'|"[^"\n]*"|[^\s&#'",;)}\]]+)"""

ASSIGNED = re.compile(
    r"(\b[\w.-]{0,40}(?:passw|pwd|token|secret|credential|api[_-]?key|access[_-]?key)[\w.-]{0,40}"
    rf"(?:['\"]?=|['\"]:\s?))(?!…){VALUE}",
    re.IGNORECASE,
)
"""The name and the value of a secret in a setting, an environment variable or a form."""

HEADER = re.compile(
    r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic|token|digest)\s+)?|\bbearer\s+)"
    r"(?!…)[^\s'\",;:)}\]]+",
    re.IGNORECASE,
)
"""The prefix and the value of a secret in a request's header."""

ADDRESS = re.compile(r"(?<=://)[^\s'\"?#]+")

NAMED = re.compile(r"(?:api-?)?(?:token|secret|password|key)s?", re.IGNORECASE)
"""A part of a path that is followed by a secret."""

RANDOM = re.compile(r"(?=.*[\dA-Z])[\w:~-]{20,}")
"""A part of a path that looks random and may be a secret. It may match too much."""


def without_password(text: str) -> str:
    """Return text without the passwords, tokens and keys of URLs, headers and settings."""
    masked = SECRET.sub(r"\1…", USER.sub("", text))
    for pattern in (HEADER, ASSIGNED):
        masked = pattern.sub(r"\1…", masked)
    return ADDRESS.sub(lambda match: _without_secrets(match[0]), masked)


def _without_secrets(address: str) -> str:
    """Return host and path of a URL, without parts of the path that may be secrets."""
    host, *parts = address.split("/")
    for at, part in enumerate(parts):
        if RANDOM.fullmatch(part) or (at and NAMED.fullmatch(parts[at - 1])):
            parts[at] = "…" if part else part
    return "/".join((host, *parts))
