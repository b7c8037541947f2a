"""The release gate of every command that makes a report: `--fail-if` and its exit status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from fedsim.common.foreign_text import shown

if TYPE_CHECKING:  # pydantic
    from fedsim.audits.results.conditions import Condition

SHUT = 3
"""The exit status of a gate that is shut, as of an audit that cannot tell."""


@dataclass(frozen=True)
class Gate:
    """What a report must not show."""

    conditions: "tuple[Condition, ...]" = ()

    def status(self, report: Mapping[str, Any]) -> int:
        """Return the exit status for a report (0 or SHUT); print each reason to stderr."""
        if not self.conditions:
            return 0
        from fedsim.audits.results.conditions import complaint  # noqa: PLC0415

        found = [said for each in self.conditions if (said := complaint(each, report))]
        for said in found:
            typer.echo(f"Gate shut: {shown(said)}", err=True)
        return SHUT if found else 0

    def exit_by(self, report: Mapping[str, Any]) -> None:
        """End the command where a report does not pass."""
        if status := self.status(report):
            raise typer.Exit(status)

    @property
    def unseen(self) -> int:
        """The exit status where there is no report: what was not seen passes no gate."""
        return SHUT if self.conditions else 0


def asked(fail_if: Sequence[str] | None, *kinds: str) -> Gate:
    """Return the gate that a user asked for.

    Raises:
        InputError: one is no condition, or is of a number that such a report has not.
    """
    if not fail_if:
        return Gate()
    from fedsim.audits.results.conditions import parse  # noqa: PLC0415

    return Gate(tuple(parse(each, kinds) for each in fail_if))
