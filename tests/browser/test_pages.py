"""Every page can be read: without seeing colours or pictures, on a phone, in the dark, on paper.

    pytest -m browser tests/browser

with axe-core, which finds what of it a program can find.
"""

import io
import unicodedata
from importlib.resources import files

import pytest

from ..corpus import PAGES

pytestmark = pytest.mark.browser

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
UNFOLD = "document.querySelectorAll('details').forEach(one => one.open = true)"
SHORTEN = """
document.querySelectorAll('table.compact tr:nth-child(n+4), table.all tr:nth-child(n+4)')
  .forEach(row => row.remove())
"""
"""Rows alike, by the hundred, take axe-core longer than all the rest."""

WIDER = """
[...document.querySelectorAll('main *, header *, nav *')].filter(one =>
  !one.closest('[role=region]') && !one.closest('.skip')
  && one.getBoundingClientRect().right > window.innerWidth + 1).map(one => one.outerHTML)
"""
LUMINANCE = """
(() => { const shade = getComputedStyle(document.body).backgroundColor.match(/\\d+/g);
  return (+shade[0] + +shade[1] + +shade[2]) / 765; })()
"""


def _opened(chromium, page, size, scheme):
    chromium.set_viewport_size(size)
    chromium.emulate_media(color_scheme=scheme, media="screen")
    chromium.goto(page.as_uri())
    return chromium


def _violations(chromium):
    """Return what axe-core finds, each with the elements."""
    import axe_playwright_python as axe  # noqa: PLC0415  (the extra "browser")

    chromium.evaluate((files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    found = chromium.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}"
        for one in found["violations"]
    ]


@pytest.mark.parametrize("kind", PAGES)
def test_nothing_of_a_page_keeps_anybody_from_reading_it(kind, chromium, pages):
    _opened(chromium, pages[kind], PHONE, "light").evaluate(UNFOLD)
    chromium.evaluate(SHORTEN)
    assert chromium.evaluate(LUMINANCE) == 1
    assert _violations(chromium) == []
    chromium.set_viewport_size(DESK)
    chromium.emulate_media(color_scheme="dark")
    assert chromium.evaluate(LUMINANCE) < 0.2
    assert _violations(chromium) == []


@pytest.mark.parametrize("kind", PAGES)
def test_a_phone_stacks_tables_and_scrolls_figures_and_not_the_page(kind, chromium, pages):
    _opened(chromium, pages[kind], PHONE, "light").evaluate(UNFOLD)
    assert chromium.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    assert chromium.evaluate(WIDER) == []
    for stacked in chromium.query_selector_all(".table:has(> .stacked)"):
        assert stacked.evaluate("one => one.scrollWidth <= one.clientWidth")
    for figure in chromium.query_selector_all(".scroll > svg, .scroll > img"):
        assert figure.bounding_box()["width"] > 1.3 * PHONE["width"]
    for bar in chromium.query_selector_all("svg.bars"):
        box = bar.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    for region in chromium.query_selector_all(".table, .scroll"):
        assert region.get_attribute("tabindex") == "0"
        assert region.get_attribute("aria-label")


MOST_PAGES = 10
"""A4 pages that a report prints on, as it opens."""


@pytest.mark.parametrize("kind", PAGES)
def test_paper_has_what_is_open_on_the_screen_and_is_soon_read(kind, chromium, pages):
    import pypdf  # noqa: PLC0415  (the extra "browser")

    _opened(chromium, pages[kind], DESK, "dark").emulate_media(media="print")

    def printed():
        found = pypdf.PdfReader(io.BytesIO(chromium.pdf(prefer_css_page_size=True)))
        assert [round(float(side)) for side in found.pages[0].mediabox[2:]] == [595, 842]
        return len(found.pages), _letters("".join(page.extract_text() for page in found.pages))

    number, on_paper = printed()
    assert number <= MOST_PAGES
    first = chromium.eval_on_selector_all(".verdict p, .bar strong", TEXTS)
    assert [text for text in first if len(text) <= 20 and _letters(text) not in on_paper] == []
    # What is folded is printed once it is unfolded.
    chromium.evaluate(UNFOLD)
    _, on_paper = printed()
    inside = "main details th, main details td, main details p, main details li"
    folded = chromium.eval_on_selector_all(inside, TEXTS)
    # What is longer, a page or a column may break with something else between.
    assert [text for text in folded if len(text) <= 20 and _letters(text) not in on_paper] == []


TEXTS = "all => all.map(one => one.textContent)"


def _letters(text):
    """Return a text without its spaces, which lines break at, and without ligatures."""
    return "".join(unicodedata.normalize("NFKC", text).split())
