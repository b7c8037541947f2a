"""A finding about a deployment: what was looked at, how it is, and what to do about it."""

from dataclasses import dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class Finding:
    """One line: the machine, what was looked at, how it is, and what to do about it."""

    machine: str
    what: str
    state: str
    message: str


Line = tuple[str, str, str]
"""What was looked at, how it is, and what to do about it."""
