"""Audits of auditors: valid ones, careless ones, and the truth of the games."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import fedsim
from adversaries.errors import InputError
from adversaries.statistics.intervals import binomial_high, binomial_low
from fedsim.cli.main import main
from fedsim.studies.auditors.auditor_check import GAMES, KnownGame, Validity, check_auditor

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

THRESHOLDS = 99


def at_best_threshold(scores: Floats, members: Bools, delta: float, confidence: float) -> float:
    """Take the best of several thresholds, with each rate at the whole confidence."""
    above = scores[:, None] > np.quantile(scores, np.linspace(0.01, 0.99, THRESHOLDS))
    inside, tail = int(members.sum()), 1 - confidence
    true = binomial_low(above[members].sum(0), inside, tail)
    false = binomial_high(above[~members].sum(0), len(members) - inside, tail)
    return float(np.log(np.maximum(1, (true - delta) / false)).max())


def with_bonferroni(scores: Floats, members: Bools, delta: float, confidence: float) -> float:
    """Take the best of several thresholds, with each rate at its share of the error."""
    return at_best_threshold(scores, members, delta, 1 - (1 - confidence) / (2 * THRESHOLDS))


def test_a_threshold_chosen_by_the_data_is_invalid_and_its_bonferroni_twin_is_valid() -> None:
    careless = check_auditor(at_best_threshold, games=400)
    assert careless.verdict is Validity.INVALID
    assert any(each.interval.low > 0.05 for each in careless.results)
    careful = check_auditor(with_bonferroni, games=400)
    assert careful.verdict is Validity.VALID
    assert str(careful).startswith("Valid")


def test_too_few_games_of_an_auditor_at_its_level_cannot_tell() -> None:
    """It is wrong in exactly a tenth of all games, as it may be."""
    generator = np.random.default_rng(1)

    def at_its_level(scores: Floats, members: Bools, delta: float, confidence: float) -> float:
        return 99.0 if generator.random() < 1 - confidence else 0.0

    assert check_auditor(at_its_level, games=300, confidence=0.9).verdict is Validity.CANNOT_TELL


@pytest.mark.parametrize("game", GAMES[3:], ids=lambda game: game.name)
def test_scores_with_a_signal_are_log_likelihood_ratios_of_the_stated_epsilon(
    game: KnownGame,
) -> None:
    """E[e^-score] under membership is 1, and delta(epsilon) is reached: E[(1 - e^(eps - s))+]."""
    generator, delta = np.random.default_rng(0), 0.05
    inside = game.scores(generator, np.ones(1_000_000, bool))
    outside = game.scores(generator, np.zeros(1_000_000, bool))
    assert np.exp(outside).mean() == pytest.approx(1, abs=0.02)
    epsilon = game.epsilon(delta)
    reached = [
        np.maximum(0, -np.expm1(epsilon - inside)).mean(),
        np.maximum(0, -np.expm1(epsilon + outside)).mean(),
    ]
    assert max(reached) == pytest.approx(delta, abs=2e-3)


def test_what_no_auditor_may_return_is_refused() -> None:
    with pytest.raises(InputError, match="returned NaN"):
        check_auditor(lambda *_: float("nan"), games=100)
    with pytest.raises(InputError, match=r"failed in the game .*ZeroDivisionError"):
        check_auditor(lambda *_: 1 / 0, games=100)
    with pytest.raises(InputError, match="at least 100 games"):
        fedsim.check_auditor(lambda *_: 0.0, games=10)


def test_the_command_prints_the_verdict_and_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "def bound(scores, members, delta, confidence):\n    return 9\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="4"):
        main(["check-auditor", "mine.py:bound", "--games", "100", "--trials", "20", "--json"])
    assert json.loads(capsys.readouterr().out)["verdict"] == "invalid"
