"""What a report says of the residuals, and the alarm of each test."""

import re
from dataclasses import replace

import numpy as np
import pytest

from adversaries.attacks.residuals import DirectionTest, SamplingTest, ShapeTest
from fedsim.audits.measurements import residual_report
from fedsim.audits.results import verdicts
from fedsim.audits.results.measured import NoiseTestResult, Residuals, ScaleTest
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.reports import page
from fedsim.reports.document import html
from fedsim.reports.document.wording import number
from fedsim.reports.sections import evidence


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch):
    """Leave out the page and its figures, which take longer than everything else here."""
    monkeypatch.setattr(page, "write_figures", lambda *_: [])
    monkeypatch.setattr(page, "render_html", lambda *_: "")


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_what_is_left_of_an_aggregate_is_the_noise_that_was_drawn(neighbouring, small, reported):
    """By brute force: all of the noise but its part along g - g', which is in the belief."""
    config = small({"privacy.neighbouring": neighbouring, "trials.count": 4})
    directory, report = reported(config)
    seen = directory.read_arrays("transcript.npz")
    signs = np.where(seen["worlds"], 1, -1)
    before = np.zeros((4, report.details.parameters))
    for step in range(3):
        noise = gaussian_noise(0, range(4), step + 1, SERVER, report.details.parameters)
        ratio = seen["sensitivities"][:, step] / seen["noise_stds"][:, step]
        odds = np.diff(seen["log_odds"], axis=1, prepend=0)[:, step]
        along = odds / ratio - signs * ratio / 2
        expected = np.square(noise).sum(1) - along**2
        np.testing.assert_allclose(seen["residual_squares"][:, step], expected, rtol=1e-5)
        # Of a fresh direction, 1 of P dimensions is cut away from the sum of all before.
        if step:
            repeated = (noise * before).sum(1) / np.linalg.norm(before, axis=1)
            np.testing.assert_allclose(seen["residual_repeats"][:, step], repeated, atol=0.5)
        before += noise
    assert (seen["residual_freedoms"] == report.details.parameters - 1).all()
    assert report.details.residuals.sampling is None
    assert report.details.residuals.noise.degrees_of_freedom == 12 * 649
    ends = report.details.residuals.noise.interval
    sure = residual_report.report(config, seen, 0.99)
    assert sure is not None
    assert sure.confidence == 0.99
    assert sure.noise.interval[0] < ends[0] < ends[1] < sure.noise.interval[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"audit.mode": "oracle"},
        {"federation.trust": "local", "training.local-steps": 2},
    ],
)
def test_without_residuals_nothing_is_said_of_them(changes, small, reported):
    _, report = reported(small({"trials.count": 4, "training.rounds": 2} | changes))
    assert report.details.residuals is None
    assert residual_report.checks(report.details.residuals) == {}


@pytest.mark.slow
def test_the_batches_that_the_adversary_saw_are_poisson_and_the_page_says_so(small, reported):
    config = small({"training.sampling-rate": 0.3})
    directory, report = reported(config)
    seen = directory.read_arrays("transcript.npz")
    sampling = report.details.residuals.sampling
    assert sampling.batches == 24
    assert sampling.rate == pytest.approx(seen["batch_sizes"].sum() / (24 * 23))
    assert sampling.p_value > 1e-3
    told = dict(re.findall(r"<dt[^>]*>(.*?)</dt><dd>(.*?)</dd>", _page(report)))
    noise = told["Noise, divided by the claimed noise"]
    assert f"p = {number(report.details.residuals.noise.p_value)}" in noise
    sizes = told["Variance of batch sizes, divided by the binomial one"]
    assert sizes == f"{number(sampling.dispersion)}; p = {number(sampling.p_value)}"
    without = replace(report, details=replace(report.details, residuals=None))
    assert "Is the residual pure noise?" not in _page(without)


def _page(report):
    return html.fragment(evidence.parts(report, {}))


FINE = Residuals(
    noise=NoiseTestResult(1.0, (0.9, 1.1), [1.0, 1.0], 0.5, False, 9),
    repeats=DirectionTest(0.0, 0.5, 0.0, 9),
    scale=ScaleTest(0.0, 0.5, 0.0, 9, factor=1.0),
    shape=ShapeTest(0.8, 0.8, 0.5, 9),
    sampling=SamplingTest(0.2, 1.0, 0.5, 9),
    confidence=0.95,
    note="",
)


def _found(**changes):
    tests = {test: replace(getattr(FINE, test), **change) for test, change in changes.items()}
    return replace(FINE, **tests)


@pytest.mark.parametrize(
    ("changes", "alarm", "said"),
    [
        ({"noise": {"ratio": 0.7}}, "residual_noise", "0.7 times the claimed noise"),
        ({"noise": {"by_step": [1.4, None, 0.2]}}, "residual_noise", "0.2 to 1.4 times in a round"),
        ({"noise": {"by_step": [None]}}, "residual_noise", "1 to 1 times in a round"),
        ({"repeats": {"cosine": 0.9}}, "residual_repeats", "a reused seed"),
        ({"scale": {"factor": 1.4}}, "residual_scale", "1.4 times the sum of clipped gradients"),
        ({"shape": {"ratio": 0.866}}, "residual_shape", "is 0.866 of its root mean square"),
        ({"sampling": {"dispersion": 0.1}}, "sampling", "is 0.1 of the binomial's"),
    ],
)
def test_each_test_has_its_alarm(changes, alarm, said):
    fine = residual_report.checks(_found(**changes))
    assert [*fine.values()] == [""] * 5  # not below the level
    test = next(iter(changes))
    found = _found(**changes | {test: changes[test] | {"p_value": 1e-5}})
    told = verdicts.alarms(residual_report.checks(found))
    assert list(told) == [alarm]
    assert said in told[alarm]
