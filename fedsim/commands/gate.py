"""The release gate of runs and audits: `--fail-if` and its exit status."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError
from fedsim.common.foreign_text import shown

if TYPE_CHECKING:  # pydantic
    from fedsim.audits.results.conditions import Condition

SHUT = 3
"""Exit status of a gate that is shut, the same as of an audit that cannot tell."""


@dataclass(frozen=True)
class Gate:
    """The conditions that a report must not meet."""

    conditions: "tuple[Condition, ...]" = ()

    def status(self, report: Mapping[str, Any]) -> int:
        """Return the exit status for a report (0 or SHUT); print each reason to stderr.

        Raises:
            InputError: the report compares several runs.
        """
        if not self.conditions:
            return 0
        if "runs" in report:
            raise InputError("--fail-if is for the report of one run; give one run, or drop it")
        from fedsim.audits.results.conditions import complaint  # noqa: PLC0415

        complaints = [text for each in self.conditions if (text := complaint(each, report))]
        for text in complaints:
            print(f"Gate shut: {shown(text)}", file=sys.stderr)
        return SHUT if complaints else 0


def parsed(fail_if: Sequence[str] | None, *kinds: str) -> Gate:
    """Return the gate of --fail-if for some kinds of reports. Raises InputError if it is wrong."""
    if not fail_if:
        return Gate()
    from fedsim.audits.results.conditions import parse  # noqa: PLC0415

    return Gate(tuple(parse(each, kinds) for each in fail_if))
