"""How often lower bounds on epsilon are wrong, on games whose epsilon is known.

Every bound is held to its own claim: of 2000 games at confidence 0.95, at most one in twenty may
prove more than the true epsilon. Games: identical worlds; Gaussian mechanisms; Poisson-sampled
ones; steps whose sensitivities depend on the noise before them, where a report lessens the Gaussian
bounds; and randomised response, whose rates lie at the corner of what epsilon allows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from tables import Table

from adversaries.bounds.gaussian_bounds import LARGEST_SHARE, mixed_share
from adversaries.bounds.lower_bounds import (
    LOWER_BOUNDS,
    MechanismKind,
    clopper_pearson_bound,
    lower_bounds,
)
from adversaries.bounds.rate_bounds import NoiseFamily, by_scale
from adversaries.statistics import forecast, gaussian
from adversaries.statistics.intervals import EpsilonBound, clopper_pearson
from adversaries.statistics.trials import Bools, Floats
from fedsim.audits.measurements.bounds_audit import headline
from fedsim.game.mechanisms.noise_family import noise_family
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism

DELTA, CONFIDENCE = 1e-5, 0.95
STEPS, LACKING = 10, 0.04
ESTIMATORS = (*LOWER_BOUNDS, "trade_off", "headline")
NOT_GAUSSIAN = frozenset({"mu_gdp"})
"""Bounds that a report refuses where the mechanism does not compose to a Gaussian one."""


@dataclass(frozen=True)
class Game:
    """Repeats of a campaign: worlds [T], exact log-odds [repeats, T], and what is true of them.

    trial_mu [repeats, T]: as realised, where sensitivities vary.
    """

    title: str
    epsilon: float
    worlds: Bools
    log_odds: Floats
    family: NoiseFamily | None = None
    refused: frozenset[str] = frozenset()
    trial_mu: Floats | None = None


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield in how many repeats each bound was above the true epsilon."""
    repeats = 8 if smoke else 2000
    outcomes = {game.title: wrong(game) for game in games(repeats, smoke)}
    yield Table(
        f"In how many of {repeats} campaigns the bound is above the true ε, at α = "
        f"{1 - CONFIDENCE:.2g}, δ = {DELTA:g}",
        ("bound", *outcomes),
        [
            (name, *(_share(counts.get(name), repeats) for counts in outcomes.values()))
            for name in ESTIMATORS
        ],
        "In brackets the 95 % Clopper–Pearson interval of the share; – where a report refuses the "
        "bound for this kind of mechanism. n: trials of each world. Adaptive steps: a mixed share "
        f"of about {LACKING:g}, for which the Gaussian bounds are reduced.",
    )


def games(repeats: int, smoke: bool = False) -> Iterator[Game]:
    """Yield the games, each from a seed of its own."""
    seeds = iter(range(7000, 7100))
    few, many = (20, 30) if smoke else (50, 500)
    for n in (few, many):
        yield gaussian_game(f"identical worlds, n = {n}", 0.0, repeats, n, next(seeds))
    for epsilon, n in ((1.0, many), (4.0, few), (8.0, many)):
        yield gaussian_game(f"Gaussian ε = {epsilon:g}, n = {n}", epsilon, repeats, n, next(seeds))
    for mechanism in (Mechanism.alike(1.0, 50, 0.1), Mechanism.alike(0.7, 200, 0.01)):
        yield sampled_game(mechanism, repeats, many, next(seeds))
    yield randomised_response(1.0, repeats, many, next(seeds))
    for epsilon, n in ((1.0, many), (4.0, few), (4.0, many)):
        yield adaptive_game(epsilon, repeats, n, next(seeds))


def gaussian_game(title: str, epsilon: float, repeats: int, n: int, seed: int) -> Game:
    """Return log-odds of a Gaussian mechanism; of epsilon 0 its signal is a millionth of the noise.

    delta then is 4e-7, so that epsilon at `DELTA` is 0, and log-odds remain exact.
    """
    mu = gaussian.mu_of_epsilon(epsilon, DELTA) if epsilon else 1e-6
    worlds = np.arange(2 * n) < n
    noise = np.random.default_rng(seed).standard_normal((repeats, 2 * n))
    return Game(title, epsilon, worlds, np.where(worlds, 0.5, -0.5) * mu**2 + mu * noise)


def adaptive_game(epsilon: float, repeats: int, n: int, seed: int) -> Game:
    """Return log-odds of steps that show less of the record the surer the adversary is of it.

    epsilon is that of trials which show most throughout; what the others lack comes to a mixed
    share of about `LACKING`.
    """
    largest, worlds = gaussian.mu_of_epsilon(epsilon, DELTA), np.arange(2 * n) < n
    draw = np.random.default_rng(seed)
    log_odds, squares = np.zeros((2, repeats, 2 * n))
    for _ in range(STEPS):
        lacking = 2 * LACKING**2 * ndtr(2 * log_odds / largest)
        step = largest**2 / STEPS * (1 - lacking)
        noise = draw.standard_normal(log_odds.shape)
        log_odds += np.where(worlds, 0.5, -0.5) * step + np.sqrt(step) * noise
        squares += step
    title = f"adaptive steps, ε = {epsilon:g}, n = {n}"
    return Game(title, epsilon, worlds, log_odds, trial_mu=np.sqrt(squares))


def sampled_game(mechanism: Mechanism, repeats: int, n: int, seed: int) -> Game:
    """Return log-odds of a Poisson-sampled mechanism whose steps are alike."""
    (steps,) = mechanism.groups
    one = np.ones((1, steps.count))
    played = forecast.simulate(
        one,
        0 * one,
        one,
        steps.noise_multiplier * one,
        steps.sampling_rate,
        np.random.default_rng(seed),
        games=repeats * n,
    )
    both = (played.world_d.reshape(repeats, n), played.world_d_prime.reshape(repeats, n))
    epsilon = PLD.epsilon(mechanism, DELTA)
    return Game(
        f"q = {steps.sampling_rate:g}, {steps.count} steps, ε = {epsilon:.3g}, n = {n}",
        epsilon,
        np.arange(2 * n) < n,
        np.concatenate(both, axis=1),
        noise_family(mechanism),
        NOT_GAUSSIAN,
    )


def randomised_response(epsilon: float, repeats: int, n: int, seed: int) -> Game:
    """Return log-odds of the mechanism that tells the world truthfully as often as epsilon allows.

    At delta it is told outright with that probability, which makes it (epsilon, delta)-private.
    """
    worlds = np.arange(2 * n) < n
    draw = np.random.default_rng(seed)
    truthful = draw.random((repeats, 2 * n)) < 1 / (1 + math.exp(-epsilon))
    told = draw.random((repeats, 2 * n)) < DELTA
    log_odds = np.where(truthful == worlds, epsilon, -epsilon)
    certain = np.where(worlds, 30.0, -30.0)
    title = f"randomised response ε = {epsilon:g}, n = {n}"
    return Game(title, epsilon, worlds, np.where(told, certain, log_odds), refused=NOT_GAUSSIAN)


def bounds_of(
    game: Game, log_odds: Floats, trial_mu: Floats | None = None
) -> dict[str, EpsilonBound]:
    """Return what one campaign [T] proves, as a report would have it.

    The normality of log-odds is left to its check, though a report refuses sampled ones beforehand.
    """
    names = [name for name in LOWER_BOUNDS if name not in game.refused]
    found = lower_bounds(
        game.worlds,
        log_odds,
        DELTA,
        CONFIDENCE,
        MechanismKind.GAUSSIAN,  # the names leave out what does not hold of the game
        trial_mu=trial_mu,
        names=names,
    )
    if trial_mu is not None:
        share = mixed_share(trial_mu, float(trial_mu.max()))
        if share > LARGEST_SHARE:
            raise ValueError(f"sensitivities vary too much for the study: {share:.3f}")
    if game.family:
        counted = clopper_pearson_bound(game.worlds, log_odds, DELTA, CONFIDENCE)
        found["trade_off"] = by_scale(counted, game.family)
        leading = headline({**found, "gaussian": found["trade_off"]})
        found["headline"] = found["trade_off" if leading == "gaussian" else leading]
    else:
        found["headline"] = found[headline(found)]
    return found


def wrong(game: Game) -> dict[str, int]:
    """Return how often each bound is above the truth."""
    counts: dict[str, int] = {}
    for repeat, row in enumerate(game.log_odds):
        varying = None if game.trial_mu is None else game.trial_mu[repeat]
        for name, bound in bounds_of(game, row, varying).items():
            counts[name] = counts.get(name, 0) + (bound.epsilon > game.epsilon)
    return counts


def _share(count: int | None, repeats: int) -> str | None:
    if count is None:
        return None
    limits = clopper_pearson(count, repeats, 0.95)
    return f"{count} of {repeats} ({100 * limits.low:.1f}–{100 * limits.high:.1f} %)"
