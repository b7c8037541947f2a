"""What (epsilon, delta) alone allows an adversary: as much as the worst mechanism gives it."""

import math

import numpy as np
import pytest

from adversaries.statistics import gaussian
from fedsim.privacy.identifiability import advantage_of_epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.0, 0.1), (1.0, 1e-3), (3.0, 0.05)])
def test_randomised_response_with_failure_reaches_the_limit(epsilon, delta):
    """With delta the secret is told; else the right answer is e^epsilon times as likely."""
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    under_d = np.array([delta, 0.0, (1 - delta) * right, (1 - delta) * (1 - right)])
    under_d_prime = np.array([0.0, delta, (1 - delta) * (1 - right), (1 - delta) * right])
    advantage = np.abs(under_d - under_d_prime).sum() / 2
    assert advantage_of_epsilon(epsilon, delta) == pytest.approx(advantage)


def test_no_gaussian_mechanism_exceeds_it_and_no_guarantee_is_certainty():
    for mu in (0.1, 1.0, 4.0):
        for delta in (1e-6, 1e-2):
            allowed = advantage_of_epsilon(gaussian.epsilon(mu, delta), delta)
            assert gaussian.advantage(mu) <= allowed
    assert advantage_of_epsilon(math.inf, 1e-5) == 1
    assert advantage_of_epsilon(900.0, 0.5) == 1
