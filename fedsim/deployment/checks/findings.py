"""The result of a check of a deployment: its subject, its state and the remedy."""

from dataclasses import dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class CheckResult:
    """One line of `fedsim deploy check`.

    Attributes:
        machine: name in the kit; "ca" for the kit's authority.
        what: subject of the check, in a word or two.
        state: "ok", "note" or "wrong".
        message: the finding; unless the state is "ok", also the remedy.
    """

    machine: str
    what: str
    state: str
    message: str


Line = tuple[str, str, str]
"""Subject, state and message of a check."""
