"""The reconstruction game alarms where the noise is smaller than claimed, and nowhere else."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from variants import BASE, noise_of

import fedsim
from fedsim.config import Scalar

TRIALS = 400

GAMES: Mapping[str, Mapping[str, Any]] = {
    "which of 20 records": {"candidates": 20},
    "which label": {"column": "label"},
}

PLAYED: dict[str, Scalar] = {
    **BASE,
    "training.rounds": 8,
    "privacy.rho-beta": 0.99,
    "trials.batch": 200,
}


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("rate", [1.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_noise_of_four_fifths_is_alarmed_and_the_claimed_noise_is_not(
    game: str, rate: float
) -> None:
    keys = PLAYED | {"training.sampling-rate": rate}
    with noise_of(0.8):
        mutant = fedsim.reconstruct(keys, trials=TRIALS, progress=False, **GAMES[game]).report
    assert "The noise is smaller than was accounted for" in mutant["contradictions"]["posterior"]
    honest = fedsim.reconstruct(keys, trials=TRIALS, progress=False, **GAMES[game]).report
    assert honest["contradictions"] == {} and honest["chance_alarms"] == 2
    measured, predicted = honest["measured"]["success"], honest["prediction"]["success"]
    assert measured == pytest.approx(predicted, abs=4 * 0.5 / math.sqrt(TRIALS))
    assert honest["baseline"] < honest["measured"]["interval"][0] < honest["bound"]


def test_without_noise_the_success_itself_is_above_its_bound() -> None:
    with noise_of(0.3):
        report = fedsim.reconstruct(PLAYED, trials=100, progress=False, candidates=20).report
    assert "The success is above its bound" in report["contradictions"]["success"]
    assert report["measured"]["success"] > report["bound"]
