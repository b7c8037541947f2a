"""Figures as they stand in a page or a file."""

import base64
import re
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from matplotlib.figure import Figure

from fedsim.figures import canvas

LARGEST_SVG = 500_000
"""Characters above which a figure is a PNG instead."""


@dataclass(frozen=True)
class Drawn:
    """A figure as it stands in the page.

    Attributes:
        kind: by which the template lays it out.
        title: a few words with a full stop.
        caption: sentences.
        markup: the `<svg>` or `<img>` element.
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
        alternative: what a reader who sees no pictures is told.
    """
    return embedded(picture(figure), name, alternative)


def picture(figure: Figure) -> str | bytes:
    """Return the figure as an SVG document, or as a PNG where that would be too large."""
    svg = canvas.to_svg(figure)
    return svg if len(svg) <= LARGEST_SVG else canvas.to_png(figure)


def embedded(drawn: str | bytes, name: str, alternative: str) -> Markup:
    """Return a `picture` as HTML: an `<svg>` or `<img>` element.

    Args:
        drawn: an SVG document as text, or a PNG as bytes.
        name: no other figure of the page has it: its ids begin with it.
        alternative: what a reader who sees no pictures is told.
    """
    if isinstance(drawn, bytes):
        data = base64.b64encode(drawn).decode()
        return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, alternative)
    # HTML needs no namespaces, and ids and styles must not reach other figures or the page.
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", drawn[drawn.index("<svg") :])
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(">*{", ">svg *{")
    label = Markup('<svg role="img" aria-label="{}"').format(alternative)
    return Markup(svg.replace("<svg", label, 1))
