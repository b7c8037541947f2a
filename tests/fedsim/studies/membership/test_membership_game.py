"""The population's game trains what the federation would, and says what privacy allows."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom
from scipy.stats import t as student

from adversaries.attacks import membership_attacks, roc
from adversaries.attacks.membership import MeanAdvantage
from adversaries.attacks.shadow_models import Observations
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.common.randomness import SERVER
from fedsim.game import federation
from fedsim.game.client import noise
from fedsim.learning.training.models import initial_parameters
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.participation.sampling import participation
from fedsim.studies.membership import membership_game, membership_report
from fedsim.studies.membership.membership_game import (
    attacked,
    inclusion,
    mechanism,
    of_shadows,
    play,
)
from tests.console import exit_of


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_model_is_dp_sgd_on_its_half_by_hand(rate, small):
    config = small({"training.sampling-rate": rate, "training.rounds": 2})
    game = play(config, 40)
    known, chosen = federation.load(config), inclusion(0, 40, 24)
    np.testing.assert_array_equal(game.observations.inclusion, chosen)
    theta = initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(40)
    )[5:6]
    for round in (1, 2):
        coins = participation(0, range(5, 6), round, 24, rate)
        inside = np.flatnonzero(chosen[5] if coins is None else chosen[5] & coins[0])
        total = known.clipped_sum(theta, inside)
        std = torch.tensor([game.noise_multiplier * config.training.clipping_norm])
        total += noise(0, range(5, 6), round, SERVER, std.double(), theta.shape[1])
        # Of the n records half are expected.
        step = config.training.learning_rate / (rate * 24 / 2)
        theta = (theta.double() - step * total).float()
    losses, _ = known.evaluate(theta, *known.members(np.arange(24)))
    np.testing.assert_allclose(game.observations.losses[5], losses[0], rtol=1e-4)


def test_results_do_not_depend_on_batches_or_on_how_many_models_there_are(small):
    whole, cut = (play(small({"trials.batch": c, "run.seed": 1}), 40) for c in (40, 13))
    more = play(small({"run.seed": 1}), 42)
    for other in (cut, more):
        np.testing.assert_allclose(
            other.observations.losses[:40], whole.observations.losses, rtol=1e-4
        )
        np.testing.assert_array_equal(
            other.observations.inclusion[:40], whole.observations.inclusion
        )


def test_what_hides_a_record_is_the_noise_of_all_clients(small):
    """Against add-remove: noise for replaced records is twice what one that is missing needs."""
    plain = mechanism(small(), 2.0)
    assert plain == Mechanism.alike(2.0, 3)
    assert mechanism(small({"privacy.neighbouring": "replace"}), 2.0) == Mechanism.alike(4.0, 3)
    local = mechanism(small({"federation.trust": "local"}), 2.0)
    assert local is not None
    assert local.mu == pytest.approx(np.sqrt(3) / (2 * np.sqrt(3)))
    given = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1.0}
    assert mechanism(small(given | {"training.clipping": False}), 1.0) is None


def test_what_the_loop_cannot_play_is_refused(small):
    with pytest.raises(InputError, match=r"membership inference cannot play.*privacy\.sensitivity"):
        play(small({"privacy.sensitivity": "local"}), 40)


@pytest.mark.parametrize("count", [-3, 0, 1, 4])
def test_too_few_models_are_refused(count, small):
    message = f"--models is {count}: every second model is a shadow.* give more --models"
    with pytest.raises(InputError, match=message):
        play(small(), count)


def test_a_record_needs_three_shadow_models_on_either_side(small):
    """Two besides the one that is left out, where a threshold is chosen."""
    config = small({"training.rounds": 1})

    def enough(models):
        inside = inclusion(0, models, 24)[::2]
        return bool(min(inside.sum(axis=0).min(), (~inside).sum(axis=0).min()) >= 3)

    least = next(models for models in range(4, 200) if enough(models))
    assert len(play(config, least).accuracy) == least
    with pytest.raises(InputError, match="give more --models"):
        play(config, least - 1)


def test_a_model_on_all_records_or_none_is_refused_before_any_is_trained(small):
    with pytest.raises(InputError, match=r"a model would be trained on no .* more data\.records"):
        play(small({"data.records": 3}), 40)


def test_more_models_than_fit_are_refused_before_anything_is_made(small, monkeypatch):
    monkeypatch.setattr(membership_game, "inclusion", lambda *_: pytest.fail("coins were drawn"))
    with pytest.raises(InputError, match=r"--models is 1000000000.* fewer data\.records"):
        play(small(), 10**9)
    # Losses of 24 records and of 20 strangers, in float64, eight times.
    each = 8 * 8 * (24 + 20)
    limited = small({"run.max-memory": f"{100 * each}B"})
    with pytest.raises(
        InputError, match=r"but 275 KiB are available \(.*give at most 100 models, or"
    ):
        play(limited, 101)
    with pytest.raises(pytest.fail.Exception, match="coins were drawn"):
        play(limited, 100)


@pytest.mark.parametrize(("records", "non_members"), [(24, 1000), (1000, 20)])
def test_no_attack_holds_more_copies_of_the_losses_than_are_counted(records, non_members):
    rng = np.random.default_rng(0)
    inside = rng.random((300, records)) < 0.5
    losses, others = rng.random((300, records)), rng.random((300, non_members))
    observations = Observations(losses, inside, others)
    given = losses.nbytes + others.nbytes
    most = 0
    for attack in membership_attacks.ATTACKS.values():
        tracemalloc.start()
        attacked(attack, observations)
        most = max(most, given + tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert 3 * given < most < membership_game.COPIES * given


def test_models_start_where_the_federations_do(small):
    changes = {"model.initialisation": "fixed", "training.rounds": 1}
    config = small(changes | {"training.learning-rate": 1e-9})
    known = federation.load(config)
    start = federation.initial_parameters(config, known, range(1)).to(known.device)
    losses, _ = known.evaluate(start, *known.members(np.arange(24)))
    found = play(config, 40).observations.losses
    np.testing.assert_allclose(found, losses.numpy().repeat(40, 0), rtol=1e-4)


def chance(models, records, rng):
    """Losses that know nothing of membership; a model and a record each make them alike."""
    shadows = of_shadows(models)
    while True:
        inside = rng.random((models, records)) < 0.5
        given, sizes = inside[shadows].sum(0), inside.sum(1)
        if min(given.min(), (shadows.sum() - given).min()) > 2 and sizes.min() > 0:
            break
    losses = rng.normal(0, 1, (models, 1)) + rng.normal(0, 1, records)
    losses = np.logaddexp(0, losses + rng.normal(0, 1, (models, records)))
    others = np.logaddexp(0, rng.normal(0, 1, (models, 50)))
    return Observations(losses, inside, others)


@pytest.mark.parametrize(
    ("name", "models", "repeats"),
    [
        *((name, 64, 300) for name in ("lira", "lira-offline", "rmia")),
        pytest.param("lira", 128, 3000, marks=pytest.mark.slow),
        *(
            pytest.param(name, 128, 3000, marks=[pytest.mark.slow, pytest.mark.long])
            for name in ("lira-offline", "rmia")
        ),
    ],
)
def test_where_losses_tell_nothing_intervals_miss_no_more_often_than_they_say(
    name, models, repeats
):
    """Advantage 0 and area 1/2: an attacked model that had a say in what judges it would win."""
    rng = np.random.default_rng(models)
    attack, games = membership_attacks.ATTACKS[name], ~of_shadows(models)
    points, areas, sides = [], [], []
    for _ in range(repeats):
        seen = chance(models, 50, rng)
        scores, threshold = attacked(attack, seen)
        found = roc.performance(scores, seen.inclusion[games], 0.95, [], threshold)
        gained, area = found.advantage.interval, found.area.interval
        assert gained is not None
        assert area is not None
        points.append(found.advantage.point)
        areas.append(found.area.point)
        sides.append([gained.low > 0, gained.high < 0, area.low > 0.5, area.high < 0.5])
    for values, truth in ((points, 0.0), (areas, 0.5)):
        assert abs(np.mean(values) - truth) < 4 * np.std(values) / np.sqrt(repeats)
    # The jackknife is a little narrow.
    allowed = [binom.isf(1e-4, repeats, share) for share in (0.03, 0.03, 0.035, 0.035)]
    assert np.all(np.sum(sides, axis=0) <= allowed)


@pytest.mark.slow
@pytest.mark.long
def test_honest_noise_that_hides_all_raises_no_alarm(small, monkeypatch):
    """A bound of next to nothing, in so many reports that one alarm would be many."""
    monkeypatch.setattr(roc, "REPLICATES", 2)
    attacks = membership_attacks.chosen("lira,lira-offline")
    changes = {"data.records": 100, "privacy.rho-beta": 0.0, "privacy.noise-multiplier": 2000.0}
    alarms = 0
    for seed in range(250):
        config = small({**changes, "run.seed": seed})
        game = play(config, 64)
        alarms += bool(
            membership_report.assemble(config, config.audit.confidence, game, attacks, 0.0).alarms
        )
    assert alarms <= binom.isf(1e-4, 250, 0.001)


EXPERIMENT = """
[data]
records = 24
held-out = 20
[model]
name = "linear"
[training]
rounds = 3
[run]
device = "cpu"
"""


def test_the_command_leaves_a_report_and_never_replaces_one(tmp_path, capsys):
    file, out = tmp_path / "experiment.toml", tmp_path / "out"
    file.write_text(EXPERIMENT)
    command = ["attack", str(file), "--models", "48", "--out", str(out), "--json"]
    assert exit_of(*command) == 0
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) <= 19
    report = json.loads(shown.out)
    assert report == json.loads((out / "report.json").read_text())
    assert set(report["attacks"]) == set(membership_attacks.ATTACKS)
    for row in report["attacks"].values():
        assert row["advantage_interval"][0] <= row["advantage"] <= row["advantage_interval"][1]
        assert 0 <= row["area"]["interval"][0] <= row["area"]["interval"][1] <= 1
    assert [report[key] for key in ("models", "shadow_models", "games")] == [48, 24, 24]
    # 24 attacked models of 24 records: 10 false positives of about 288 pairs are 3.5 %.
    assert [at["false_positive_rate"] for at in report["attacks"]["lira"]["true_positive_at"]] == [
        0.1
    ]
    assert report["bounds"]["advantage"] == pytest.approx(
        gaussian.advantage(np.sqrt(3) / report["noise_multiplier"])
    )
    page = (out / "report.html").read_text()
    assert "LiRA, offline" in page
    assert "differential privacy allows" in page
    assert "<script" not in page
    assert exit_of(*command) == 2
    assert "name a new directory with --out" in capsys.readouterr().err
    # What is configured is played, unless the command names attacks; and nothing is refused first.
    none = ["attack", str(file), "--out", str(tmp_path / "n"), "audit.attacks=none"]
    assert exit_of(*none) == 2
    assert 'audit.attacks is "none"' in capsys.readouterr().err
    exit_of(*none, "audit.attacks=lira", "--models", "48", "--json")
    assert list(json.loads(capsys.readouterr().out)["attacks"]) == ["lira"]


def test_an_attack_above_the_bound_is_an_alarm(small):
    """Noise that is claimed a thousand times larger than it is."""
    config = small(
        {
            "privacy.rho-beta": 0.0,
            "privacy.noise-multiplier": 0.001,
            "training.rounds": 40,
            "model.name": "mlp",
        }
    )
    game = play(config, 64)
    attacks = {"lira": membership_attacks.ATTACKS["lira"]}
    honest = membership_report.assemble(config, config.audit.confidence, game, attacks, 1.0)
    interval = honest.attacks["lira"].interval
    assert interval is not None and interval[0] > 0.1
    assert not any("ALARM" in sentence for sentence in membership_report.verdict(honest))
    assert membership_report.verdict(honest)[0].startswith("The attack, LiRA, online")
    false = replace(game, mechanism=mechanism(config, 1000.0))
    told = membership_report.told(
        membership_report.assemble(config, config.audit.confidence, false, attacks, 1.0)
    )
    assert "LiRA, online" in told.alarms[0]
    assert [bar.mark.text for bar in told.observers] == ["Contradicted"]
    assert len(membership_report.roc(honest).panels) == 1


def test_an_alarm_takes_its_confidence_and_knows_how_many_attacks_there_were():
    """The limits that errors of t come to by SciPy's own distribution."""
    gained = MeanAdvantage(0.5, 0.1, None, 48)
    for looks in (1, 11):
        expected = 0.5 + 0.1 * student.ppf((1 - ALARM_CONFIDENCE) / looks, 47)
        assert membership_report.least_advantage(gained, looks) == pytest.approx(expected)
    assert membership_report.least_advantage(MeanAdvantage(0.5, None, None, 1), 1) == -1
