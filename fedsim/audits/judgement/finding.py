"""A finding: what an audit objects to, with how much it matters."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["alarm", "caution", "note"]


@dataclass(frozen=True)
class Finding:
    """One objection of an audit.

    Attributes:
        severity: "alarm" for a guarantee that is weaker than the configuration says, "caution" for
            a doubt, "note" for advice.
        rule: the name of the rule that objects; "" for a measurement without a named rule.
        why: what is wrong, with the numbers of this audit; without a full stop.
        mend: what to change; "" where the audit cannot say.
        rounds: the rounds that it is about; () for all.
    """

    severity: Severity
    rule: str
    why: str
    mend: str = ""
    rounds: tuple[int, ...] = ()

    @property
    def breaks(self) -> bool:
        """Whether the guarantee is weaker than the configuration says."""
        return self.severity == "alarm"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as report.json has it."""
        return vars(self) | {"rounds": list(self.rounds)}


def alarms(findings: Iterable[Finding]) -> int:
    """Return how many findings are alarms."""
    return sum(each.breaks for each in findings)
