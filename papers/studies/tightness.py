"""How much of the true epsilon lower bounds reach, at 1000 games of each world."""

from collections.abc import Iterator
from pathlib import Path

import coverage
import numpy as np
from scipy.optimize import brentq
from tables import Table

from adversaries.bounds.lower_bounds import clopper_pearson_bound
from adversaries.statistics.intervals import binomial_high, binomial_low
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism

EPSILONS = (1.0, 2.0, 4.0, 8.0)
RATE, STEPS = 0.1, 50
BEST = "clopper_pearson, best threshold"


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield the median bound of every estimator, on Gaussian and on sampled games."""
    repeats, n = (4, 50) if smoke else (200, 1000)
    note = (
        f"Median of {repeats} campaigns (5 % and 95 % quantiles); n = {n} trials of each world, α "
        f"= {1 - coverage.CONFIDENCE:.2g}, δ = {coverage.DELTA:g}. {BEST}: at the threshold fixed "
        "in advance that the true mechanism makes the best one."
    )
    yield Table(
        "Bound reached on a Gaussian mechanism, by its true ε",
        ("bound", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)),
        _rows(
            [
                coverage.gaussian_game("", epsilon, repeats, n, 7200 + place)
                for place, epsilon in enumerate(EPSILONS)
            ]
        ),
        note,
    )
    yield Table(
        f"Bound reached on {STEPS} steps sampled at q = {RATE:g}, by their true ε",
        ("bound", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)),
        _rows(
            [
                coverage.sampled_game(sampled(epsilon), repeats, n, 7300 + place)
                for place, epsilon in enumerate(EPSILONS)
            ]
        ),
        f"{note} A report refuses the Gaussian bounds under sampling; here the check of normality "
        "alone decides, and a refused bound counts as 0.",
    )


def sampled(epsilon: float) -> Mechanism:
    """Return the sampled mechanism of an epsilon at `coverage.DELTA`."""

    def excess(multiplier: float) -> float:
        found = PLD.epsilon(Mechanism.alike(multiplier, STEPS, RATE), coverage.DELTA)
        return found - epsilon

    return Mechanism.alike(brentq(excess, 0.5, 10.0, xtol=1e-6), STEPS, RATE)


def _rows(games: list[coverage.Game]) -> list[tuple[str | None, ...]]:
    reached = [_reached(game) for game in games]
    names = [name for name in (BEST, *coverage.ESTIMATORS) if any(name in each for each in reached)]
    return [(name, *(each.get(name) for each in reached)) for name in names]


def _reached(game: coverage.Game) -> dict[str, str]:
    best = _best_threshold(game)
    found: dict[str, list[float]] = {}
    for row in game.log_odds:
        bounds = {name: bound.epsilon for name, bound in coverage.bounds_of(game, row).items()}
        at_best = clopper_pearson_bound(game.worlds, row, coverage.DELTA, coverage.CONFIDENCE, best)
        for name, epsilon in {BEST: at_best.epsilon, **bounds}.items():
            found.setdefault(name, []).append(epsilon)
    return {name: _spread(values) for name, values in found.items()}


def _spread(values: list[float]) -> str:
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    return f"{median:.2f} ({low:.2f}–{high:.2f})"


def _best_threshold(game: coverage.Game) -> float:
    """Return the threshold whose bound at the expected counts of all repeats is the largest."""
    with_d, without = game.log_odds[:, game.worlds], game.log_odds[:, ~game.worlds]
    n, tail = with_d.shape[1], (1 - coverage.CONFIDENCE) / 2
    thresholds = np.quantile(game.log_odds, np.linspace(0.002, 0.998, 499))
    true, false = (
        1 - np.searchsorted(np.sort(each.ravel()), thresholds, side="right") / each.size
        for each in (with_d, without)
    )
    low, high = binomial_low(n * true, n, tail), binomial_high(n * false, n, tail)
    with np.errstate(invalid="ignore", divide="ignore"):
        accusing = np.log((low - coverage.DELTA) / high)
        clearing = np.log((1 - high - coverage.DELTA) / (1 - low))
    return float(thresholds[np.nanargmax(np.fmax(accusing, clearing))])
