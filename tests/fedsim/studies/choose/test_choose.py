"""Which setting is picked, of outcomes that are made up."""

import math
from dataclasses import replace

import pytest

from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, mean_interval
from fedsim.config import Scalar
from fedsim.studies.choose import choose, grid
from fedsim.studies.choose.choose import ADVANTAGE, BELIEF, RISK, Candidate, Limit

LIMIT = Limit(ADVANTAGE, 0.2)


def setting(rho_alpha: float, accuracy: float, reach: float = 0.01, **values: Scalar) -> Candidate:
    """Return a setting that lets the adversary have so much, with its accuracy."""
    keys = {f"training.{key}": value for key, value in values.items()}
    return Candidate(
        name=f"{rho_alpha} {values}",
        values={ADVANTAGE: rho_alpha, **keys},
        noise_multiplier=1 / rho_alpha,
        epsilon=rho_alpha,
        rho_beta=0.5 + rho_alpha / 2,
        rho_alpha=rho_alpha,
        tail_limit=0.01,
        risk=0.01,
        meets=rho_alpha <= LIMIT.value,
        accuracy=accuracy,
        accuracy_interval=Interval(accuracy - reach, accuracy + reach, 0.95),
        trainings=40,
        advantage=0.0,
        advantage_interval=(-0.3, 0.3),
        alarm=False,
    )


STRICT, MIDDLE, LEAST, LOOSE = (
    setting(0.05, 0.60),
    setting(0.10, 0.79),
    setting(0.20, 0.80),
    setting(0.40, 0.90),
)
ALL = (LOOSE, STRICT, LEAST, MIDDLE)


def test_the_least_noise_that_meets_the_limit_is_chosen() -> None:
    found = choose.choose(ALL)
    assert (found.state, found.chosen, found.least) == ("chosen", LEAST, (LEAST,))
    # Within two points of the best accuracy of those that meet it, not of all.
    assert found.strictest == MIDDLE
    assert found.nearest == ()


def test_of_each_combination_the_least_noise_and_of_these_the_most_accurate() -> None:
    few = [setting(a, b, rounds=5) for a, b in ((0.05, 0.3), (0.2, 0.5), (0.4, 0.9))]
    many = [setting(a, b, rounds=30) for a, b in ((0.05, 0.4), (0.15, 0.7), (0.4, 0.95))]
    found = choose.choose([*few, *many])
    assert sorted(each.rho_alpha for each in found.least) == [0.15, 0.2]
    assert found.chosen == many[1]


def test_with_a_least_accuracy_the_strictest_that_is_surely_as_accurate() -> None:
    assert choose.choose(ALL, 0.75).chosen == MIDDLE
    # Its mean is enough and its lower end is not.
    assert choose.choose(ALL, 0.785).chosen == LEAST
    assert choose.choose(ALL, 0.55).chosen == STRICT


def test_where_nothing_meets_both_it_says_what_is_nearest() -> None:
    found = choose.choose(ALL, 0.85)
    assert (found.state, found.chosen) == ("none", None)
    assert found.nearest == (LEAST, LOOSE)
    nothing = choose.choose([LOOSE])
    assert (nothing.state, nothing.chosen, nothing.least) == ("none", None, ())
    assert nothing.strictest is None
    assert choose.choose([]).state == "none"


def test_what_the_trials_cannot_tell_is_not_chosen() -> None:
    wide = replace(LEAST, accuracy_interval=Interval(0.72, 0.88, 0.95))
    found = choose.choose([STRICT, wide, LOOSE], 0.78)
    assert (found.state, found.chosen) == ("cannot tell", None)
    assert found.nearest[0] == wide
    # Its reach of 0.08 has to come down to 0.02, sixteen times the trainings, and leave 80 % power.
    needed = 640 * (1 + 0.8416 / 1.9600) ** 2
    assert choose.trainings_needed(wide, 0.78) == pytest.approx(needed, abs=2)
    assert choose.trainings_needed(wide, 0.81) is None
    single = replace(LEAST, accuracy_interval=None)
    assert choose.choose([single], 0.5).state == "cannot tell"
    assert choose.choose([single]).chosen == single


def test_trials_that_contradict_theory_and_models_that_diverged_are_left_out() -> None:
    assert choose.choose([replace(LEAST, alarm=True), STRICT]).chosen == STRICT
    diverged = replace(LEAST, accuracy=None, accuracy_interval=None)
    assert choose.choose([diverged, STRICT]).chosen == STRICT


def test_a_model_that_has_learnt_nothing_is_never_chosen() -> None:
    """Neither where all trainings equal the majority class, nor where an interval holds it."""
    equal = replace(setting(0.20, 0.733), majority=0.733, accuracy_interval=None)
    unsure = replace(setting(0.10, 0.74), majority=0.733)
    found = choose.choose([equal, unsure])
    assert (found.chosen, found.state) == (None, "none")
    assert equal.left_out == "It is right no more often than the majority class."
    assert "cannot tell" in unsure.left_out
    better = replace(setting(0.05, 0.76), majority=0.733)
    assert choose.choose([equal, unsure, better]).chosen is better


def test_where_the_trials_show_no_cost_of_noise_it_is_not_noise_that_limits() -> None:
    flat = [setting(0.05, 0.585, 0.04), setting(0.2, 0.59, 0.04), setting(0.4, 0.58, 0.04)]
    assert choose.noise_costs_nothing(flat)
    assert not choose.noise_costs_nothing(ALL)
    # A difference that is small and certain; means that are apart, where the trials cannot tell.
    assert not choose.noise_costs_nothing([setting(0.05, 0.58, 0.001), setting(0.4, 0.59, 0.001)])
    assert not choose.noise_costs_nothing([setting(0.05, 0.5, 0.2), setting(0.4, 0.6, 0.2)])
    assert not choose.noise_costs_nothing(flat[:1])


@pytest.mark.parametrize(
    ("key", "value"), [(BELIEF, 0.75), (ADVANTAGE, 0.2), (BELIEF, 0.999), (RISK, 0.0011)]
)
def test_noise_is_varied_around_the_limit_which_is_among_what_is_tried(
    key: str, value: float
) -> None:
    alone = choose.varied(Limit(key, value), {})[key]
    assert value in alone
    assert list(alone) == sorted(set(alone))
    coin = {BELIEF: 0.5, ADVANTAGE: 0, RISK: 0.001}[key]
    assert all(coin < float(each) < 1 for each in alone)
    beside = choose.varied(Limit(key, value), {"training.rounds": [1, 2]})
    assert len(beside[key]) < len(alone)
    assert choose.varied(Limit(key, value), {"privacy.epsilon": [1.0]}) == {
        "privacy.epsilon": [1.0]
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [(BELIEF, 0.5), (BELIEF, 1.0), (ADVANTAGE, 0.0), (ADVANTAGE, math.nan), (RISK, 0.001)],
)
def test_a_limit_that_limits_nothing_is_refused(key: str, value: float) -> None:
    with pytest.raises(InputError, match="give a number above"):
        Limit(key, value)


def test_levels_of_a_risk_are_multiples_of_mu() -> None:
    # From 1 in 1,000 to 5 in 1,000 by hand: mu = Φ⁻¹(.005) - Φ⁻¹(.001) = .5144.
    levels = Limit(RISK, 0.005).levels((0.5, 1.0, 2.0))
    assert levels == pytest.approx([0.002305, 0.005, 0.01963], rel=1e-3)
    with pytest.raises(InputError, match="--baseline-risk is 0"):
        Limit(RISK, 0.005, 0.0)


def test_an_accuracy_has_the_interval_of_its_mean() -> None:
    outcome = grid.RunOutcome(grid.Point("a", {}), None, accuracies=(0.5, 0.6, 0.7))
    found = outcome.accuracy_interval(0.95)
    # By a table of Student's distribution: t = 4.303 with 2 degrees of freedom.
    assert found is not None
    assert found.high - 0.6 == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=1e-3)
    assert grid.RunOutcome(grid.Point("a", {}), None, accuracies=(0.5, math.nan)).accuracy is None
    # Trainings that are all alike do not say how much they vary: that is no certainty.
    for alike in ((0.8,), (0.8, 0.8), (0.1, 0.1, 0.1)):
        flat = grid.RunOutcome(grid.Point("a", {}), None, accuracies=alike)
        assert flat.accuracy_interval(0.95) is None
    with pytest.raises(InputError, match="at least 2"):
        mean_interval([0.5], 0.95)
