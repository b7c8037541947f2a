"""Plots for a page, with their numbers in words and tables."""

import base64
import re

import numpy as np
from markupsafe import Markup

from fedsim.reports.document.blocks import Block, Prose, tabulated
from fedsim.reports.document.wording import number
from fedsim.reports.figures import canvas
from fedsim.reports.figures.plot import HIGH, LOW, Plot, Series

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
MOST_ROWS = 12
MOST_SAID = 6
SUMMED_UP = ("curve", "number of points", "first", "least", "greatest", "last")


def embedded(plot: Plot, name: str, title: str) -> Markup:
    """Return a plot as HTML: inline SVG with unique ids, or an embedded PNG.

    What is seen in it follows its title for readers who see no pictures.
    """
    drawn, text = plot.picture, f"{title} {seen(plot)}".strip()
    if isinstance(drawn, bytes):
        data = base64.b64encode(drawn).decode()
        image = Markup('<img class="plate" src="data:image/png;base64,{}" alt="{}">')
        return image.format(data, text)
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


def seen(plot: Plot) -> str:
    """Return what a plot shows, in words."""
    told = [_course(one) for one in plot.series if not one.name.endswith((LOW, HIGH))]
    more = f"; and {len(told) - MOST_SAID} more" if len(told) > MOST_SAID else ""
    return f"{'; '.join(told[:MOST_SAID])}{more}." if told else ""


def tables(plot: Plot) -> list[Block]:
    """Return the numbers of a plot: a table for all series with the same places."""
    listed, long = list[Block](), list[list[str]]()
    alike: dict[tuple[str, str, tuple[float | str, ...]], list[Series]] = {}
    for one in plot.series:
        alike.setdefault((one.panel, one.across, one.at), []).append(one)
    for (panel, across, at), series in alike.items():
        if len(at) > MOST_ROWS:
            for one in series:
                values = np.array(one.values)
                ends = values[0], np.nanmin(values), np.nanmax(values), values[-1]
                long.append([_titled(one), str(len(values)), *map(number, ends)])
            continue
        headings = [across or "at", *(one.name for one in series)]
        numbers = zip(*(one.values for one in series), strict=True)
        rows = [[_place(x), *map(number, y)] for x, y in zip(at, numbers, strict=False)]
        if not at:
            headings, rows = ["line", "at"], [[one.name, number(one.values[0])] for one in series]
        listed += [*([Prose(panel)] if panel else []), tabulated(headings, rows, "compact")]
    return [*listed, tabulated(SUMMED_UP, long, "compact")] if long else listed


def _course(one: Series) -> str:
    name = _titled(one)
    if not one.at:
        return name if any(map(str.isdigit, name)) else f"{name} {number(one.values[0])}"
    if len(one.at) == 1 or isinstance(one.at[0], str):
        pairs = zip(one.at[:MOST_SAID], one.values, strict=False)
        return f"{name} " + ", ".join(f"{number(y)} at {_place(x)}" for x, y in pairs)
    course = f"{name} from {number(one.values[0])} to {number(one.values[-1])}"
    return f"{course} over {one.across}" if one.across else course


def _titled(one: Series) -> str:
    return f"{one.panel}, {one.name}" if one.panel and one.panel != one.name else one.name


def _place(place: float | str) -> str:
    return place.replace("\n", ", ") if isinstance(place, str) else number(place)
