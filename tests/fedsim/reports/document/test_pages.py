"""What every page has: anchors, contents, names of what scrolls, terms, and figures in words."""

import re

import numpy as np
import pytest

from fedsim.reports.document import html
from fedsim.reports.document.blocks import (
    Figure,
    Heading,
    Part,
    Prose,
    Told,
    tabulated,
)
from fedsim.reports.figures import canvas, plot
from fedsim.reports.figures.plot import Curve, Panel, Plot


def page(text="", figures=(), name="ρβ & <b>"):
    blocks = [
        Heading("How sure?"),
        Prose(text),
        Part("How sure?", [tabulated(["", "ε"], [["a", "1"], ["b", None]]), Heading("Pictures")]),
        *figures,
    ]
    return html.page(Told(kind="Test", name=name, sections=lambda: blocks))


def test_headings_have_anchors_that_the_contents_lead_to():
    made = page()
    contents = re.search("<nav.*?</nav>", made, re.S)[0]
    assert re.findall('href="#([^"]*)"', contents) == [
        *("how-sure", "how-sure-2", "pictures", "terms")
    ]
    for anchor in ("how-sure", "how-sure-2", "pictures"):
        assert len(re.findall(f'<h[23] id="{anchor}">', made)) == 1


def test_every_page_explains_the_terms():
    assert page().count("<dt>ρα</dt><dd>Bound on the advantage") == 1


def test_titles_stay_as_they_are_written_and_escaped():
    assert "<title>ρβ &amp; &lt;b&gt; – Test</title>" in page()
    assert "<h1>ρβ &amp; &lt;b&gt;</h1>" in page()


def test_what_may_be_wider_than_the_screen_is_reached_by_keyboard_under_a_name_of_its_own():
    drawing = Plot([Panel([Curve("share", [1, 2, 3], [0.1, 0.2, 0.9])])])
    made = page("", [Figure("d", drawing, "", "Records.")])
    regions = re.findall('role="region" tabindex="0" aria-label="([^"]*)"', made)
    assert regions == ["Table 1: How sure?", "Figure 1: Pictures", "Table 2: Pictures"]


def test_a_cell_of_a_stacked_table_says_its_column_and_what_is_unknown_is_a_dash():
    assert '<td data-label="ε">1</td>' in page()
    assert '<td data-label="ε">–</td>' in page()


def drawn(values, colour=canvas.BLUE):
    curve = Curve("belief", range(len(values)), values, colour)
    return html.fragment([Figure("one", Plot([Panel([curve])]), "", "Beliefs.")])


def test_a_figure_is_told_in_words_and_has_its_numbers_below():
    markup = drawn([0.5, 0.75])
    assert 'aria-label="Beliefs. belief from 0.500 to 0.750 over round."' in markup
    assert 'data-label="round">1</th><td data-label="belief">0.750</td>' in markup
    assert "metadata" not in markup


def test_many_numbers_are_summed_up():
    markup = drawn(np.linspace(0.1, 0.9, 200))
    assert markup.count("<tr>") == 2
    assert [f">{text}</td>" in markup for text in ("200", "0.100", "0.900")] == [True] * 3


def test_figures_take_the_colours_of_the_page_or_stand_on_white():
    assert "var(--series-blue)" in drawn([0, 1]) and 'class="themed"' in drawn([0, 1])
    assert not re.search("#[0-9a-f]{6}", drawn([0, 1]))
    assert 'class="plate"' in drawn([0, 1], "#123456")


def test_numbers_stay_with_a_figure_that_is_too_large_for_svg(monkeypatch):
    monkeypatch.setattr(plot, "LARGEST_SVG", 100)
    markup = drawn([0.5, 0.75])
    assert 'alt="Beliefs. belief from 0.500 to 0.750 over round."' in markup
    assert "The numbers behind this figure" in markup


@pytest.mark.parametrize("said", ["release", "alarms", "cautions", "answer"])
def test_each_thing_of_the_first_screen_is_shown_without_the_others(said):
    value = "Do not release." if said == "release" else ["The claim is refuted."]
    shown = html.page(Told(kind="Test", name="x", **{said: value}))
    assert (value if said == "release" else value[0]) in shown
