"""Figures for a page or a file, with their numbers in words and tables."""

import base64
import re
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from fedsim.report.document.blocks import Block, Prose, tabulated
from fedsim.report.document.wording import number
from fedsim.report.figures import canvas
from fedsim.report.figures.series import HIGH, LOW, Place, Series

LARGEST_SVG = 500_000
"""Characters above which a figure is a PNG instead."""

THEMED = {
    canvas.INK: "var(--ink)",
    canvas.MUTED: "var(--muted)",
    canvas.FAINT: "var(--line)",
    "#ffffff": "var(--paper)",
    canvas.BLUE: "var(--series-blue)",
    canvas.VERMILION: "var(--series-vermilion)",
    canvas.GREEN: "var(--series-green)",
    canvas.PURPLE: "var(--series-purple)",
}

COLOUR = re.compile(r"#[0-9a-f]{6}\b", re.I)


def picture(figure: Figure) -> str | bytes:
    svg = canvas.to_svg(figure)
    return svg if len(svg) <= LARGEST_SVG else canvas.to_png(figure)


def embedded(drawn: str | bytes, name: str, text: str) -> Markup:
    """Return a `picture` as HTML: inline SVG with unique ids, or an embedded PNG."""
    if isinstance(drawn, str):
        # HTML needs no namespaces, and ids and styles must not reach other figures or the page.
        svg = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.S)
        svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
        svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
        svg = svg.replace(">*{", ">svg *{")
        themes = {colour.lower(): variable for colour, variable in THEMED.items()}
        plate = "plate"
        if {colour.lower() for colour in COLOUR.findall(svg)} <= set(themes):
            svg, plate = COLOUR.sub(lambda match: themes[match[0].lower()], svg), "themed"
        label = Markup('<svg role="img" class="{}" aria-label="{}"').format(plate, text)
        return Markup(svg.replace("<svg", label, 1))
    data = base64.b64encode(drawn).decode()
    return Markup('<img class="plate" src="data:image/png;base64,{}" alt="{}">').format(data, text)


MOST_ROWS = 12
MOST_SAID = 6
SUMMED_UP = ("curve", "number of points", "first", "least", "greatest", "last")


def seen(series: Sequence[Series]) -> str:
    sentences = [_course(one) for one in series if not one.name.endswith((LOW, HIGH))]
    more = f"; and {len(sentences) - MOST_SAID} more" if len(sentences) > MOST_SAID else ""
    return f"{'; '.join(sentences[:MOST_SAID])}{more}." if sentences else ""


def tables(drawn: Sequence[Series]) -> list[Block]:
    """Return the numbers of a figure: a table for all series with the same places."""
    listed: list[Block] = []
    long = []
    for (panel, across, at), group in groupby(
        sorted(drawn, key=_where), key=lambda one: (one.panel, one.across, one.at)
    ):
        series = list(group)
        if len(at) > MOST_ROWS:
            long += series
        elif at:
            headings = [across or "at", *(one.name for one in series)]
            values = zip(*(one.values for one in series), strict=True)
            rows = [[_place(x), *map(number, y)] for x, y in zip(at, values, strict=True)]
            listed += _listed(panel, headings, rows)
        else:
            rows = [[one.name, number(one.values[0])] for one in series]
            listed += _listed(panel, ["line", "at"], rows)
    if long:
        listed += _listed("", SUMMED_UP, [_summed_up(one) for one in long])
    return listed


def _listed(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Block]:
    table = tabulated(headings, rows, "compact")
    return [Prose(title), table] if title else [table]


def _where(one: Series) -> tuple[str, int, str]:
    """Return the sort key of a series; lines across the axes come last."""
    return one.panel, not one.at, str(one.at)


def _course(one: Series) -> str:
    name = f"{_titled(one)}{one.name}"
    if not one.at:
        return name if any(map(str.isdigit, name)) else f"{name} {number(one.values[0])}"
    if len(one.at) == 1 or isinstance(one.at[0], str):
        pairs = zip(one.at[:MOST_SAID], one.values, strict=False)
        return f"{name} " + ", ".join(f"{number(y)} at {_place(x)}" for x, y in pairs)
    course = f"{name} from {number(one.values[0])} to {number(one.values[-1])}"
    return f"{course} over {one.across}" if one.across else course


def _titled(one: Series) -> str:
    return f"{one.panel}, " if one.panel and one.panel != one.name else ""


def _summed_up(one: Series) -> list[str]:
    values = np.array(one.values)
    ends = values[0], np.nanmin(values), np.nanmax(values), values[-1]
    return [f"{_titled(one)}{one.name}", str(len(values)), *map(number, ends)]


def _place(place: Place) -> str:
    return place if isinstance(place, str) else number(place)
