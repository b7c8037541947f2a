"""The first screen of every page as blocks: figure, table, checks, next steps and sign-off."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fedsim.audits.results.conditions import complaint, kind_of, parse
from fedsim.report.document.blocks import (
    Block,
    Bullets,
    Check,
    Code,
    FirstScreen,
    Heading,
    Listing,
    Mark,
    Prose,
    Words,
)

PASSED, FAILED, OPEN = Mark("good", "Passed"), Mark("alarm", "Failed"), Mark("open", "Cannot tell")

ORDER = {"alarm": 0, "caution": 1, "open": 2, "good": 3}
COUNTED = {"alarm": "failed", "open": "cannot tell", "good": "passed"}

NOT_STATED = "not stated"

HALF = 0.5
"""A shortfall of the noise that an audit should see: half of what is claimed."""


def check(
    text: str,
    shuts: str,
    report: Mapping[str, Any],
    fails: str | None = None,
    failed: str = "",
) -> Check:
    """Return a check of a report by the condition that would shut a release gate.

    Args:
        text: what is checked, a sentence.
        shuts: the condition of `--fail-if` that shuts the gate unless the check passes.
        report: as report.json has it.
        fails: the condition that proves a failure: while it does not hold, a shut gate cannot tell.
            None: that of the gate. "": nothing proves one.
        failed: what is said where the check fails; "" for the same.
    """
    found = _complaint(shuts, report)
    if not found:
        return Check(PASSED, text, shuts)
    proven = found if fails is None else fails and _complaint(fails, report)
    told = bool(proven) and not proven.startswith("cannot tell")
    if told:
        return Check(FAILED, failed or text, shuts)
    return Check(OPEN, f"Not shown: {text[:1].lower()}{text[1:]}", shuts)


def settled(passes: bool, text: str, failed: str) -> Check:
    """Return a check that no condition of a gate states: one sentence for each outcome."""
    return Check(PASSED, text) if passes else Check(FAILED, failed)


def power(report: Mapping[str, Any], path: str, what: str = "The audit") -> Check:
    """Return the check that half of the claimed noise would have been seen.

    An audit that would not have seen it has not failed: it cannot tell.

    Args:
        path: in report.json, of the share of the noise below which the audit would have seen it.
        what: which of several audits, the subject of the sentence.
    """
    text = f"{what} would have seen noise below half of what is claimed."
    return check(text, f"{path} < {HALF}", report, fails="")


def _complaint(condition: str, report: Mapping[str, Any]) -> str:
    return complaint(parse(condition, [kind_of(report)]), report)


def sign_off(
    *, data: str, date: str, limits: str, purpose: str = "", author: str = ""
) -> list[tuple[str, str]]:
    """Return the entries of a sign-off block.

    Args:
        data: the data set and its version.
        limits: what the study does not say.
        purpose: "" where none is stated.
        author: "" where none is stated.
    """
    return [
        ("Purpose", purpose or NOT_STATED),
        ("Data", data or NOT_STATED),
        ("Author", author or NOT_STATED),
        ("Date", date or NOT_STATED),
        ("Limits of the study", limits),
        ("Approved by, on", "_" * 24),
    ]


def today() -> str:
    """Return the date of a page that is written once and never derived again."""
    return datetime.now().astimezone().date().isoformat()


def parts(first: FirstScreen) -> dict[str, list[Block]]:
    """Return the blocks of a first screen by where they stand; none that is empty.

    "shown" and "told" stand side by side where there is room.
    """
    found: dict[str, list[Block]] = {
        "shown": [each for each in (first.figure, first.table) if each is not None],
        "told": [*_checks(first.checks), *_steps(first.steps)],
        "sign-off": [],
    }
    if first.sign_off:
        found["sign-off"] = [Heading("Sign-off", "sign-off"), Listing(first.sign_off)]
    return {name: blocks for name, blocks in found.items() if blocks}


def in_short(first: FirstScreen) -> list[Block]:
    """Return answer, table, checks and next steps, as a notebook shows them without a page."""
    table = [] if first.table is None else [first.table]
    return [*map(Prose, first.answer), *table, *_checks(first.checks), *_steps(first.steps)]


def counted(checks: Sequence[Check]) -> str:
    """Return how many checks failed, cannot tell and passed, as a heading."""
    kinds = ["open" if one.mark.kind == "caution" else one.mark.kind for one in checks]
    counts = (f"{kinds.count(kind)} {name}" for kind, name in COUNTED.items() if kind in kinds)
    return f"Checks: {', '.join(counts)}"


def _checks(checks: Sequence[Check]) -> list[Block]:
    if not checks:
        return []
    ordered = sorted(checks, key=lambda one: ORDER[one.mark.kind])
    return [Heading(counted(checks), "checks"), Bullets([_item(one) for one in ordered])]


def _item(one: Check) -> Words:
    said: list[str | Code | Mark] = [one.mark, f" {one.text}"]
    return [*said, " ", Code(f"--fail-if '{one.condition}'")] if one.condition else said


def _steps(steps: Sequence[Words]) -> list[Block]:
    return [Heading("What to do next", "next"), Bullets(steps)] if steps else []
