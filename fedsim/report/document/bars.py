"""The figure of a first screen: how often the adversary is right, vantage point by vantage point.

Small SVG by hand, with positions in percent, so that it fits every width and is written quickly
while a run goes on. Text stands beside the bars as text. Marks differ in shape as well as colour.
"""

from collections.abc import Sequence

from markupsafe import Markup

from fedsim.report.document.blocks import Bar, Bars
from fedsim.report.document.wording import percent, span

GUESSING = 0.5
"""The share of right answers of an adversary who tosses a coin: where the axis begins."""

LEGEND = (
    "Thin bar: measured, its line the interval. Wide pale bar: what is allowed, up to the "
    "upright mark."
)
OWN = "Dashed: the organisation's own limit."

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
    """Return the ends of an interval of the advantage as shares of right answers."""
    return None if interval is None else (share(interval[0]), share(interval[1]))


def drawn(block: Bars) -> Markup:
    """Return the figure as HTML: a line of text and a bar for each vantage point, and the axis."""
    rows = [_row(bar, block.own) for bar in block.bars]
    return Markup("").join([*rows, _axis()])


def caption(block: Bars) -> str:
    """Return what stands above the figure: what it shows, and what its marks mean."""
    own = f" {OWN[:-1]}, {percent(block.own)}." if block.own is not None else ""
    return f"{block.caption} {LEGEND}{own}"


def words(bar: Bar) -> str:
    """Return the numbers of a bar as text, without a full stop."""
    said = []
    if bar.right is not None:
        between = f" ({span(bar.interval, percent)})" if bar.interval else ""
        said.append(f"{bar.how} {percent(bar.right)}{between}")
    if bar.limit is not None:
        limited = f"{bar.by} allows {percent(bar.limit)}"
        said.append(f"{bar.by} sets no limit" if bar.limit >= 1 else limited)
    return "; ".join(filter(None, [*said, bar.remark]))


def _row(bar: Bar, own: float | None) -> Markup:
    told = words(bar)
    label = f"{bar.name}: {bar.mark.text}{f'; {told}' if told else ''}"
    svg = SVG.format(label, 22, Markup("").join(_marks(bar, own)))
    sentence = f"{told[:1].upper()}{told[1:]}." if told else ""
    return ROW.format(bar.name, bar.mark.kind, bar.mark.text, sentence, svg)


def _marks(bar: Bar, own: float | None) -> list[Markup]:
    found = [RECTANGLE.format("track", EDGE, 4, 100 - 2 * EDGE, 14)]
    if bar.limit is not None:
        found.append(RECTANGLE.format("allowed", EDGE, 4, _at(bar.limit) - EDGE, 14))
    if bar.right is not None:
        found.append(RECTANGLE.format("measured", EDGE, 8, max(_at(bar.right) - EDGE, 0.4), 6))
    if bar.interval is not None:
        low, high = map(_at, bar.interval)
        found.append(LINE.format("interval", low, 11, high, 11))
        found += [LINE.format("interval", end, 7, end, 15) for end in (low, high)]
    if bar.limit is not None and bar.limit < 1:
        found.append(LINE.format("limit", _at(bar.limit), 1, _at(bar.limit), 21))
    if own is not None:
        found.append(LINE.format("own", _at(own), 0, _at(own), 22))
    return found


def _axis() -> Markup:
    found = []
    for tick in TICKS:
        anchor = {0.5: "start", 1.0: "end"}.get(tick, "middle")
        found.append(LINE.format("tick", _at(tick), 0, _at(tick), 4))
        found.append(TEXT.format(_at(tick), 16, anchor, f"{100 * tick:.0f}%"))
        if name := NAMED.get(tick):
            found.append(TEXT.format(_at(tick), 30, anchor, name))
    told = "The axis, from 50% for guessing to 100% for certainty"
    return SVG.format(told, 34, Markup("").join(found))


def _at(share: float) -> float:
    """Return where a share of right answers stands, in percent of the width."""
    within = min(max(share, GUESSING), 1.0)
    return EDGE + (100 - 2 * EDGE) * (within - GUESSING) / (1 - GUESSING)
