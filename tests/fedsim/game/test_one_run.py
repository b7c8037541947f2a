"""Canaries for a one-run audit: drawn, planted and scored in a federation, and reported."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from adversaries.bounds.one_run import bounds
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.measurements import one_run_report
from fedsim.audits.results import verdicts
from fedsim.game import federation, one_run
from fedsim.game.known_round import KnownRound
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust
from tests.auditors_node import run_with_auditor

COUNT = 20
KINDS = sorted(one_run.KINDS)


def _added(config, known, clients, models, trials):
    """Return what the canaries of some clients add to a sum."""
    game = RoundGame(1, trials, 1.0, -1, None, None)
    return one_run.planted(KnownRound(config, known, game, models), clients)


def _planted(kind="gradient"):
    return {"canaries.count": COUNT, "canaries.kind": kind}


@pytest.fixture
def play(small, run, monkeypatch):
    """Return a function that runs a small configuration with some keys changed, for its arrays."""
    monkeypatch.setattr("fedsim.reports.page.write_report", lambda _: None)
    return lambda changes: run(small({"trials.count": 4, "training.rounds": 2} | changes))


def _models(config, trials=3):
    size = sum(each.numel() for each in federation.load(config).model.parameters())
    return torch.randn(trials, size, generator=torch.Generator().manual_seed(1)) / 10


def test_coins_are_fair_and_those_of_a_trial_whatever_its_batch(small):
    config = small({"canaries.count": 2000})
    coins = one_run.included(config.canaries.count, config.run.seed, range(10))
    np.testing.assert_array_equal(
        coins[4:7], one_run.included(config.canaries.count, config.run.seed, range(4, 7))
    )
    assert abs(coins.mean() - 0.5) < 4 * 0.5 / math.sqrt(coins.size)
    assert np.abs(np.corrcoef(coins) - np.eye(10)).max() < 5 / math.sqrt(2000)


def test_canaries_are_planted_at_the_clients_in_turn(small):
    assert one_run.hosts(small({"canaries.count": 5})).tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_clients_canaries_add_up_to_those_that_are_in(kind, small):
    config = small(_planted(kind))
    known, models, trials = federation.load(config), _models(config), range(3)
    each = _one_by_one(config, models)
    coins = torch.from_numpy(
        one_run.included(config.canaries.count, config.run.seed, trials)
    ).double()
    for clients in ([0], [1, 2], [0, 1, 2]):
        there = torch.from_numpy(np.isin(one_run.hosts(config), clients))
        expected = torch.einsum("tmp,tm->tp", each, coins * there)
        found = _added(config, known, clients, models, trials)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert each.norm(dim=-1).max() <= config.training.clipping_norm * (1 + 1e-6)


def _one_by_one(config, models):
    """Return what each canary adds, [T, m, P], by other means than their sums."""
    if config.canaries.kind == "mislabelled":
        return _gradients(config, models)
    trials, size = models.shape
    (block,) = (
        drawn for _, drawn in one_run.directions(config.canaries.count, config.run.seed, size)
    )
    return config.training.clipping_norm * torch.from_numpy(block).expand(trials, -1, -1)


def _gradients(config, models):
    """Return the clipped gradients of the mislabelled records one by one, [T, m, P]."""
    known = federation.load(config)
    positions, labels = one_run.mislabelled(config.run.seed, config.canaries.count, known)
    found = [
        known.clipper.clipped_gradients(
            models, known.pool([int(position)])[0], torch.tensor([int(label)])
        )
        for position, label in zip(positions, labels, strict=True)
    ]
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_the_inner_product_with_what_the_canary_adds(kind, small, monkeypatch):
    config = small(_planted(kind))
    known, models = federation.load(config), _models(config)
    released = torch.randn(models.shape, generator=torch.Generator().manual_seed(2))
    expected = torch.einsum("tmp,tp->tm", _one_by_one(config, models), released.double())
    whole = one_run.scores(config, known, models, released)
    torch.testing.assert_close(whole, expected, rtol=0, atol=1e-6)
    monkeypatch.setattr(one_run, "FORMED", 7 * models.numel())
    torch.testing.assert_close(one_run.scores(config, known, models, released), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_an_auditor_who_knows_the_data_leaves_them_out(kind, small):
    config = small(_planted(kind) | {"canaries.known-data": True})
    known, models = federation.load(config), _models(config)
    data = known.clipped_sum(models, np.arange(24))
    added = _added(config, known, range(3), models, range(3))
    assert added is not None
    found = one_run.scores(config, known, models, data + added)
    expected = torch.einsum("tmp,tp->tm", _one_by_one(config, models), added)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_random_directions_are_nearly_orthogonal(small):
    config, size = small({"canaries.count": 200}), 650
    directions = np.concatenate(
        [block for _, block in one_run.directions(config.canaries.count, config.run.seed, size)]
    )
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1)
    overlaps = directions @ directions.T - np.eye(200)
    assert overlaps.std() == pytest.approx(1 / math.sqrt(size), rel=0.1)


def test_directions_are_the_same_kept_or_drawn_again(small, monkeypatch):
    def drawn(count, parameters):
        config = small({"canaries.count": count})
        return np.concatenate(
            [
                rows
                for _, rows in one_run.directions(
                    config.canaries.count, config.run.seed, parameters
                )
            ]
        )

    kept = [drawn(count, parameters) for count, parameters in ((70, 9), (70, 12), (3, 9))]
    np.testing.assert_array_equal(kept[2], kept[0][:3])
    monkeypatch.setattr(one_run, "KEPT", 0)
    np.testing.assert_array_equal(drawn(70, 9), kept[0])


def test_mislabelled_canaries_are_records_of_the_pool_with_a_wrong_label(small):
    config = small(_planted("mislabelled"))
    split = federation.load(config).split
    positions, labels = one_run.mislabelled(
        config.run.seed, config.canaries.count, federation.load(config)
    )
    assert len(set(positions.tolist())) == COUNT
    assert (labels != split.pool_records.labels[positions]).all()
    assert ((labels >= 0) & (labels < split.dataset.classes)).all()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("gradient", {}),
        ("mislabelled", {"federation.trust": "local"}),
        ("gradient", {"privacy.unit": "client", "privacy.neighbouring": "replace"}),
        ("gradient", {"federation.vantage": "server", "federation.trust": "local"}),
    ],
)
def test_beliefs_beside_canaries_are_those_that_the_noise_itself_gives(kind, more, play):
    changes = _planted(kind) | more
    believed = play(changes)["log_odds"]
    measured = play(changes | {"audit.mode": "oracle"})["log_odds"]
    np.testing.assert_allclose(believed, measured, rtol=0, atol=1e-4)
    assert np.abs(measured).max() > 0.1


def test_a_trials_audit_does_not_depend_on_its_batch(play):
    whole, cut = (play(_planted() | {"trials.batch": size}) for size in (4, 2))
    np.testing.assert_array_equal(whole["canaries_included"], cut["canaries_included"])
    np.testing.assert_allclose(whole["canary_scores"], cut["canary_scores"], rtol=0, atol=1e-4)


def test_scores_tell_canaries_in_from_canaries_out_where_there_is_little_noise(play):
    noise = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 0.01}
    found = play(_planted("gradient") | noise | {"training.rounds": 1, "trials.count": 40})
    scores, coins = found["canary_scores"], found["canaries_included"]
    # Data and noise are the same distance from zero for both; in is C more.
    apart = scores[coins].mean() - scores[~coins].mean()
    assert apart == pytest.approx(1.0, abs=0.35)


def test_without_canaries_nothing_is_recorded(play):
    assert not [name for name in play({}) if name.startswith("canar")]


@pytest.mark.figures
def test_the_report_has_what_the_canaries_prove(small, tmp_path):
    config = small(_planted("mislabelled") | {"trials.batch": 4})
    directory = run_with_auditor(config, tmp_path)
    found = directory.read_arrays("transcript.npz")
    report = directory.read_json("report.json")["details"]["one_run"]
    assert report["count"] == COUNT
    assert report["included"] == found["canaries_included"][0].sum()
    assert report["claimed_epsilon"] == pytest.approx(report["canary_epsilon"], rel=1e-3)
    for bound in report["bounds"].values():
        assert 0 <= bound["details"]["right"] <= bound["details"]["guesses"] == COUNT // 8
    assert sum(report["scores"]["included"]) + sum(report["scores"]["excluded"]) == COUNT
    page = (directory.path / "report.html").read_text()
    assert "One-run audit" in page
    assert "no confidence statement" in page
    assert (directory.path / "figures" / "one-run.svg").exists()


def _agreeing_to(kinds, folder):
    said = f"adversary,central,experiment,{kinds}"
    return {"consent": said, "max-trials": 8, "state-path": str(folder / "state")}


def test_a_client_that_did_not_consent_plants_nothing(small, tmp_path):
    config = small(_planted())
    with pytest.raises(RuntimeError, match="did not consent to 'canaries'"):
        run_with_auditor(config, tmp_path, _agreeing_to("challenge", tmp_path))


@pytest.mark.parametrize(
    ("trust", "neighbouring", "expected"),
    [
        (Trust.CENTRAL, Neighbouring.ADD_REMOVE, math.sqrt(9) / 2),
        (Trust.CENTRAL, Neighbouring.REPLACE, math.sqrt(9) / 4),
        (Trust.LOCAL, Neighbouring.ADD_REMOVE, math.sqrt(9) / (2 * math.sqrt(4))),
    ],
)
def test_what_the_noise_claimed_says_of_one_canary(trust, neighbouring, expected):
    releases = Releases((Rounds(2.0, 9),), neighbouring, trust, clients=4)
    assert one_run_report.canary_mu(releases) == pytest.approx(expected)
    assert one_run_report.canary_mu(replace(releases, rounds=(Rounds(0.0),))) == math.inf


def test_a_round_of_few_clients_has_less_noise_for_a_canary():
    rounds = Rounds(2.0, 4), Rounds(2.0, 5, participants=3)
    local = Releases(rounds, trust=Trust.LOCAL, clients=4)
    expected = math.sqrt(4 / (2**2 * 4) + 5 / (2**2 * 3))
    assert one_run_report.canary_mu(local) == pytest.approx(expected)


def test_the_alarm_pays_for_both_of_its_bounds():
    rng, delta = np.random.default_rng(3), 1e-5
    coins = rng.random(200) < 0.5
    mine = coins, coins + 0.3 * rng.standard_normal(200)
    whole, part = (
        max(bound.epsilon for bound in bounds(*mine, delta, 1 - alpha).values())
        for alpha in (1 - ALARM_CONFIDENCE, (1 - ALARM_CONFIDENCE) / 2)
    )
    assert part < whole - 1e-3
    assert not one_run_report.alarm(mine, delta, (part + whole) / 2)
    assert one_run_report.alarm(mine, delta, part - 1e-3)


def test_less_noise_than_claimed_is_an_alarm(small):
    config = small({"canaries.count": 1000})
    rng = np.random.default_rng(3)
    coins = rng.random((1, 1000)) < 0.5
    claimed = Releases((Rounds(4.0, 4),), clipping_norm=1.0)
    alarms = {}
    for noise in (2.0, 0.2):
        arrays = {
            "canary_scores": coins + noise * rng.standard_normal((1, 1000)),
            "canaries_included": coins,
        }
        found = one_run_report.report(config, arrays, claimed, 1e-5, 0.95)
        assert found is not None
        alarms[noise] = verdicts.alarms(one_run_report.checks(found, config, arrays, 1e-5))
    assert not alarms[2.0]
    assert "more than the claimed noise allows" in alarms[0.2]["one_run"]
