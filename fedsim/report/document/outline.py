"""What a page's readers find their way by: anchors, a list of contents, names of what scrolls."""

import re
from dataclasses import dataclass

from markupsafe import Markup, escape

PIECE = re.compile(
    r"(?P<summary><summary>)?"
    r"<(?P<level>h[2-4])(?: id=\"(?P<id>[^\"]*)\")?>(?P<title>.*?)</(?P=level)>"
    r"|<div class=\"(?P<region>table|scroll)\">",
    re.S,
)
TAG = re.compile(r"<[^>]*>")
FEWEST = 3
"""Headings below which a page is its own list of contents."""

NAMES = {"table": "Table", "scroll": "Figure"}


@dataclass(frozen=True)
class Heading:
    """A heading of a page.

    Attributes:
        level: 2 to 4.
        title: its text, as HTML.
    """

    level: int
    anchor: str
    title: str


def outlined(page: str) -> str:
    """Return a page whose headings have anchors and a list, and whose regions have names.

    An anchor is made of the heading's words, and stays as long as they do. What may be wider than
    the screen can be reached and scrolled by keyboard.
    """
    headings: list[Heading] = []
    counts = dict.fromkeys(NAMES, 0)
    taken = set(re.findall(r'\bid="([^"]*)"', page))

    def finish(piece: re.Match[str]) -> str:
        if region := piece["region"]:
            counts[region] += 1
            where = f": {_text(headings[-1].title)}" if headings else ""
            return _region(region, f"{NAMES[region]} {counts[region]}{where}")
        title = piece["title"]
        anchor = piece["id"] or _anchor(title, taken)
        headings.append(Heading(int(piece["level"][1]), anchor, title))
        # What unfolds at a click has no link in it.
        if piece["summary"]:
            return f'<summary><{piece["level"]} id="{anchor}">{title}</{piece["level"]}>'
        return _heading(headings[-1])

    body = PIECE.sub(finish, page)
    return body.replace("<!-- contents -->", _contents(headings), 1)


def _region(kind: str, name: str) -> str:
    return f'<div class="{kind}" role="region" tabindex="0" aria-label="{escape(name)}">'


def _heading(heading: Heading) -> str:
    tag, to = f"h{heading.level}", f"Link to “{_text(heading.title)}”"
    return Markup('<{} id="{}">{} <a class="anchor" href="#{}" aria-label="{}">#</a></{}>').format(
        tag, heading.anchor, Markup(heading.title), heading.anchor, to, tag
    )


def _contents(headings: list[Heading]) -> str:
    """Return the list of contents, of headings of the second and third level."""
    if len(headings) < FEWEST:
        return ""
    entries = [
        Markup('<li class="level-{}"><a href="#{}">{}</a></li>').format(
            heading.level, heading.anchor, Markup(heading.title)
        )
        for heading in headings
        if heading.level < 4
    ]
    listed = "\n".join(entries)
    return (
        '<nav class="contents" aria-label="Contents">\n<details>\n<summary>Contents</summary>\n'
        f"<ul>\n{listed}\n</ul>\n</details>\n</nav>"
    )


def _anchor(title: str, taken: set[str]) -> str:
    """Return an anchor that no element of the page has, and take it."""
    words = re.sub(r"[^\w]+", "-", _text(title).lower()).strip("-") or "section"
    anchor, count = words, 1
    while anchor in taken:
        count += 1
        anchor = f"{words}-{count}"
    taken.add(anchor)
    return anchor


def _text(title: str) -> str:
    """Return what a heading says, without its tags."""
    return Markup(TAG.sub("", title)).unescape().strip()
