"""Where who joins a round is public, clients are protected unequally, and rounds may be empty."""

import pytest

import fedsim
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability
from fedsim.privacy.trust import Vantage

SIX_CLIENTS = {
    "federation.clients": 6,
    "federation.sampling-rate": 0.5,
    "federation.trust": "distributed",
    "training.rounds": 8,
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 3.0,
    "challenge.client": 1,
    "trials.count": 20,
}


@pytest.fixture
def found(small, tmp_path):
    config = small(SIX_CLIENTS | {"run.seed": 0})
    return config, fedsim.run(config, out=tmp_path / "run")


def test_nobody_is_accused_of_rounds_that_nobody_joins_and_limits_are_of_the_worst_off_client(
    found,
):
    config, run = found
    rounds = [config.participation.participants(round) for round in range(1, 9)]
    assert () in rounds
    report = run.details
    assert report.alarms == 0

    worst = {
        vantage: identifiability.rho_alpha(privacy.describe(config, 3.0, vantage).towards(vantage))
        for vantage in Vantage
    }
    allowed = {each.observer: each.limit.largest.rho_alpha for each in report.rows.values()}
    assert allowed == pytest.approx({each.value: limit for each, limit in worst.items()})
