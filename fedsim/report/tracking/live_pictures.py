"""The pictures of a live page: small SVG by hand, where drawing must not keep the run waiting.

They are written while the run's own process may be drawing the report, and matplotlib's settings
are one for all threads.
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fedsim.report.document.wording import number, percent, span
from fedsim.report.tracking.course import Look

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 30
"""Margins, in the units of the viewBox."""

PICTURE = Markup(
    '<div class="scroll"><svg role="img" aria-label="{}" viewBox="0 0 {} {}" font-size="12" '
    'fill="currentColor">{}</svg></div>'
)
LINE = Markup(
    '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="currentColor" {}></line>'
)
TEXT = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
DOT = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3.5"></circle>')
CURVE = Markup('<polyline points="{}" fill="none" stroke="currentColor" stroke-width="2"/>')

FAINT, DASHED, BAR = (
    Markup('stroke-opacity=".35"'),
    Markup('stroke-dasharray="6 4"'),
    Markup('stroke-width="2"'),
)


class _Axes:
    """A plane of x from 0 to `right` and y from `low` to `high`."""

    def __init__(self, right: float, low: float, high: float) -> None:
        self._right, self._low, self._high = right, low, high

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self._right

    def y(self, value: float) -> float:
        share = (self._high - value) / (self._high - self._low)
        return TOP + (HEIGHT - TOP - BOTTOM) * share

    def level(self, value: float, text: str, style: Markup) -> Markup:
        """Return a line across, named at its left end."""
        across = LINE.format(LEFT, self.y(value), WIDTH - RIGHT, self.y(value), style)
        return across + TEXT.format(LEFT - 6, self.y(value) + 4, "end", text)

    def below(self, text: str) -> Markup:
        return TEXT.format(WIDTH - RIGHT, HEIGHT - 8, "end", text)


def advantages(looks: Sequence[Look], planned: int, limit: float | None) -> Markup:
    """Return the advantage and its interval by finished trials; "" before there is one."""
    seen = [(one.trials, one.advantage, one.interval) for one in looks if one.interval]
    if not seen:
        return Markup("")
    low = min(0.0, *(ends[0] for _, _, ends in seen if ends))
    axes = _Axes(max(planned, seen[-1][0]), low, 1.0)
    drawn = [axes.level(0, "0", FAINT), axes.level(1, "1", FAINT)]
    drawn += [axes.level(limit, "ρα", DASHED)] if limit is not None and 0.06 < limit < 0.94 else []
    for trials, advantage, ends in seen:
        if ends is not None and advantage is not None:
            x = axes.x(trials)
            drawn.append(LINE.format(x, axes.y(ends[0]), x, axes.y(ends[1]), BAR))
            drawn.append(DOT.format(x, axes.y(advantage)))
    drawn.append(axes.below(f"of {planned} trials"))
    last = f"{number(seen[-1][1])}, {span(seen[-1][2], number)}"
    said = f"Advantage and its interval by finished trials; after {seen[-1][0]}: {last}."
    return PICTURE.format(said, WIDTH, HEIGHT, Markup("").join(drawn))


def accuracies(by_round: Mapping[int, float], rounds: int) -> Markup:
    """Return the accuracy by round; "" where there are fewer than two.

    Args:
        by_round: in [0, 1].
    """
    if len(by_round) < 2:
        return Markup("")
    axes = _Axes(max(rounds, *by_round), 0.0, 1.0)
    points = [f"{axes.x(at):.1f},{axes.y(value):.1f}" for at, value in sorted(by_round.items())]
    drawn = [
        axes.level(0, "0%", FAINT),
        axes.level(1, "100%", FAINT),
        CURVE.format(" ".join(points)),
        axes.below(f"of {rounds} rounds"),
    ]
    last = max(by_round)
    said = f"Accuracy by round; after round {last}: {percent(by_round[last])}."
    return PICTURE.format(said, WIDTH, HEIGHT, Markup("").join(drawn))
