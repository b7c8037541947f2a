"""Figures as they stand in a page or a file."""

import base64
import io
import re
from dataclasses import dataclass
from html import unescape
from typing import ClassVar

from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from fedsim.report.document import figure_numbers
from fedsim.report.document.audit_page import PARTS_MODULE
from fedsim.report.figures import canvas
from fedsim.report.figures.numbers import Numbers, decode

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
"""The colours of figures that have a dark counterpart, as the page's style names them."""

COLOUR = re.compile(r"#[0-9a-f]{6}\b", re.I)


@dataclass(frozen=True)
class Drawn:
    """A figure as it stands in the page.

    Attributes:
        kind: by which the template lays it out.
        title: a few words with a full stop.
        caption: sentences.
        markup: what shows it, and the numbers behind it.
    """

    kind: ClassVar = "figure"
    title: str
    caption: str
    markup: Markup


def inline(figure: Figure, name: str, alternative: str) -> Markup:
    """Return the figure as HTML: inline SVG with ids of its own, or an embedded PNG.

    Args:
        figure: is drawn by this.
        name: no other figure of the page has it: its ids begin with it.
        alternative: the beginning of what a reader who sees no pictures is told.
    """
    return embedded(picture(figure), name, alternative)


def picture(figure: Figure) -> str | bytes:
    """Return the figure as an SVG document, or as a PNG where that would be too large."""
    svg = canvas.to_svg(figure)
    return svg if len(svg) <= LARGEST_SVG else canvas.to_png(figure)


def embedded(drawn: str | bytes, name: str, alternative: str) -> Markup:
    """Return a `picture` as HTML, with the numbers behind it folded away below.

    Where nothing varies there is a sentence instead.

    Args:
        drawn: an SVG document as text, or a PNG as bytes, with its numbers.
        name: no other figure of the page has it: its ids begin with it.
        alternative: the beginning of what a reader who sees no pictures is told; what is seen
            follows.
    """
    numbers = _numbers(drawn)
    if numbers.flat:
        sentence = figure_numbers.unvarying(numbers)
        return Markup('<p class="unvarying">{}</p>').format(sentence)
    told = f"{alternative} {figure_numbers.seen(numbers)}".strip()
    shown = _png(drawn, told) if isinstance(drawn, bytes) else _svg(drawn, name, told)
    behind = PARTS_MODULE.behind(figure_numbers.tables(numbers))
    return Markup('<div class="scroll">{}</div>\n{}').format(shown, behind)


def _numbers(drawn: str | bytes) -> Numbers:
    """Return the numbers that lie in a figure's file."""
    if isinstance(drawn, bytes):
        return decode(Image.open(io.BytesIO(drawn)).info["Description"])
    found = re.search(r"<dc:description>(.*?)</dc:description>", drawn, re.S)
    return Numbers((), False) if found is None else decode(unescape(found[1]))


def _png(drawn: bytes, told: str) -> Markup:
    data = base64.b64encode(drawn).decode()
    return Markup('<img class="plate" src="data:image/png;base64,{}" alt="{}">').format(data, told)


def _svg(drawn: str, name: str, told: str) -> Markup:
    """Return inline SVG in the page's colours, on white where it has others of its own."""
    # HTML needs no namespaces, and ids and styles must not reach other figures or the page.
    svg = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.S)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(">*{", ">svg *{")
    themes = {colour.lower(): variable for colour, variable in THEMED.items()}
    plate = "plate"
    if {colour.lower() for colour in COLOUR.findall(svg)} <= set(themes):
        svg, plate = COLOUR.sub(lambda found: themes[found[0].lower()], svg), "themed"
    label = Markup('<svg role="img" class="{}" aria-label="{}"').format(plate, told)
    return Markup(svg.replace("<svg", label, 1))
