"""Which setting is picked, of outcomes that are made up."""

import pytest

from adversaries.errors import InputError
from fedsim.learning.training.criterion import Judged
from fedsim.studies.choose.rule import ADVANTAGE, BELIEF, RISK, Candidate, Limit, choose
from fedsim.studies.choose.utility import Utility

LIMIT = Limit(ADVANTAGE, 0.2)


def setting(rho_alpha, area, reach=0.01, rounds=20, risk=0.01, judged=None, **values):
    """Return a setting that lets the adversary have so much, with the AUC of its models."""
    judged = judged or Judged("AUC", area, (area - reach, area + reach), 0.5)
    return Candidate(
        values={ADVANTAGE: rho_alpha, **values},
        noise_multiplier=1 / rho_alpha,
        epsilon=rho_alpha,
        rho_beta=0.5 + rho_alpha / 2,
        rho_alpha=rho_alpha,
        tail_limit=0.01,
        risk=risk,
        meets=rho_alpha <= LIMIT.value,
        rounds=rounds,
        towards=(),
        utility=Utility(judged, {"AUC": judged}, 3, 0.001, None),
    )


STRICT, MIDDLE, LEAST, LOOSE = (
    setting(0.05, 0.60),
    setting(0.10, 0.79),
    setting(0.20, 0.80),
    setting(0.40, 0.90),
)
ALL = (LOOSE, STRICT, LEAST, MIDDLE)


def test_the_strictest_setting_is_chosen_that_is_at_most_half_a_point_worse():
    found = choose(ALL)
    assert (found.state, found.chosen) == ("chosen", LEAST)
    # Of the best of those that meet the limit, not of all.
    assert choose([*ALL, near := setting(0.10, 0.796)]).chosen == near
    assert choose([*ALL, setting(0.10, 0.794)]).chosen == LEAST
    # Near to a constant answer, half a point would be all that a model has learnt.
    poor, poorer = setting(0.2, 0.55), setting(0.1, 0.546)
    assert choose([poor, poorer]).chosen == poor


def test_of_equal_noise_the_best_and_of_nearly_equal_ones_the_fewest_rounds():
    few, more, many = (
        setting(0.2, area, rounds=rounds) for area, rounds in ((0.7, 20), (0.745, 40), (0.748, 100))
    )
    assert choose([STRICT, few, many, more]).chosen == more
    assert choose([few, many]).chosen == many


def test_with_a_least_value_the_strictest_that_surely_reaches_it():
    assert choose(ALL, ("AUC", 0.75)).chosen == MIDDLE
    # Its mean is enough and its lower end is not; three ends hold together, which are wider.
    assert choose(ALL, ("AUC", 0.785)).chosen == LEAST
    assert choose(ALL, ("AUC", 0.789)).chosen is None
    assert choose([LEAST], ("AUC", 0.789)).chosen == LEAST
    undecided = choose(ALL, ("AUC", 0.805))
    assert (undecided.state, undecided.chosen) == ("cannot tell", None)
    assert undecided.undecided == LEAST
    assert choose(ALL, ("accuracy", 0.1)).state == "cannot tell"


def test_where_nothing_meets_both_nothing_is_chosen():
    found = choose(ALL, ("AUC", 0.85))
    assert (found.state, found.chosen) == ("none", None)
    nothing = choose([LOOSE])
    assert (nothing.state, nothing.chosen) == ("none", None)
    assert choose([]).state == "none"


def test_a_model_that_is_not_shown_to_beat_a_constant_answer_is_never_taken():
    lucky = setting(0.2, 0.58, reach=0.1)
    assert choose([lucky]).chosen is None
    assert choose([lucky], ("AUC", 0.4)).chosen is None


def test_an_error_is_better_where_it_is_smaller():
    def of(error):
        judged = Judged("mean absolute error", error, (error - 0.01, error + 0.01), 0.3, False)
        utility = Utility(judged, {}, 3, 0.001, None)
        return Candidate(**vars(LEAST) | {"utility": utility})

    assert choose([of(0.28), of(0.1), of(0.2)]).chosen == of(0.1)
    assert choose([of(0.295)]).chosen is None


def test_the_strictest_is_that_of_the_limited_quantity():
    less_risk, less_advantage = setting(0.19, 0.8, risk=0.01), setting(0.18, 0.8, risk=0.04)
    assert choose([less_advantage, less_risk]).chosen == less_advantage
    assert choose([less_advantage, less_risk], key=RISK).chosen == less_risk


def test_nearly_equal_errors_and_perplexities_are_told_by_the_strictness():
    def of(rho_alpha, name, value, constant):
        judged = Judged(name, value, (0.99 * value, 1.01 * value), constant, False)
        return setting(rho_alpha, None, judged=judged)

    for name, loose, near, worse, constant in (
        ("mean absolute error", 0.100, 0.104, 0.106, 0.3),
        ("perplexity", 40.0, 40.1, 40.3, 500.0),
    ):
        best = of(0.2, name, loose, constant)
        strict = of(0.1, name, near, constant)
        assert choose([best, strict]).chosen == strict
        assert choose([best, of(0.1, name, worse, constant)]).chosen == best


@pytest.mark.parametrize("key", [BELIEF, ADVANTAGE, RISK])
def test_levels_rise_around_the_limit_and_keep_it_to_the_digit(key):
    limit = Limit(key, 0.61)
    levels = limit.levels((0.25, 1.0, 4.0))
    assert levels[1] == 0.61
    assert levels == sorted(set(levels))


@pytest.mark.parametrize(
    ("key", "value", "baseline"),
    [
        (BELIEF, 0.5, 0.001),
        (BELIEF, 1.0, 0.001),
        (ADVANTAGE, 0.0, 0.001),
        (RISK, 0.001, 0.001),
        (RISK, 0.5, 0.0),
    ],
)
def test_a_limit_that_no_noise_or_any_noise_meets_is_refused(key, value, baseline):
    with pytest.raises(InputError, match="give"):
        Limit(key, value, baseline)
