"""The live page: what it says is provisional, and only what is known."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedsim.config import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.tracking.course import Course, Look
from fedsim.report.tracking.live_page import LivePage, render

Make = Callable[..., Config]

UNDER_WAY = Course(
    phase="training",
    rounds=3,
    trials=(4, 8),
    round=1,
    values={0: 0.1, 1: 0.4, 2: 0.6},
    looks=(Look(4, 0.5, (-0.25, 1.0), 0.8, 0.6),),
    rho_alpha=0.3,
    rho_beta=0.9,
)


def _words(page: str) -> str:
    body = page[page.index("<body") :]
    return " ".join(re.sub("<[^>]*>", " ", body).split())


def test_a_page_says_how_far_the_run_is_and_that_it_is_no_verdict(small: Make) -> None:
    page = render(small().experiment, small().audit, UNDER_WAY, "training")
    said = _words(page)
    assert "After 4 of 8 trials, the adversary's advantage is 0.500 (-0.250 to 1)" in (
        said.replace("&#39;", "'")
    )
    assert "Provisional" in said
    assert "80.0%; ρ β = 90.0%" in said
    assert "trials 4 to 7: round 1 of 3" in said
    assert '<meta http-equiv="refresh" content="5">' in page
    assert page.count("<svg") == 3  # a bar, its axis, and accuracies
    assert "Right in 75.0% (37.5% to 100%); theory allows 65.0%" in said
    assert not re.search(r"<script|https?://", page)
    shown = re.search(r'<progress [^>]*value="([\d.]+)"', page)
    assert shown is not None
    assert float(shown[1]) == pytest.approx((4 + 4 / 3) / 8)


def test_each_class_has_a_row_once_it_was_measured(small: Make) -> None:
    assert "precision" not in render(small().experiment, small().audit, UNDER_WAY, "training")
    measured = replace(UNDER_WAY, recalls=(0.25, None), precisions=(None, 0.5))
    said = _words(render(small().experiment, small().audit, measured, "training"))
    assert "class recall precision 0 25.0% – 1 – 50.0%" in said


@pytest.mark.parametrize(
    ("ends", "kind"),
    [((-0.1, 0.2), "good"), ((-0.1, 0.4), "open"), ((0.31, 0.4), "caution")],
)
def test_only_an_interval_below_the_limit_is_good(
    small: Make, ends: tuple[float, float], kind: str
) -> None:
    course = replace(UNDER_WAY, looks=(Look(4, 0.2, ends),))
    page = render(small().experiment, small().audit, course, "training")
    assert set(re.findall(r'class="mark (\w+)">(?:So far|[A-Z]\w+ the|Not)', page)) == {kind}


def test_a_wide_interval_agrees_with_anything(small: Make) -> None:
    course = replace(UNDER_WAY, looks=(Look(4, 0.2, (-0.6, 0.5)),))
    said = _words(render(small().experiment, small().audit, course, "training"))
    assert "So far: Too few trials" in said
    assert "Wait for the run" in said


def test_before_the_first_batch_and_without_a_limit_nothing_is_judged(small: Make) -> None:
    before = replace(UNDER_WAY, looks=())
    assert "advantage is unknown" in render(small().experiment, small().audit, before, "training")
    for course in (before, replace(UNDER_WAY, rho_alpha=None)):
        assert "So far" not in render(small().experiment, small().audit, course, "training")


def test_the_page_names_clients_that_keep_the_server_waiting(small: Make) -> None:
    late = replace(UNDER_WAY, busy=(1,), busy_since=40.0, time=101.0)
    assert "client 1, for 61 s" in _words(
        render(small().experiment, small().audit, late, "training")
    )
    assert "No answer yet" not in _words(
        render(small().experiment, small().audit, UNDER_WAY, "training")
    )


def test_a_training_has_no_adversary(small: Make) -> None:
    once = {"trials.count": 1, "trials.batch": 1}
    config = small({"run.job": "training", **once})
    said = _words(
        render(
            config.experiment, config.audit, replace(UNDER_WAY, trials=(0, 1), looks=()), "training"
        )
    )
    assert "round 1 of 3" in said
    assert not re.search("advantage|Provisional|belief", said)


def test_the_page_of_a_run_that_ends_leads_on(small: Make, tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run", small())
    page = LivePage(directory)
    file = directory.path / "live.html"
    assert "starting" in file.read_text()
    page.leave(finished=False)
    stopped = file.read_text()
    assert f"fedsim run --resume {directory.path}" in stopped
    assert "http-equiv" not in stopped
    page.leave(finished=True)
    assert '<meta http-equiv="refresh" content="0; url=report.html">' in file.read_text()
