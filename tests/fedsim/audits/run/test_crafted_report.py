"""A crafted target is played like any other, and the report says what it proves of one."""

import numpy as np
import pytest
from scipy import stats

from adversaries.bounds.lower_bounds import clopper_pearson_split
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results import verdicts
from fedsim.audits.run import empirical
from fedsim.reports import page
from fedsim.reports.page import Pictures, render_html

NOISE = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 4.0}


@pytest.fixture
def play(run, monkeypatch):
    """Return a function that runs a configuration and writes no report of it."""
    monkeypatch.setattr(page, "write_report", lambda directory: None)
    return run


def _standardised(transcript):
    """Return the final log-odds in the units of theory: N(0, 1) in both worlds."""
    mu = np.sqrt((transcript["sensitivities"] / transcript["noise_stds"]) ** 2 @ np.ones(3))
    signs = np.where(transcript["worlds"], 1, -1)
    return (transcript["log_odds"][:, -1] - signs * mu**2 / 2) / mu


@pytest.mark.parametrize(
    ("kind", "neighbouring"),
    [("mislabelled", "replace"), ("clipbkd", "add-remove"), ("gradient", "replace")],
)
def test_the_log_odds_follow_theory_whatever_the_target(kind, neighbouring, small, play):
    what = {"challenge.kind": kind, "privacy.neighbouring": neighbouring}
    size = {"trials.count": 200, "trials.batch": 200, "data.held-out": 4}
    transcript = play(small(NOISE | what | size))
    assert stats.kstest(_standardised(transcript), "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    ("trust", "neighbouring"),
    [("central", "replace"), ("local", "add-remove"), ("distributed", "add-remove")],
)
def test_of_a_vector_mu_is_exact(trust, neighbouring, small, play):
    where = {"federation.trust": trust, "privacy.neighbouring": neighbouring}
    transcript = play(small(NOISE | where | {"challenge.kind": "gradient"}))
    bound = 2.0 if neighbouring == "replace" else 1.0
    np.testing.assert_allclose(transcript["sensitivities"], bound, rtol=1e-12)
    # Of three clients' noise the adversary knows its own.
    unknown = {"central": 1.0, "local": np.sqrt(2), "distributed": np.sqrt(2 / 3)}[trust]
    np.testing.assert_allclose(transcript["noise_stds"], 4 * unknown * bound, rtol=1e-4)


@pytest.mark.parametrize(
    "what",
    [
        {"challenge.kind": "clipbkd", "privacy.neighbouring": "replace"},
        {"challenge.kind": "gradient", "training.sampling-rate": 0.4},
    ],
)
def test_the_auditor_reads_from_the_noise_what_the_adversary_computes(what, small, play):
    modes = "participant", "oracle"
    found = [play(small(NOISE | what | {"audit.mode": mode})) for mode in modes]
    np.testing.assert_allclose(found[0]["log_odds"], found[1]["log_odds"], atol=1e-5)


def test_another_batch_gives_the_same_but_for_rounding(small, play):
    what = {"challenge.kind": "clipbkd", "model.initialisation": "fixed"}
    one, other = (play(small(NOISE | what | {"trials.batch": size})) for size in (8, 4))
    for name in ("log_odds", "poison_scores"):
        np.testing.assert_allclose(one[name], other[name], atol=2e-6)


@pytest.fixture
def finished(small, reported):
    size = {"trials.count": 40, "trials.batch": 40}
    return lambda changes: reported(small(NOISE | {"challenge.kind": "gradient"} | size | changes))


@pytest.mark.slow
@pytest.mark.figures
def test_the_report_states_what_the_target_proves(finished):
    directory, report = finished({"model.initialisation": "worst-case", "canaries.count": 8})
    delta, epsilon = report.delta, report.row.limit.epsilon
    mu = np.sqrt(3) / 4
    assert epsilon == pytest.approx(gaussian.epsilon(mu, delta), rel=1e-3)
    assert report.row.limit.rho_alpha == pytest.approx(gaussian.advantage(mu), rel=1e-6)
    assert report.details.prediction.mu == pytest.approx(mu)
    assert report.details.budget.epsilon["participant"] == pytest.approx(epsilon)
    assert report.details.challenge.records == 1
    # A canary is one record.
    assert report.details.one_run.claimed_epsilon == pytest.approx(epsilon)
    assert report.details.one_run.canary_mu == pytest.approx(mu)
    assert set(report.details.crafted.lower_bounds) == {"released_model", "released_model_mu_gdp"}
    # The target is no record, so that no loss is either.
    assert set(report.details.membership_inference) == {"yeom"}
    page = render_html(report, Pictures(report, directory.read_arrays("transcript.npz")))
    assert report.details.membership_missing in page
    assert "The crafted target" in page
    assert "from the released model alone" in page
    assert "Score of the released models." in page
    assert (directory.path / "figures" / "poison.svg").exists()
    # The first model is not what differential privacy is about, and is no release of it either.
    assert "fitted to the records of D without noise" in report.details.mechanism.dp_note


def test_the_replacement_of_what_was_made_is_the_original_record(finished):
    directory, report = finished({"challenge.kind": "clipbkd", "privacy.neighbouring": "replace"})
    assert report.details.challenge.replacement == "the original record"
    page = " ".join((directory.path / "report.html").read_text().split())
    assert "on D′, the same data with the original record in its place" in page


def test_scores_that_tell_the_worlds_apart_raise_an_alarm_where_noise_should_not_allow_it():
    worlds = np.arange(400) % 2 == 0
    transcript = {
        "worlds": worlds,
        "log_odds": np.zeros((400, 1)),
        "sensitivities": np.ones((400, 1)),
        "noise_stds": np.ones((400, 1)),
        "poison_scores": np.where(worlds, 1.0, -1.0),
    }
    found = empirical.released_bounds(transcript, 1e-5, ALARM_CONFIDENCE, gaussian=False)
    exactly = found["released_model"].epsilon
    assert exactly > 2

    def raised(epsilon):
        return verdicts.alarms(empirical.crafted_checks(transcript, epsilon, 1e-5))

    assert "poison_score" in raised(0.5)
    assert not raised(exactly)
    assert raised(exactly * 0.999)


def test_what_the_released_model_proves_grows_with_what_is_assumed():
    generator = np.random.default_rng(0)
    worlds, mu = np.arange(4000) % 2 == 0, 1.0
    odds = mu * generator.standard_normal(4000) + np.where(worlds, 1, -1) * mu**2 / 2
    transcript = {"worlds": worlds, "poison_scores": odds}
    true = gaussian.epsilon(mu, 1e-3)
    scored = empirical.released_bounds(transcript, 1e-3, 0.95, gaussian=True)
    by_mu = scored["released_model_mu_gdp"]
    assert 0 < scored["released_model"].epsilon < by_mu.epsilon < true
    assert by_mu.epsilon == pytest.approx(gaussian.epsilon(by_mu.details["mu_low"], 1e-3))
    # At a threshold of its own, between the worlds.
    split = clopper_pearson_split(worlds, odds, 1e-3, 0.95, for_mu=True)
    threshold = by_mu.details["threshold"]
    assert threshold == split.details["threshold"] != scored["released_model"].details["threshold"]
    assert set(empirical.released_bounds(transcript, 1e-3, 0.95, gaussian=False)) == {
        "released_model"
    }
    assert empirical.released_bounds({"worlds": worlds}, 1e-3, 0.95, gaussian=True) == {}
