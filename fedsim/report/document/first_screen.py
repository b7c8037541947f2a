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
"""Share of the claimed noise below which an audit should see the shortfall."""


def check(
    text: str,
    shuts: str,
    report: Mapping[str, Any],
    fails: str | None = None,
    failed: str = "",
    unknown: str = "",
) -> Check:
    """Return a check of a report by the condition that would shut a release gate.

    Args:
        text: the checked statement, a sentence.
        shuts: condition of `--fail-if` that shuts the gate unless the check passes.
        report: content of report.json.
        fails: condition that proves a failure. Without proof, a shut gate cannot tell. None: the
            same as `shuts`. "": no proof is possible.
        failed: sentence for a failed check; "" for `text`.
        unknown: sentence for a check that cannot tell; "" for "It is open whether" before `text`.
    """
    shut = _complaint(shuts, report)
    if not shut:
        return Check(PASSED, text, shuts)
    proof = shut if fails is None else fails and _complaint(fails, report)
    if proof and not proof.startswith("cannot tell"):
        return Check(FAILED, failed or text, shuts)
    return Check(OPEN, unknown or f"It is open whether {text[:1].lower()}{text[1:]}", shuts)


def settled(passes: bool, text: str, failed: str) -> Check:
    """Return a check that no gate condition can state, with a sentence for each outcome."""
    return Check(PASSED, text) if passes else Check(FAILED, failed)


def power(report: Mapping[str, Any], path: str, what: str = "The audit") -> Check:
    """Return the check that an audit would have noticed less than half of the claimed noise.

    An audit that would not have noticed it has not failed; it cannot tell.

    Args:
        path: in report.json, of the largest share of the claimed noise that the audit would have
            noticed.
        what: subject of the sentence.
    """
    text = f"{what} would have noticed less than half of the claimed noise."
    missed = f"{what} might not have noticed it if half of the claimed noise had been missing."
    return check(text, f"{path} < {HALF}", report, fails="", unknown=missed)


def _complaint(condition: str, report: Mapping[str, Any]) -> str:
    return complaint(parse(condition, [kind_of(report)]), report)


def sign_off(
    *, data: str, date: str, limits: str, purpose: str = "", author: str = ""
) -> list[tuple[str, str]]:
    """Return the entries of a sign-off block.

    Args:
        data: the data set and its version.
        limits: of the study.
        purpose: "" if not stated.
        author: "" if not stated.
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
    """Return the non-empty blocks of a first screen, by place.

    The places "shown" and "told" are side by side on a wide screen.
    """
    places: dict[str, list[Block]] = {
        "shown": [each for each in (first.figure, first.table) if each is not None],
        "told": [*_checks(first.checks), *_steps(first.steps)],
        "sign-off": [],
    }
    if first.sign_off:
        places["sign-off"] = [Heading("Sign-off", "sign-off"), Listing(first.sign_off)]
    return {name: blocks for name, blocks in places.items() if blocks}


def in_short(first: FirstScreen) -> list[Block]:
    """Return answer, table, checks and next steps, for a notebook."""
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
    items: list[Words] = []
    for one in ordered:
        gate: list[str | Code] = (
            [" ", Code(f"--fail-if '{one.condition}'")] if one.condition else []
        )
        items.append([one.mark, f" {one.text}", *gate])
    return [Heading(counted(checks), "checks"), Bullets(items)]


def _steps(steps: Sequence[Words]) -> list[Block]:
    return [Heading("What to do next", "next"), Bullets(steps)] if steps else []
