"""What is predicted of vantage points whose log-odds have no density."""

import itertools
import math

import numpy as np
import pytest

from fedsim.audits.run import audited_run
from fedsim.privacy.trust import Vantage

ROUNDS, RATE = 3, 0.3


def _expected_sign(world, neighbouring):
    """Return wins less losses for D of a server that sees every record, by enumeration."""
    expected = 0.0
    for rounds in itertools.product((True, False), repeat=ROUNDS):
        chance = math.prod(RATE if taken else 1 - RATE for taken in rounds)
        odds = 0.0
        if neighbouring == "add-remove":
            # Who is not in the data takes part in no round: there is one way for that, not eight.
            odds = math.inf if any(rounds) and world else ROUNDS * math.log(1 - RATE)
        elif any(rounds):
            odds = math.inf if world else -math.inf
        expected += chance * float(np.sign(odds))
    return expected


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_a_server_without_noise_is_predicted_to_win_what_it_wins(neighbouring, small):
    config = small(
        {
            "federation.vantage": "server",
            "training.sampling-rate": RATE,
            "privacy.neighbouring": neighbouring,
            "privacy.rho-beta": 0.0,
            "privacy.noise-multiplier": 1.0,
        }
    )
    seen = {"sensitivities": np.ones((4, ROUNDS)), "noise_stds": np.zeros((4, ROUNDS))}
    found = audited_run.prediction(config, seen, Vantage.SERVER)
    there, back = (_expected_sign(world, neighbouring) for world in (True, False))
    assert found.advantage == pytest.approx((there - back) / 2, abs=1e-12)
