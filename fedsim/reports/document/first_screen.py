"""The first screen of every page: the figure of shares of right answers, and the blocks beside it.

The figure is small SVG by hand, with positions in percent, so that it fits every width and is
written quickly while a run goes on. Text stands beside the bars as text. Marks differ in shape as
well as colour.
"""

import math
from collections.abc import Sequence

from markupsafe import Markup

from fedsim.audits.results.conditions import GATED, kind_of, readings
from fedsim.reports.document.blocks import (
    Bar,
    Bars,
    Block,
    Bullets,
    Code,
    Heading,
    Listing,
    Part,
    Prose,
    Told,
    Words,
)
from fedsim.reports.document.wording import percent, plain, span

GUESSING = 0.5
"""The share of right answers of an adversary who tosses a coin: where the axis begins."""

MEASURED = " Thin bar: measured, with interval."
LEGEND = " Pale bar, to the tick: limit."
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


def most(rho_alpha: float, epsilon: float) -> str:
    """Return the largest share of right answers, which is certainty without noise alone."""
    return percent(share(rho_alpha) if math.isinf(epsilon) else min(share(rho_alpha), 0.9999))


def shares(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (share(interval[0]), share(interval[1]))


def drawn(block: Bars) -> Markup:
    rows = [_row(bar) for bar in block.bars]
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
    thin = MEASURED * any(bar.right is not None for bar in block.bars)
    pale = LEGEND * any(bar.limit is not None for bar in block.bars)
    return f"{block.caption}{thin}{pale}"


def words(bar: Bar) -> str:
    clauses = []
    if bar.right is not None:
        between = f" ({span(bar.interval, percent)})" if bar.interval else ""
        clauses.append(f"{bar.how or 'right in'} {percent(bar.right)}{between}")
    if bar.limit is not None:
        limited = f"{bar.by} allows {percent(bar.limit)}"
        clauses.append(f"{bar.by} sets no limit" if bar.limit >= 1 else limited)
    return "; ".join(filter(None, [*clauses, bar.remark]))


def _row(bar: Bar) -> Markup:
    clause, name = words(bar), f"{bar.name[:1].upper()}{bar.name[1:]}"
    label = f"{name}: {bar.mark.text}{f'; {clause}' if clause else ''}"
    marks = [RECTANGLE.format("track", EDGE, 4, 100 - 2 * EDGE, 14)]
    if bar.limit is not None:
        marks.append(RECTANGLE.format("allowed", EDGE, 4, _at(bar.limit) - EDGE, 14))
    if bar.right is not None:
        marks.append(RECTANGLE.format("measured", EDGE, 8, max(_at(bar.right) - EDGE, 0.4), 6))
    if bar.interval is not None:
        low, high = map(_at, bar.interval)
        marks.append(LINE.format("interval", low, 11, high, 11))
        shown = [_at(end) for end in bar.interval if end >= GUESSING]  # others end beyond the axis
        marks += [LINE.format("interval", end, 7, end, 15) for end in shown]
    if bar.limit is not None and bar.limit < 1:
        marks.append(LINE.format("limit", _at(bar.limit), 1, _at(bar.limit), 21))
    svg = SVG.format(label, 22, Markup("").join(marks))
    sentence = f"{clause[:1].upper()}{clause[1:]}." if clause and bar.tells else ""
    return ROW.format(name, bar.mark.kind, bar.mark.text, sentence, svg)


def _at(share: float) -> float:
    within = min(max(share, GUESSING), 1.0)
    return EDGE + (100 - 2 * EDGE) * (within - GUESSING) / (1 - GUESSING)


NOT_STATED = "not stated"
WEAK = "The audit might miss a loss of half of the noise. Do you need a stronger one?"
"""What to decide of an audit that detects less than `detectable.HALF`."""

GATE = (
    "A release gate ends with exit status 3 where a condition holds, or where its number is "
    "missing, for example "
)
EXAMPLE = "fedsim report RUN --fail-if 'alarms > 0'"


def parts(told: Told) -> dict[str, list[Block]]:
    """Return the blocks of a page's first screen, by their places."""
    places: dict[str, list[Block]] = {
        "shown": [Bars(told.observers, told.caption)] if told.observers else [],
        "told": _steps(told),
        "table": _table(told),
    }
    return {name: blocks for name, blocks in places.items() if blocks}


def behind(told: Told) -> list[Block]:
    """Return what stands folded below the sections: a gate's numbers, and the sign-off."""
    folded: list[Block] = []
    if told.report and kind_of(told.report) in GATED:
        numbers = [(name, plain(value)) for name, value in readings(told.report).items()]
        listed: list[Block] = [Prose([GATE, Code(EXAMPLE), "."]), Listing(numbers, several=True)]
        folded.append(Part("Numbers for a release gate", listed, folded=True, anchor="gate"))
    if told.limits:
        signed = Listing(
            [
                ("Purpose", told.purpose or NOT_STATED),
                ("Data", told.data or NOT_STATED),
                ("Author", "_" * 24),
                ("Date", told.date or NOT_STATED),
                ("Limits of the study", told.limits),
                ("Approved by, on", "_" * 24),
            ]
        )
        folded.append(Part("Sign-off", [signed], folded=True, anchor="sign-off"))
    return folded


def in_short(told: Told) -> list[Block]:
    """Return the first screen without its figure, as for a notebook."""
    said: list[Words] = [told.release, *told.answer, *told.alarms, *told.cautions]
    label = [Prose(told.label)] if told.label else []
    return [*(Prose(each) for each in said if each), *_table(told), *label, *_steps(told)]


def _table(told: Told) -> list[Block]:
    note = [Prose(told.legend, small=True)] if told.legend else []
    return [] if told.observed is None else [told.observed, *note]


def _steps(told: Told) -> list[Block]:
    return [Heading("To decide", "next"), Bullets(told.steps)] if told.steps else []
