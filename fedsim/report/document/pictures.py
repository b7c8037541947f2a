"""Figures as they stand in a page or a file."""

import base64
import io
import re
from html import unescape

from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

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


def picture(figure: Figure) -> str | bytes:
    """Return the figure as an SVG document, or as a PNG where that would be too large."""
    svg = canvas.to_svg(figure)
    return svg if len(svg) <= LARGEST_SVG else canvas.to_png(figure)


def embedded(drawn: str | bytes, name: str, told: str) -> Markup:
    """Return a `picture` as HTML: inline SVG with ids of its own, or an embedded PNG.

    Args:
        drawn: an SVG document as text, or a PNG as bytes.
        name: no other figure of the page has it: its ids begin with it.
    """
    return _png(drawn, told) if isinstance(drawn, bytes) else _svg(drawn, name, told)


def numbers(drawn: str | bytes) -> Numbers:
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
