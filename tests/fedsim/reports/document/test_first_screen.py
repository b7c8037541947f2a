"""The first screen of every page: bars, a gate's numbers, next steps and sign-off."""

import re

import pytest

from fedsim.audits.results.conditions import parse
from fedsim.reports.document import first_screen, html, release
from fedsim.reports.document.blocks import Bar, Bars, Mark, Told

ROWS = {"participant": {"limit": {"epsilon": 2.5}}}
REPORT = {"kind": "training", "alarms": 0, "vantage": "participant", "rows": ROWS}


def marks(bar):
    """Return the x positions of a bar's shapes, in percent, by their class."""
    drawn = str(first_screen.drawn(Bars([bar], "")))
    found = re.findall(r'<(?:rect|line) class="(\w+)" x1?="([\d.]+)%"', drawn)
    widths = dict(re.findall(r'<rect class="(\w+)" .*? width="([\d.]+)%"', drawn))
    return found, {name: float(width) for name, width in widths.items()}


def test_a_bar_reaches_from_guessing_to_what_was_measured_and_the_limit_is_marked():
    bar = Bar("server", Mark("open", "Agrees with theory"), 0.75, (0.6, 0.9), 0.8)
    found, widths = marks(bar)
    full = widths["track"]
    assert widths["measured"] == pytest.approx(full / 2, abs=0.01)
    assert widths["allowed"] == pytest.approx(0.6 * full, abs=0.01)
    places = {name: float(x) for name, x in found}
    assert places["limit"] == pytest.approx(1.5 + 0.6 * full, abs=0.01)


def test_without_a_limit_or_a_measurement_there_is_no_mark_of_it():
    found, widths = marks(Bar("server", Mark("caution", "Must be trusted"), limit=1.0))
    names = {name for name, _ in found}
    assert not names & {"limit", "measured", "interval"}
    assert widths["allowed"] == widths["track"]


def test_what_is_below_guessing_stands_at_guessing_and_is_told_as_it_is():
    bar = Bar("server", Mark("good", "Below the limit"), 0.45, (0.3, 0.6), 0.8)
    found, widths = marks(bar)
    assert widths["measured"] < 1
    # An end beyond the axis has no cap, as if the interval ended there.
    assert sum(name == "interval" for name, _ in found) == 2
    assert first_screen.words(bar) == "right in 45.0% (30.0% to 60.0%); theory allows 80.0%"


def test_the_numbers_of_a_gate_and_what_nobody_stated_stand_behind_the_answer():
    told = Told(kind="Test", name="a", report=REPORT, answer=["Yes."], release="No.", limits="One.")
    page = html.page(told)
    assert page.index("No.") < page.index("Yes.") < page.index('id="gate"')
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page.partition('id="gate"')[2])
    numbers = {"epsilon": "2.5", "alarms": "0"}
    assert numbers.items() <= dict(found).items()
    assert dict(found)["Purpose"] == "not stated"
    for name in numbers:
        assert parse(f"{name} > 0", ["training"]).name == name


@pytest.mark.parametrize(("most", "hardly"), [(0.6, False), (0.94, False), (0.95, True)])
def test_a_limit_near_certainty_is_not_left_as_an_open_decision(most, hardly):
    said = release.decide("This", most, "record")
    assert ("hardly" in said, f"{100 * most:.1f}%" in said) == (hardly, True)
