"""A finding about a deployment: what was looked at, how it is, and what to do about it."""

from dataclasses import dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class CheckResult:
    """One line of `fedsim deploy check`.

    Attributes:
        machine: its name in the kit, "ca" for the kit's authority.
        what: was looked at, in a word or two.
        state: "ok", "note" or "wrong".
        message: how it is; unless that is well, also what to do about it.
    """

    machine: str
    what: str
    state: str
    message: str


Line = tuple[str, str, str]
"""What was looked at, how it is, and what to do about it."""
