"""Navigation of a page: anchors and a list of contents."""

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
NAMES = {"table": "Table", "scroll": "Figure"}


@dataclass(frozen=True)
class _Heading:
    level: int
    anchor: str
    title: str


def outlined(page: str) -> str:
    """Return a page whose headings have anchors and a list, and whose regions have names.

    An anchor consists of the heading's words. The keyboard reaches and scrolls regions that may be
    wider than the screen.
    """
    headings: list[_Heading] = []
    counts = dict.fromkeys(NAMES, 0)
    taken = set(re.findall(r'\bid="([^"]*)"', page))

    def finish(piece: re.Match[str]) -> str:
        if region := piece["region"]:
            counts[region] += 1
            where = f": {_text(headings[-1].title)}" if headings else ""
            label = escape(f"{NAMES[region]} {counts[region]}{where}")
            return f'<div class="{region}" role="region" tabindex="0" aria-label="{label}">'
        tag, title = piece["level"], piece["title"]
        anchor = piece["id"] or _anchor(title, taken)
        headings.append(_Heading(int(tag[1]), anchor, title))
        # A link in a summary would take the click that unfolds it.
        if piece["summary"]:
            return f'<summary><{tag} id="{anchor}">{title}</{tag}>'
        link = Markup(' <a class="anchor" href="#{}" aria-label="Link to “{}”">#</a>').format(
            anchor, _text(title)
        )
        return f'<{tag} id="{anchor}">{title}{link}</{tag}>'

    body = PIECE.sub(finish, page)
    return body.replace("<!-- contents -->", _contents(headings), 1)


def _contents(headings: list[_Heading]) -> str:
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
    return Markup(TAG.sub("", title)).unescape().strip()
