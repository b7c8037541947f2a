"""k records together face the noise of one, k times nearer."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq

from adversaries.attacks.poisoning import group_delta
from adversaries.errors import InputError
from fedsim.privacy.accounting import PLD
from fedsim.privacy.releases import Releases, Rounds, of_group
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage

DELTA = 1e-3


def _described(trust: Trust) -> Releases:
    return Releases((Rounds(6.0, 9), Rounds(4.0, 2)), trust=trust, clients=4)


@pytest.mark.parametrize("trust", list(Trust))
def test_mu_grows_with_the_number_of_records(trust: Trust) -> None:
    one = _described(trust).towards(Vantage.PARTICIPANT)
    three = of_group(_described(trust), 3).towards(Vantage.PARTICIPANT)
    assert three.mu == pytest.approx(3 * one.mu)


def test_epsilon_is_that_of_a_sum_which_moves_k_times_as_far() -> None:
    found = PLD.epsilon(of_group(_described(Trust.CENTRAL), 3).towards(Vantage.PARTICIPANT), DELTA)
    independent = privacy_loss_distribution.from_gaussian_mechanism(6.0, sensitivity=3.0)
    other = privacy_loss_distribution.from_gaussian_mechanism(4.0, sensitivity=3.0)
    composed = independent.self_compose(9).compose(other.self_compose(2))
    assert found == pytest.approx(composed.get_epsilon_for_delta(DELTA), rel=1e-3)


def test_it_is_tighter_than_the_conversion_of_one_epsilon() -> None:
    described = _described(Trust.CENTRAL)
    mechanism, k = described.towards(Vantage.PARTICIPANT), 4

    def excess(epsilon: float) -> float:
        return math.log(group_delta(epsilon, PLD.delta(mechanism, epsilon), k) / DELTA)

    converted = k * brentq(excess, 0.1, 10.0)
    group = PLD.epsilon(of_group(described, k).towards(Vantage.PARTICIPANT), DELTA)
    assert group < 0.95 * converted


def test_one_record_is_a_group_even_where_records_are_sampled() -> None:
    sampled = Releases((Rounds(1.0, 5, 0.1),))
    assert of_group(sampled, 1) == sampled
    with pytest.raises(InputError, match="each record is sampled by itself"):
        of_group(sampled, 2)
    with pytest.raises(InputError, match="give at least 1"):
        of_group(sampled, 0)
