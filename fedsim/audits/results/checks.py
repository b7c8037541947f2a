"""Checks of a report, each by the condition that would shut a release gate."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedsim.audits.results.conditions import FURTHER, LIVE, OF_A_ROW, complaint, kind_of, parse

TOTAL = {LIVE: "details.released.epsilon"}
"""Path of ε of all that a claim is about; for other kinds, that of the judged row."""

LEAST_NOISE = 0.9  # share of the claimed noise that the measured noise must reach

HALF = 0.5
"""Share of the claimed noise below which an audit should notice the shortfall."""


@dataclass(frozen=True)
class GateCheck:
    """One check of a report, as a release gate would make it."""

    text: str
    """What the check found, a sentence."""
    outcome: Literal["passed", "failed", "cannot-tell"]
    """Outcome of the check; "cannot-tell" shuts a gate too."""
    condition: str
    """Condition of `--fail-if` that shuts a gate unless the check passes; "" for none."""


@dataclass(frozen=True)
class GateRule:
    """A check to make: the condition of a gate, and a sentence for each outcome.

    Attributes:
        proof: condition that proves a failure; "" where no proof is possible. None: `shuts`.
    """

    shuts: str
    passed: str
    failed: str
    unknown: str = "The report lacks a number that this check needs."
    proof: str | None = None

    def reads(self, known: Collection[str]) -> bool:
        """Return whether a kind of report with these short names has the number."""
        path = self.shuts.partition(" ")[0]
        return path in known or path not in {*OF_A_ROW, *FURTHER}

    def made(self, report: Mapping[str, Any]) -> GateCheck:
        shut = _complaint(self.shuts, report)
        if not shut:
            return GateCheck(self.passed, "passed", self.shuts)
        proof = shut if self.proof is None else self.proof and _complaint(self.proof, report)
        if proof and not proof.startswith("cannot tell"):
            return GateCheck(self.failed, "failed", self.shuts)
        return GateCheck(self.unknown, "cannot-tell", self.shuts)


def _complaint(condition: str, report: Mapping[str, Any]) -> str:
    return complaint(parse(condition, [kind_of(report)]), report)


def of_audit(report: Mapping[str, Any]) -> Iterator[GateRule]:
    """Yield the checks that every kind of audit makes."""
    yield GateRule(
        "alarms > 0",
        "Nothing contradicts what was configured, declared or claimed.",
        "Something contradicts what was configured, declared or claimed.",
    )
    yield GateRule(
        f"detects < {HALF}",
        "The audit would detect, with 95% probability, a loss of half of the claimed noise.",
        "",
        "The audit might miss a loss of half of the claimed noise.",
        proof="",
    )
    what = "at least 90% of the configured noise"
    yield GateRule(
        f"noise.low < {LEAST_NOISE}",
        f"The noise is {what}.",
        "The noise is below 90% of the configured noise.",
        f"The audit does not show that the noise is {what}.",
        proof=f"noise.high < {LEAST_NOISE}",
    )


def of_claim(claimed: float, report: Mapping[str, Any]) -> Iterator[GateRule]:
    """Yield the checks of a claimed epsilon that the audit compared with its own."""
    rows, vantage = report["rows"], report["vantage"]
    limit = rows[vantage]["limit"]
    measured = limit is not None and limit["source"] == "measured"
    yield GateRule(
        f"{TOTAL.get(kind_of(report), 'epsilon')} > {claimed!r}",
        f"The limit of ε is at most the claimed {claimed:g}.",
        f"The limit of ε is above the claimed {claimed:g}.",
        f"The audit does not show that ε is at most the claimed {claimed:g}.",
        # A measured limit is the end of an interval, which proves nothing by itself.
        proof=f"proven > {claimed!r}" if measured else None,
    )
    for observer in (name for name, row in rows.items() if name == vantage or row["attack"]):
        path, of = ("", "") if observer == vantage else (f"rows.{observer}.", f" of the {observer}")
        yield GateRule(
            f"{path}epsilon.low > {claimed!r}",
            f"No measurement{of} shows ε above the claimed {claimed:g}.",
            f"A measurement{of} shows ε above the claimed {claimed:g}.",
            f"No measurement{of} shows, at the confidence of an alarm, whether ε is above "
            f"{claimed:g}.",
            proof=f"{path}proven > {claimed!r}",
        )
