"""The first screen of every page: the figure of shares of right answers, and the blocks beside it.

The figure is small SVG by hand, with positions in percent, so that it fits every width and is
written quickly while a run goes on. Text stands beside the bars as text. Marks differ in shape as
well as colour.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from fedsim.audits.results.conditions import complaint, kind_of, number_at, parse
from fedsim.reports.document.blocks import (
    Bar,
    Bars,
    Block,
    Bullets,
    Check,
    Code,
    FirstScreen,
    Heading,
    Listing,
    Mark,
    Part,
    Prose,
    Words,
)
from fedsim.reports.document.wording import least_loss, percent, span

GUESSING = 0.5
"""The share of right answers of an adversary who tosses a coin: where the axis begins."""

MEASURED = " Thin bar: measured."
LEGEND = " Pale bar: what theory allows."
OWN = "Dashed: your own limit."
TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
NAMED = {0.5: "guessing", 1.0: "certain"}
EDGE = 1.5
"""Percent of the width that stay free at each end."""

SVG = Markup('<svg role="img" class="bars" aria-label="{}" width="100%" height="{}">{}</svg>')
RECTANGLE = Markup('<rect class="{}" x="{:.2f}%" y="{}" width="{:.2f}%" height="{}"></rect>')
LINE = Markup('<line class="{}" x1="{:.2f}%" y1="{}" x2="{:.2f}%" y2="{}"></line>')
TEXT = Markup('<text x="{:.2f}%" y="{}" text-anchor="{}" fill="currentColor">{}</text>')
ROW = Markup(
    '<div class="bar"><p><strong>{}</strong> <span class="mark {}">{}.</span> '
    '<span class="meta">{}</span></p>{}</div>\n'
)


def share(advantage: float) -> float:
    """Return how often an adversary of this advantage is right, where both worlds are as likely."""
    return (1 + advantage) / 2


def shares(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (share(interval[0]), share(interval[1]))


def drawn(block: Bars) -> Markup:
    rows = [_row(bar, block.own) for bar in block.bars]
    marks = []
    for tick in TICKS:
        anchor = {0.5: "start", 1.0: "end"}.get(tick, "middle")
        marks.append(LINE.format("tick", _at(tick), 0, _at(tick), 4))
        marks.append(TEXT.format(_at(tick), 16, anchor, f"{100 * tick:.0f}%"))
        if name := NAMED.get(tick):
            marks.append(TEXT.format(_at(tick), 30, anchor, name))
    label = "The axis, from 50% for guessing to 100% for certainty"
    return Markup("").join([*rows, SVG.format(label, 34, Markup("").join(marks))])


def caption(block: Bars) -> str:
    own = f" {OWN[:-1]}, {percent(block.own)}." if block.own is not None else ""
    thin = MEASURED * any(bar.right is not None for bar in block.bars)
    return f"{block.caption}{thin}{LEGEND}{own}"


def words(bar: Bar) -> str:
    clauses = []
    if bar.right is not None:
        between = f" ({span(bar.interval, percent)})" if bar.interval else ""
        clauses.append(f"{bar.how} {percent(bar.right)}{between}")
    if bar.limit is not None:
        limited = f"{bar.by} allows {percent(bar.limit)}"
        clauses.append(f"{bar.by} sets no limit" if bar.limit >= 1 else limited)
    return "; ".join(filter(None, [*clauses, bar.remark]))


def _row(bar: Bar, own: float | None) -> Markup:
    clause = words(bar)
    label = f"{bar.name}: {bar.mark.text}{f'; {clause}' if clause else ''}"
    marks = [RECTANGLE.format("track", EDGE, 4, 100 - 2 * EDGE, 14)]
    if bar.limit is not None:
        marks.append(RECTANGLE.format("allowed", EDGE, 4, _at(bar.limit) - EDGE, 14))
    if bar.right is not None:
        marks.append(RECTANGLE.format("measured", EDGE, 8, max(_at(bar.right) - EDGE, 0.4), 6))
    if bar.interval is not None:
        low, high = map(_at, bar.interval)
        marks.append(LINE.format("interval", low, 11, high, 11))
        marks += [LINE.format("interval", end, 7, end, 15) for end in (low, high)]
    if bar.limit is not None and bar.limit < 1:
        marks.append(LINE.format("limit", _at(bar.limit), 1, _at(bar.limit), 21))
    if own is not None:
        marks.append(LINE.format("own", _at(own), 0, _at(own), 22))
    svg = SVG.format(label, 22, Markup("").join(marks))
    sentence = f"{clause[:1].upper()}{clause[1:]}." if clause and bar.tells else ""
    return ROW.format(bar.name, bar.mark.kind, bar.mark.text, sentence, svg)


def _at(share: float) -> float:
    within = min(max(share, GUESSING), 1.0)
    return EDGE + (100 - 2 * EDGE) * (within - GUESSING) / (1 - GUESSING)


PASSED, FAILED, OPEN = Mark("good", "Passed"), Mark("alarm", "Failed"), Mark("open", "Cannot tell")
ORDER = {"alarm": 0, "caution": 1, "open": 2, "good": 3}
COUNTED = {"alarm": "failed", "open": "cannot tell", "good": "passed"}
NOT_STATED = "not stated"
HALF = 0.5
"""Share of the claimed noise below which an audit should see the shortfall."""


def report_check(
    text: str,
    shuts: str,
    report: Mapping[str, Any],
    fails: str | None = None,
    failed: str = "",
    unknown: str = "The report lacks a number that this check needs.",
) -> Check:
    """Return a check of a report by the condition that would shut a release gate.

    Args:
        text: the checked statement, a sentence.
        shuts: condition of `--fail-if` that shuts the gate unless the check passes.
        report: content of report.json.
        fails: condition that proves a failure. Without proof, a shut gate cannot tell. None: the
            same as `shuts`. "": no proof is possible.
        failed: sentence for a failed check; "" for `text`.
        unknown: sentence for a check that cannot tell, which says why.
    """
    shut = _complaint(shuts, report)
    if not shut:
        return Check(PASSED, text, shuts)
    proof = shut if fails is None else fails and _complaint(fails, report)
    if proof and not proof.startswith("cannot tell"):
        return Check(FAILED, failed or text, shuts)
    return Check(OPEN, unknown, shuts)


def settled(passes: bool, text: str, failed: str) -> Check:
    """Return a check that no gate condition can state, with a sentence for each outcome."""
    return Check(PASSED, text) if passes else Check(FAILED, failed)


def power(report: Mapping[str, Any], path: str, what: str = "The audit") -> Check:
    """Return the check that an audit would have noticed less than half of the claimed noise.

    An audit that would not have noticed it has not failed; it cannot tell.
    """
    loss = "half of the claimed noise"
    if (share := number_at(report, path)) and share > HALF:
        loss = f"{least_loss(share)} of the claimed noise (the check requires 50%)"
    text = f"{what} would detect, with 95% probability, a loss of {loss}."
    missed = f"{what} might miss a loss of half of the claimed noise."
    return report_check(text, f"{path} < {HALF}", report, fails="", unknown=missed)


def _complaint(condition: str, report: Mapping[str, Any]) -> str:
    return complaint(parse(condition, [kind_of(report)]), report)


def sign_off(*, data: str, date: str, limits: str, purpose: str = "") -> list[tuple[str, str]]:
    return [
        ("Purpose", purpose or NOT_STATED),
        ("Data", data or NOT_STATED),
        ("Author", "_" * 24),
        ("Date", date or NOT_STATED),
        ("Limits of the study", limits),
        ("Approved by, on", "_" * 24),
    ]


def today() -> str:
    """Return the date of a page that is written once and never derived again."""
    return datetime.now().astimezone().date().isoformat()


def parts(first: FirstScreen) -> dict[str, list[Block]]:
    places: dict[str, list[Block]] = {
        "shown": [] if first.figure is None else [first.figure],
        "told": _steps(first.steps),
        "table": _table(first),
    }
    return {name: blocks for name, blocks in places.items() if blocks}


def behind(first: FirstScreen) -> list[Block]:
    """Return what stands folded below the sections: the checks of a gate, and the sign-off."""
    folded: list[Block] = []
    if first.checks:
        checks = Part(
            "Checks of a release gate", _checks(first.checks), folded=True, anchor="checks"
        )
        folded.append(checks)
    if first.sign_off:
        folded.append(Part("Sign-off", [Listing(first.sign_off)], folded=True, anchor="sign-off"))
    return folded


def in_short(first: FirstScreen) -> list[Block]:
    return [*map(Prose, first.answer), *_table(first), *_steps(first.steps)]


def _table(first: FirstScreen) -> list[Block]:
    note = [Prose(first.note, small=True)] if first.note else []
    return [] if first.table is None else [first.table, *note]


def counted(checks: Sequence[Check]) -> str:
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
    return [Prose(f"{counted(checks)}."), Bullets(items)]


def _steps(steps: Sequence[Words]) -> list[Block]:
    return [Heading("To decide", "next"), Bullets(steps)] if steps else []
