"""Theoretical predictions for the trials of a run, and tests of how well the trials follow them."""

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import ndtr, ndtri

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics.trials import check_trials

STEPS_PLAYED, FEWEST_PLAYED, MOST_PLAYED = 20_000_000, 9, 199
"""Sampled steps that are simulated beside a transcript's, in all, and for each step at least and at
most."""

ROUNDED = 1e-9
"""Log-likelihood ratios that differ by no more than this are equal up to rounding."""


@dataclass(frozen=True)
class Prediction:
    """The theoretical prediction for a run.

    Attributes:
        trial_mu: float64 [T], mu of every trial.
        mu: root mean square of trial_mu.
        advantage: mean over the trials, in [0, 1].
        deterministic: whether all trials have the same mu, so that the prediction is exact.
    """

    trial_mu: Floats
    mu: float
    advantage: float
    deterministic: bool


@dataclass(frozen=True)
class Simulation:
    """Simulated games with the norms of a run.

    Attributes:
        world_d: float64 [N], final log-odds from even odds of games on D.
        world_d_prime: float64 [N], of the same games on D'.
        advantage: the advantage in these games.
        standard_error: Monte Carlo error of the advantage.
        deterministic: whether all trials have the same ratios, and so one distribution.
    """

    world_d: Floats
    world_d_prime: Floats
    advantage: float
    standard_error: float
    deterministic: bool


class GoodnessOfFit(TypedDict):
    """The distance of a sample from theory.

    Attributes:
        statistic: the Kolmogorov-Smirnov distance.
        p_value: probability of a distance at least this large if the sample follows theory.
        trials: number of trials in the sample.
    """

    statistic: float
    p_value: float
    trials: int


def trial_mu(sensitivities: Floats, noise_std: Floats) -> Floats:
    """Return mu = sqrt(sum_i (LS_i/sigma_i)^2) of every trial, [T].

    Args:
        sensitivities: float64 [T, k], the realised local sensitivities LS_i.
        noise_std: float64 [T, k], the sigma_i that hides each.

    Raises InputError unless both arrays are [T, k] and nowhere negative or NaN.
    """
    return np.sqrt(np.square(_ratios(sensitivities, noise_std)).sum(axis=1))


def predict(sensitivities: Floats, noise_std: Floats) -> Prediction:
    """Return the prediction from the realised LS_i/sigma_i: mu, and the mean advantage.

    The advantage of a trial is 2 Phi(mu_t/2) - 1. The prediction is exact where LS_i/sigma_i is
    deterministic, as under noise scaled to LS.

    Args:
        sensitivities: float64 [T, k], the realised local sensitivities LS_i.
        noise_std: float64 [T, k], the sigma_i that hides each.

    Raises InputError unless both arrays are [T, k] and nowhere negative or NaN.
    """
    mu = trial_mu(sensitivities, noise_std)
    return Prediction(
        trial_mu=mu,
        mu=math.sqrt(np.square(mu).mean()),
        advantage=float((ndtr(mu / 2) - ndtr(-mu / 2)).mean()),
        deterministic=bool(np.allclose(mu, mu[0], rtol=1e-6, atol=0)),
    )


def simulate(
    present_norms: Floats,
    absent_norms: Floats,
    sensitivities: Floats,
    noise_std: Floats,
    sampling_rate: float,
    generator: np.random.Generator,
    *,
    games: int = 200_000,
) -> Simulation:
    """Simulate the trials of a run without gradients, and return what sampled steps predict.

    A step whose record joins with probability q releases B (b g + (1-b) g') + noise, besides known
    terms, and lambda = log(1 - q + q e^s) - log(1 - q + q e^s'), where s = (<r, g> - |g|^2/2) /
    sigma^2, and s' the same with g'. The noise enters by two standard normals, its components along
    g and g'. The advantage is exact up to the standard error where the norms over sigma are
    deterministic.

    Args:
        present_norms: float64 [T, k], |g| of the record.
        absent_norms: float64 [T, k], |g'| of its replacement, 0 where it is only removed.
        sensitivities: float64 [T, k], |g - g'|.
        noise_std: float64 [T, k], sigma.
        sampling_rate: q, in (0, 1].
        generator: of the coins and the noise.
        games: least number of games; every trial is played equally often, at least once.

    Raises InputError for bad arrays or rate, or for a gradient without noise.
    """
    present, absent, apart = _sampled(
        present_norms, absent_norms, sensitivities, noise_std, sampling_rate
    )
    trials, steps = present.shape
    # Whole repetitions of all trials, rounded up.
    shape = (-(-games // trials), trials)
    log_odds = {True: np.zeros(shape), False: np.zeros(shape)}
    # Every step of every trial once, with the same coins and noise in both worlds.
    for step in range(steps):
        game = _Step.of(present[:, step], absent[:, step], apart[:, step], sampling_rate)
        played = game.play(shape, generator)
        for world in log_odds:
            log_odds[world] += game.losses(played, world)
    # +1 for D, -1 for D', 0 for a tie; a decision that is right in both worlds wins 1.
    decided = {world: np.sign(odds) for world, odds in log_odds.items()}
    wins = (decided[True] - decided[False]).ravel() / 2
    return Simulation(
        world_d=log_odds[True].ravel(),
        world_d_prime=log_odds[False].ravel(),
        advantage=float(wins.mean()),
        standard_error=float(wins.std() / math.sqrt(wins.size)),
        deterministic=all(
            np.allclose(ratios, ratios[0], rtol=1e-6, atol=0) for ratios in (present, absent, apart)
        ),
    )


def scores(
    worlds: Bools,
    log_odds: Floats,
    sensitivities: Floats,
    noise_std: Floats,
    generator: np.random.Generator,
) -> Floats:
    """Return one score for every trial, [T], N(0, 1) if theory is right.

    Given all earlier steps, step i adds lambda_i ~ N(+-s^2/2, s^2) with s = LS_i/sigma_i. The score
    is the sum of the standardised lambda_i over sqrt(k). A step without information (s = 0) gets a
    random normal: leaving it out would make the number of steps depend on the steps' values.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T, k], Lambda for D after every step.
        sensitivities: float64 [T, k], the realised local sensitivities LS_i.
        noise_std: float64 [T, k], the sigma_i that hides each.
        generator: of the normals for steps without information.

    Returns: float64 [T]; NaN for trials without information, or with a difference without noise.
    Raises InputError for bad arrays.
    """
    worlds, losses = _losses(worlds, log_odds)
    ratios = _ratios(sensitivities, noise_std)
    _check_shape(losses, ratios)
    standard, signs = generator.standard_normal(ratios.shape), np.where(worlds, 0.5, -0.5)[:, None]
    with np.errstate(invalid="ignore"):  # a difference without noise is inf/inf: NaN
        # Subtract the mean +-s^2/2 and divide by the deviation s. Steps with s = 0 keep their
        # random normal.
        np.divide(losses - signs * ratios**2, ratios, out=standard, where=ratios > 0)
    return _joined(standard, ratios)


def sampled_scores(
    worlds: Bools,
    log_odds: Floats,
    present_norms: Floats,
    absent_norms: Floats,
    sensitivities: Floats,
    noise_std: Floats,
    sampling_rate: float,
    generator: np.random.Generator,
) -> Floats:
    """Return the scores [T] of `scores` for steps that a record joins with a probability.

    Every step of every trial is simulated several times. The rank of the real step among these and
    itself is uniform, with ties broken at random; its normal score is summed.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T, k], Lambda for D after every step.
        present_norms: float64 [T, k], |g| of the record.
        absent_norms: float64 [T, k], |g'| of its replacement, 0 where it is only removed.
        sensitivities: float64 [T, k], |g - g'|.
        noise_std: float64 [T, k], sigma.
        sampling_rate: in (0, 1].
        generator: of the simulated steps, and of the ties.

    Raises InputError for a bad rate or bad arrays, or for a gradient without noise.
    """
    worlds, losses = _losses(worlds, log_odds)
    present, absent, apart = _sampled(
        present_norms, absent_norms, sensitivities, noise_std, sampling_rate
    )
    _check_shape(losses, present)
    # More simulated steps give finer ranks; the limits keep the time within bounds.
    played = min(MOST_PLAYED, max(FEWEST_PLAYED, STEPS_PLAYED // losses.size))
    standard = np.empty(losses.shape)
    for step in range(losses.shape[1]):
        game = _Step.of(present[:, step], absent[:, step], apart[:, step], sampling_rate)
        others = game.play((played, len(worlds)), generator)
        gap = losses[:, step] - game.losses(others, worlds)
        # Log-odds are rounded sums, and many steps without the record are equal.
        ties = (np.abs(gap) <= ROUNDED).sum(axis=0)
        rank = (gap > ROUNDED).sum(axis=0) + generator.random(len(worlds)) * (ties + 1)
        standard[:, step] = ndtri(rank / (played + 1))
    return _joined(standard, np.maximum(present, absent))


def fit(worlds: Bools, standard: Floats) -> dict[str, GoodnessOfFit | None]:
    """Return, for "world_d" and "world_d_prime", how well scores follow N(0, 1).

    Args:
        worlds: bool [T], True where the model was trained on D.
        standard: float64 [T] from `scores`; NaN are left out.

    Returns: the goodness of fit by world; None for a world with NaN only.
    """
    informative = ~np.isnan(standard)
    fits: dict[str, GoodnessOfFit | None] = {}
    for name, world in (("world_d", worlds), ("world_d_prime", ~worlds)):
        sample = standard[informative & world]
        fits[name] = None
        if sample.size:
            test = scipy.stats.kstest(sample, "norm")
            fits[name] = GoodnessOfFit(
                statistic=float(test.statistic), p_value=float(test.pvalue), trials=sample.size
            )
    return fits


def _losses(worlds: Bools, log_odds: Floats) -> tuple[Bools, Floats]:
    """Return the worlds, and the log-odds that every step adds, [T, k]."""
    if np.ndim(log_odds) != 2 or not np.size(log_odds):
        raise InputError(f"log-odds are {np.shape(log_odds)}; give them as [trials, steps]")
    worlds, _ = check_trials(worlds, log_odds[:, -1])
    with np.errstate(invalid="ignore"):  # inf - inf
        return worlds, np.diff(log_odds, axis=1, prepend=0.0)


def _check_shape(losses: Floats, ratios: Floats) -> None:
    if losses.shape != ratios.shape:
        raise InputError(f"log-odds are {losses.shape}, norms {ratios.shape}; give both as [T, k]")


def _joined(standard: Floats, ratios: Floats) -> Floats:
    informative = (ratios > 0).any(axis=1)
    return np.where(informative, standard.sum(axis=1) / math.sqrt(standard.shape[1]), np.nan)


@dataclass(frozen=True)
class _Step:
    """One sampled step of every trial: |g|, |g'| and <g, g'> over sigma or its square, [T]."""

    g: Floats
    h: Floats
    inner: Floats
    sampling_rate: float

    @classmethod
    def of(cls, g: Floats, h: Floats, apart: Floats, sampling_rate: float) -> "_Step":
        return cls(g, h, (g**2 + h**2 - apart**2) / 2, sampling_rate)

    def play(
        self, shape: tuple[int, int], generator: np.random.Generator
    ) -> tuple[Bools | float, Floats, Floats]:
        """Return whether the record joins, and the noise along g and g', of this shape [n, T]."""
        joined: Bools | float = (
            generator.random(shape) < self.sampling_rate if self.sampling_rate < 1 else 1.0
        )
        return joined, *_correlated_noise(self.g, self.h, self.inner, shape, generator)

    def losses(self, played: tuple[Bools | float, Floats, Floats], worlds: Bools | bool) -> Floats:
        """Return lambda [n, T] of the played events, where D was used in `worlds`."""
        joined, along_g, along_h = played
        mean = np.where(worlds, self.g**2, self.inner)
        losses = _mixed(joined * mean - self.g**2 / 2 + along_g, self.sampling_rate)
        if self.h.any():
            mean = np.where(worlds, self.inner, self.h**2)
            losses = losses - _mixed(joined * mean - self.h**2 / 2 + along_h, self.sampling_rate)
        return losses


def _sampled(
    present_norms: Floats,
    absent_norms: Floats,
    sensitivities: Floats,
    noise_std: Floats,
    sampling_rate: float,
) -> tuple[Floats, Floats, Floats]:
    """Return the three norms over the noise, [T, k]. Raises InputError as `simulate` does."""
    if not 0 < sampling_rate <= 1:
        raise InputError(f"the sampling rate is {sampling_rate}; give a number above 0, at most 1")
    present, absent, apart = (
        _ratios(norms, noise_std) for norms in (present_norms, absent_norms, sensitivities)
    )
    if not all(np.isfinite(ratios).all() for ratios in (present, absent, apart)):
        raise InputError("a gradient has no noise, so its step is certain; add noise")
    return present, absent, apart


def _mixed(ratio: Floats, sampling_rate: float) -> Floats:
    """Return log(1 - q + q e^s) of a record that joins with probability q."""
    if sampling_rate == 1:
        return ratio
    return np.logaddexp(math.log1p(-sampling_rate), math.log(sampling_rate) + ratio)


def _correlated_noise(
    g: Floats, h: Floats, inner: Floats, shape: tuple[int, int], generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return <noise, g> and <noise, g'> over sigma^2: normals of deviation |g|, |g'| over sigma."""
    first = generator.standard_normal(shape)
    if not h.any():
        return g * first, np.zeros(g.shape)
    # The part of g' along g has the noise of g; the rest of g' has a noise of its own.
    shared = np.divide(inner, g, out=np.zeros_like(g), where=g > 0)
    alone = np.sqrt(np.maximum(h**2 - shared**2, 0.0))
    return g * first, shared * first + alone * generator.standard_normal(shape)


def _ratios(norms: npt.ArrayLike, noise_std: npt.ArrayLike) -> Floats:
    """Return norms over their noise, [T, k]: 0 for 0/0, inf for a positive norm over 0."""
    norms, noise_std = np.asarray(norms, float), np.asarray(noise_std, float)
    if norms.ndim != 2 or not norms.size or noise_std.shape != norms.shape:
        raise InputError(
            f"sensitivities are {norms.shape} and noise_std {noise_std.shape}; "
            "give both as [trials, steps]"
        )
    if not (np.all(norms >= 0) and np.all(noise_std >= 0)):
        raise InputError(
            "a sensitivity or noise_std is negative or not a number; give numbers of at least 0"
        )
    unhidden = np.where(norms > 0, np.inf, 0.0)
    return np.divide(norms, noise_std, out=unhidden, where=noise_std > 0)
