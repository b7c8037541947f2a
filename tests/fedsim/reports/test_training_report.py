"""The page of a training: to whom its records are identifiable, and what was checked."""

import re
from dataclasses import replace

import pytest

from fedsim.configuration import Config
from fedsim.privacy.mechanism import Steps
from fedsim.reports import training_report
from fedsim.reports.document import html
from fedsim.reports.model_card import ReleasedTowards, as_markdown_page

from .test_model_card import CARD, PRIVACY

SERVER = ReleasedTowards("server", "sees every sum", {"pld": 2.0}, [Steps(2.0, 4, 1.0)])
OTHERS = [ReleasedTowards("participant", "sees the model", {"pld": 1.0}, [Steps(4.0, 4, 1.0)])]
ROUND = training_report.NotedRound(3, time=0.0, epsilon=2.0, noise_at_most={"sum": 1.2})


def of(card, missing=(), alarms=()):
    report = training_report.report_of(Config(), card, [ROUND], [*missing], alarms)
    return html.page(training_report.told(report, card))


def card(**changes):
    privacy = replace(PRIVACY, towards=[SERVER, *OTHERS])
    return replace(CARD, **({"privacy": privacy} | changes))


def bars(page):
    name, mark = r"<strong>([^<]*)</strong>", r'<span class="mark (\w+)">[^<]*</span>'
    return re.findall(rf'{name} {mark} <span class="meta">([^<]*)<', page)


def test_every_vantage_has_the_limit_of_its_own_noise():
    page = of(card())
    # Phi(mu / 2) of mu = sqrt(4) / z.
    assert bars(page) == [
        ("Participant", "open", "Theory allows 59.9%; sees the model."),
        ("Server", "open", "Theory allows 69.1%; sees every sum."),
    ]
    assert "What an attack achieves: none was played." in page
    assert "Limited by theory: the limit comes from theory alone" in page
    assert "Anyone with the model can tell whether one" in page
    assert "Sharing public/ is your decision." in page


def test_no_noise_and_no_guarantee_set_no_limit():
    naked = replace(SERVER, epsilon={"pld": float("inf")}, steps=[Steps(0.0, 4, 1.0)])
    page = of(card(privacy=replace(PRIVACY, towards=[naked, *OTHERS])))
    assert ("Server", "caution", "Theory sets no limit; sees every sum.") in bars(page)
    assert "Must be trusted" in page
    promised = replace(PRIVACY, towards=[SERVER, *OTHERS], guaranteed=False, note="Not clipped.")
    page = of(card(privacy=promised))
    assert {mark for _, mark, _ in bars(page)} == {"caution"}
    assert "Do not release: no guarantee protects" in page
    assert "No guarantee" in page and "Must be trusted" not in page
    assert "Share only" not in page
    assert "You may share" not in page


def test_an_alarm_and_a_silent_client_are_said():
    gone = [training_report.Missing(1, "round", "timeout")]
    page = of(card(), gone, ["Too little noise."])
    assert '<p class="release">Do not release: a measurement contradicts' in page
    assert "<dt>alarms</dt><dd>1</dd>" in page
    assert "verdict alarm" in page and "timeout" in page
    assert "You may share" not in page


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_delta_that_publishing_one_of_all_would_meet_is_a_warning(unit):
    count = {"record": CARD.records, "client": CARD.clients}[unit]
    for delta, warned in ((1.1 / count, True), (1 / count, False)):
        at = card(privacy=replace(PRIVACY, unit=unit, delta=delta, towards=[SERVER, *OTHERS]))
        told = f"above 1/{count}. A mechanism that publishes one of {count} {unit}s at random"
        assert (told in of(at)) is warned
        assert (told in as_markdown_page(at)) is warned
