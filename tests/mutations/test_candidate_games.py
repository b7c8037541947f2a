"""The reconstruction game alarms where the noise is smaller than claimed, and nowhere else."""

import gzip
import math
from pathlib import Path
from unittest.mock import patch

import pytest
from variants import BASE

import fedsim
from fedsim.game.client import noise
from fedsim.studies import rounds

TRIALS = 400

GAMES = {
    "which of 20 records": {"candidates": 20},
    "which label": {"column": "label"},
}

PLAYED = {
    **BASE,
    **{"training.rounds": 8, "privacy.rho-beta": 0.99, "trials.batch": 200},
}


def noise_of(share):
    """Add noise of a share of the standard deviation that is accounted for."""
    return patch.object(rounds, "noise", lambda *drawn: noise(*drawn) * share)


@pytest.mark.parametrize(
    "game",
    [pytest.param(game, marks=pytest.mark.slow if game == "which label" else ()) for game in GAMES],
)
@pytest.mark.parametrize("rate", [1.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_noise_of_four_fifths_is_alarmed_and_the_claimed_noise_is_not(game, rate):
    keys = PLAYED | {"training.sampling-rate": rate}
    with noise_of(0.8):
        mutant = fedsim.attack(keys, {"trials.count": TRIALS}, progress=False, **GAMES[game]).report
    assert "The noise is smaller than was accounted for" in mutant["contradictions"]["posterior"]
    honest = fedsim.attack(keys, {"trials.count": TRIALS}, progress=False, **GAMES[game]).report
    assert honest["contradictions"] == {} and honest["chance_alarms"] == 2
    measured, slack = honest["measured"], 4 * 0.5 / math.sqrt(TRIALS)
    assert measured["success"] == pytest.approx(measured["believed"], abs=slack)
    assert honest["baseline"] < measured["interval"][0] < honest["bound"]


def test_without_noise_the_success_itself_is_above_its_bound():
    with noise_of(0.3):
        report = fedsim.attack(PLAYED, "trials.count=100", progress=False, candidates=20).report
    assert "The success is above its bound" in report["contradictions"]["success"]
    assert report["measured"]["success"] > report["bound"]


CONFIG = Path(__file__).parents[2] / "configs" / "adult.toml"
ADULT = Path(__file__).resolve().parents[3] / "shared" / "data" / "adult"


@pytest.mark.slow
@pytest.mark.skipif(not ADULT.is_dir(), reason="needs ../shared/data/adult")
def test_on_adult_the_guessed_label_shows_noise_of_four_fifths(tmp_path):
    for name in ("adult.data", "adult.test"):
        (tmp_path / name).write_bytes(gzip.decompress((ADULT / f"{name}.gz").read_bytes()))
    sizes = {"data.records": 300, "data.held-out": 100, "training.rounds": 10}
    privacy = {"privacy.sensitivity": "global", "privacy.rho-beta": 0.99}
    privacy |= {"privacy.neighbouring": "add-remove"}
    keys = {"data.root": str(tmp_path), "run.device": "cpu", **sizes, **privacy}

    def played(share):
        with noise_of(share):
            return fedsim.attack(
                CONFIG, keys, "trials.count=1000", column="label", progress=False
            ).report

    honest, mutant = played(1.0), played(0.8)
    assert honest["contradictions"] == {}
    low, high = honest["measured"]["interval"]
    assert 0.5 < low < honest["measured"]["believed"] + 0.05 and high < honest["bound"]
    assert "smaller than was accounted for" in mutant["contradictions"]["posterior"]
