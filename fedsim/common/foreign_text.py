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
    r"([?&#;][\w.-]{0,40}(?:pass|pwd|token|secret|key|sig|credential|auth)[\w.-]{0,40}=)"
    r"(?:(?!: )[^&#'\"\n])*",
    re.IGNORECASE,
)
"""Of a URL's query or fragment, the name and the value of what lets somebody in."""

VALUE = r"""(?:'[^'\n]*'|"[^"\n]*"|[^\s&#'",;)}\]]+)"""

ASSIGNED = re.compile(
    r"(\b[\w.-]{0,40}(?:passw|pwd|token|secret|credential|api[_-]?key|access[_-]?key)[\w.-]{0,40}"
    rf"(?:['\"]?=|['\"]:\s?))(?!…){VALUE}",
    re.IGNORECASE,
)
"""Of a setting, a variable of the environment or a form, the name and the value."""

HEADER = re.compile(
    r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic|token|digest)\s+)?|\bbearer\s+)"
    r"(?!…)[^\s'\",;:)}\]]+",
    re.IGNORECASE,
)
"""Of a request's header, what stands before that which lets somebody in, and that."""

ADDRESS = re.compile(r"(?<=://)[^\s'\"?#]+")

NAMED = re.compile(r"(?:api-?)?(?:token|secret|password|key)s?", re.IGNORECASE)
"""A part of a path behind which a secret stands."""

RANDOM = re.compile(r"(?=.*[\dA-Z])[\w:~-]{20,}")
"""A part of a path that nobody would choose, and that may be a secret: too much goes here too."""


def shown(text: str) -> str:
    """Return text with a replacement character for each that a terminal would not merely show."""
    return UNSHOWN.sub("\ufffd", text)


def without_password(text: str) -> str:
    """Return text in which no URL, header or setting says a password, a token or a key."""
    masked = SECRET.sub(r"\1…", USER.sub("", text))
    for pattern in (HEADER, ASSIGNED):
        masked = pattern.sub(r"\1…", masked)
    return ADDRESS.sub(lambda found: _without_secrets(found[0]), masked)


def _without_secrets(address: str) -> str:
    """Return host and path of a URL, without the parts of the path that may be secrets."""
    host, *parts = address.split("/")
    for at, part in enumerate(parts):
        if RANDOM.fullmatch(part) or (at and NAMED.fullmatch(parts[at - 1])):
            parts[at] = "…" if part else part
    return "/".join((host, *parts))


def brief(text: str, most: int) -> str:
    """Return text as `shown`, with a mark where it was cut off."""
    return shown(text[:most]) + "…" * (len(text) > most)
