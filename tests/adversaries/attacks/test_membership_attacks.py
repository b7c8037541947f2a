"""Attacks by membership inference do what loops over models do, and reach what theory allows."""

import sys

import numpy as np
import pytest
from scipy.stats import norm

from adversaries import registry
from adversaries.attacks.membership import yeom
from adversaries.attacks.membership_attacks import ATTACKS, Attack, chosen, rehearse
from adversaries.attacks.roc import curve, performance
from adversaries.attacks.shadow_models import Observations, confidence
from adversaries.errors import InputError
from fedsim.studies.membership.membership_game import attacked, of_shadows

NEEDING_SHADOWS = [name for name, attack in ATTACKS.items() if "shadows" in attack.needs]


def losses_of(confidences):
    """The loss whose probability has these log-odds: log(1 + e^-c)."""
    return np.logaddexp(0.0, -confidences)


@pytest.fixture
def seen():
    rng = np.random.default_rng(0)
    inclusion = np.arange(12)[:, None] + np.arange(5) * 3
    inclusion = rng.permuted(inclusion % 2 == 0, axis=0)
    losses = losses_of(rng.normal(1 + 0.5 * inclusion, 1))
    return Observations(losses, inclusion, losses_of(rng.normal(1, 1, (12, 7))))


def by_hand(name, seen, i, j):
    """The score of one model and record, from the papers' formulas and the other models."""
    others = [m for m in range(len(seen.losses)) if m != i]
    ins = [m for m in others if seen.inclusion[m, j]]
    outs = [m for m in others if not seen.inclusion[m, j]]
    p, c = np.exp(-seen.losses), confidence(seen.losses)
    if name in ("lira", "lira-offline"):
        mean, std = np.mean(c[outs, j]), np.std(c[outs, j], ddof=1)
        if name == "lira-offline":
            return float((c[i, j] - mean) / std)
        inside = norm(np.mean(c[ins, j]), np.std(c[ins, j], ddof=1))
        return float(inside.logpdf(c[i, j]) - norm(mean, std).logpdf(c[i, j]))
    assert seen.population is not None
    q = np.exp(-seen.population)
    usual = (np.mean(p[ins, j]) + np.mean(p[outs, j])) / 2
    beaten = 0
    for z in range(q.shape[1]):
        beaten += (p[i, j] / usual) / (q[i, z] / np.mean(q[others, z])) >= 1
    return beaten / q.shape[1]


@pytest.mark.parametrize("name", NEEDING_SHADOWS)
def test_leaving_one_out_is_a_loop_over_models_and_records(name, seen):
    scores = ATTACKS[name].score(seen, None)
    assert scores.shape == seen.losses.shape
    expected = [[by_hand(name, seen, i, j) for j in range(5)] for i in range(12)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NEEDING_SHADOWS)
def test_shadows_apart_give_what_leaving_out_gives(name, seen):
    """The only target, against the eleven others."""
    last = np.arange(12) == 11
    apart = ATTACKS[name].score(seen.of(last), seen.of(~last))
    np.testing.assert_allclose(apart, ATTACKS[name].score(seen, None)[last], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_model_was_trained_on_does_not_change_its_own_score(name, seen):
    """But for the mean training loss, which the adversary is told."""
    flipped = seen.inclusion.copy()
    flipped[3] = ~flipped[3]
    other = Observations(seen.losses, flipped, seen.population)
    same = np.allclose(ATTACKS[name].score(seen, None)[3], ATTACKS[name].score(other, None)[3])
    assert same == (name != "yeom-mean")


def test_the_mean_loss_rule_is_yeoms(seen):
    attack = ATTACKS["yeom-mean"]
    called = attack.score(seen, None) >= 0
    rates, _ = yeom(seen.losses, seen.losses[:, :1], seen.inclusion)
    inside = np.average(called, axis=1, weights=seen.inclusion)
    np.testing.assert_allclose(inside, rates)


def test_the_confidence_is_the_log_odds_of_the_true_label():
    c = np.array([-800.0, -30.0, -1.0, 0.0, 3.0, 15.0])
    np.testing.assert_allclose(confidence(losses_of(c)), c, rtol=1e-7, atol=1e-12)
    assert np.isfinite(confidence(np.zeros(1))).all()


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_is_won_where_losses_know_nothing_of_membership(name):
    rng = np.random.default_rng(5)
    inclusion = rng.random((128, 40)) < 0.5
    # A model and a record each make losses alike: neither may be mistaken for membership.
    base = rng.normal(0, 1, (128, 1)) + rng.normal(0, 1, 40)
    losses = losses_of(base + rng.normal(0, 1, (128, 40)))
    seen = Observations(losses, inclusion, losses_of(rng.normal(0, 1, (128, 50))))
    scores, threshold = attacked(ATTACKS[name], seen)
    found = performance(scores, inclusion[~of_shadows(128)], 0.999, [0.01], threshold)
    for interval, truth in ((found.advantage.interval, 0.0), (found.area.interval, 0.5)):
        assert interval is not None
        assert interval.low <= truth <= interval.high
        assert interval.high - interval.low < 0.2
    rare = found.true_positive[0.01].interval
    assert rare is not None
    assert rare.low <= 0.01  # and 0 where more than that have the highest score, as in RMIA


@pytest.mark.parametrize(
    ("name", "shift", "spread"),
    [("lira", 1.0, 1.0), ("lira", 1.5, 0.5), ("lira-offline", 1.0, 1.0)],
)
def test_lira_approaches_the_best_test_of_known_normal_confidences(name, shift, spread):
    """N(0, 1) without a record and N(shift, spread^2) with it, whatever the record's difficulty."""
    rng = np.random.default_rng(3)
    models, records = 1000, 50
    inclusion = rng.random((models, records)) < 0.5
    noise = np.where(inclusion, rng.normal(shift, spread, inclusion.shape), 0)
    noise += np.where(inclusion, 0, rng.normal(0, 1, inclusion.shape))
    difficulty = rng.normal(0, 3, records)
    seen = Observations(losses_of(difficulty + noise), inclusion)
    found = curve(ATTACKS[name].score(seen, None), inclusion)
    best = norm.logpdf(noise, shift, spread) - norm.logpdf(noise, 0, 1)
    for rate in (0.01, 0.1):
        # The same pairs under the true likelihood ratio: what is lost is the shadows' doing.
        expected = curve(best, inclusion).true_positive_at(rate)
        assert found.true_positive_at(rate) == pytest.approx(expected, rel=0.15)
    if spread == 1:
        closed = norm.cdf(shift / np.sqrt(2))
        assert found.area == pytest.approx(closed, abs=0.01)
        assert found.true_positive_at(0.01) == pytest.approx(
            norm.cdf(norm.ppf(0.01) + shift), rel=0.15
        )


def test_all_none_and_named_attacks_can_be_chosen():
    assert chosen("all") == ATTACKS
    assert chosen("none") == {}
    assert list(chosen("rmia, lira")) == ["rmia", "lira"]
    with pytest.raises(InputError, match="did you mean 'lira'"):
        chosen("lyra")
    for unknown in ("", "unheard of", "lira,"):
        with pytest.raises(InputError, match=r"give one of yeom-mean, .*, all, none"):
            chosen(unknown)
    for name in ("none", "all"):
        with pytest.raises(InputError, match=f"'lira,{name}', but .{name}. must stand alone"):
            chosen(f"lira,{name}")


def low_loss(targets, shadows):
    return -targets.losses


def test_a_function_of_the_users_own_is_an_attack(seen, monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    monkeypatch.setenv(registry.ALLOWED, "")
    registry.allow(["mine:low_loss", "mine:NEEDING_SHADOWS"])
    attack = chosen("mine:low_loss, lira")["mine:low_loss"]
    assert attack.title == "low_loss"
    assert (attack.score(seen, None) == -seen.losses).all()
    with pytest.raises(InputError, match="mine:NEEDING_SHADOWS, a list; name an Attack, or"):
        chosen("mine:NEEDING_SHADOWS")


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        (lambda *_: np.zeros(3), r"returned float64 of shape \(3,\); .* of shape \(20, 1\)"),
        (lambda targets, _: np.full(targets.losses.shape, np.nan), "with NaN"),
        (lambda targets, _: targets.loses, "ended with AttributeError: .*loses"),
        # Without shadows, which stand for all others.
        (lambda targets, shadows: shadows.losses, "ended with AttributeError"),
        # It would always be right.
        (lambda targets, _: targets.inclusion * 1.0, "has to find targets.inclusion"),
    ],
)
def test_a_faulty_attack_is_refused_before_the_training(attack, says):
    with pytest.raises(InputError, match=says):
        rehearse([Attack(attack, "mine", "user's own code")], 40, 1, 8)


def test_a_right_attack_is_rehearsed_with_all_that_it_may_ask_for():
    seen = []

    def attack(targets, shadows):
        seen.append((targets.losses.shape, targets.population.shape, shadows is None))
        worlds = (targets if shadows is None else shadows).inclusion
        assert (worlds.sum(0) >= 4).all()
        assert (~worlds).sum(0).min() >= 4
        return -targets.losses

    rehearse([Attack(attack, "mine", "user's own code")], 24, 5, 8)
    assert seen == [((12, 5), (12, 8), False), ((12, 5), (12, 8), True)]


def few(seen):
    return seen.of(np.arange(12) < 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda seen: ATTACKS["lira"].score(few(seen), None), "train more models"),
        (
            lambda seen: ATTACKS["rmia"].score(Observations(seen.losses, seen.inclusion), None),
            "records that no model trained on",
        ),
        (lambda seen: Observations(seen.losses, seen.inclusion[:, :2]), "give \\[models, records"),
        (lambda seen: Observations(seen.losses * np.nan, seen.inclusion), "not finite"),
    ],
)
def test_what_cannot_be_attacked_is_refused(wrong, message, seen):
    with pytest.raises(InputError, match=message):
        wrong(seen)
