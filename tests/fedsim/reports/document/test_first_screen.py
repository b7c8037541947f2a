"""The first screen of every page: bars, checks, next steps and sign-off."""

import re

import pytest

from fedsim.reports.document import first_screen, html
from fedsim.reports.document.blocks import Bar, Bars, Check, Document, FirstScreen, Mark
from fedsim.reports.document.first_screen import FAILED, OPEN, PASSED, report_check

REPORT = {"kind": "training", "alarms": 0, "rounds": [{"epsilon": 2.5, "accuracy": None}]}


def marks(bar, own=None):
    """Return the x positions of a bar's shapes, in percent, by their class."""
    drawn = str(first_screen.drawn(Bars([bar], "", own)))
    found = re.findall(r'<(?:rect|line) class="(\w+)" x1?="([\d.]+)%"', drawn)
    widths = dict(re.findall(r'<rect class="(\w+)" .*? width="([\d.]+)%"', drawn))
    return found, {name: float(width) for name, width in widths.items()}


def test_a_bar_reaches_from_guessing_to_what_was_measured_and_the_limit_is_marked():
    bar = Bar("server", Mark("open", "Agrees with theory"), 0.75, (0.6, 0.9), 0.8)
    found, widths = marks(bar, own=0.55)
    full = widths["track"]
    assert widths["measured"] == pytest.approx(full / 2, abs=0.01)
    assert widths["allowed"] == pytest.approx(0.6 * full, abs=0.01)
    places = {name: float(x) for name, x in found}
    assert places["limit"] == pytest.approx(1.5 + 0.6 * full, abs=0.01)
    assert places["own"] == pytest.approx(1.5 + 0.1 * full, abs=0.01)


def test_without_a_limit_or_a_measurement_there_is_no_mark_of_it():
    found, widths = marks(Bar("server", Mark("caution", "Must be trusted"), limit=1.0))
    names = {name for name, _ in found}
    assert not names & {"limit", "measured", "interval", "own"}
    assert widths["allowed"] == widths["track"]


def test_what_is_below_guessing_stands_at_guessing_and_is_told_as_it_is():
    bar = Bar("server", Mark("good", "Below the limit"), 0.45, (0.3, 0.6), 0.8)
    assert marks(bar)[1]["measured"] < 1
    assert first_screen.words(bar) == "right in 45.0% (30.0% to 60.0%); theory allows 80.0%"


@pytest.mark.parametrize(
    ("shuts", "fails", "mark"),
    [
        ("alarms > 0", None, PASSED),
        ("epsilon > 2", None, FAILED),
        ("epsilon > 2", "", OPEN),
        ("epsilon > 2", "epsilon > 3", OPEN),
        ("epsilon > 2", "epsilon > 2.4", FAILED),
        ("accuracy < 0.5", None, OPEN),
    ],
)
def test_a_check_says_what_its_gate_says_and_fails_only_where_that_is_proven(shuts, fails, mark):
    found = report_check("Something.", shuts, REPORT, fails)
    assert (found.mark, found.condition) == (mark, shuts)


def test_failed_checks_come_first_and_are_counted():
    checks = [Check(PASSED, "One.", "alarms > 0"), Check(OPEN, "Two."), Check(FAILED, "Three.")]
    page = html.render(Document("a", "a", "a", FirstScreen(["Yes."], checks=checks), []))
    assert "Checks: 1 failed, 1 cannot tell, 1 passed" in page
    assert page.index("Three.") < page.index("Two.") < page.index("One.")
    assert "<code>--fail-if &#39;alarms &gt; 0&#39;</code>" in page


def test_what_nobody_stated_is_said_to_be_missing_in_a_sign_off():
    entries = dict(first_screen.sign_off(data="digits", date="2026-01-01", limits="One target."))
    assert entries["Purpose"] == "not stated"
    assert set(entries["Author"]) == {"_"}  # for a signature
