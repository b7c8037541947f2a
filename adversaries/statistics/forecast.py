"""What theory predicts for the trials of a run, and how well they follow it."""

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import logit, ndtr, ndtri

from adversaries.errors import InputError
from adversaries.statistics.trials import Bools, Floats, check_trials

STEPS_PLAYED, FEWEST_PLAYED, MOST_PLAYED = 20_000_000, 9, 199
"""How many sampled steps are played beside those of a transcript, and beside each of them."""

ROUNDED = 1e-9
"""Log-likelihood ratios that lie no further apart are the same, but for rounding."""


@dataclass(frozen=True)
class Prediction:
    """What theory predicts for a run.

    Attributes:
        trial_mu: float64 [T], mu of every trial.
        mu: their root mean square.
        advantage: the mean over the trials, in [0, 1].
        deterministic: whether all trials have the same mu, so that the prediction is exact.
    """

    trial_mu: Floats
    mu: float
    advantage: float
    deterministic: bool


@dataclass(frozen=True)
class Simulation:
    """Games of a run played again on paper.

    Attributes:
        world_d: float64 [N], final log-odds from even odds of games on D.
        world_d_prime: float64 [N], of the same games on D'.
        advantage: what they predict.
        standard_error: Monte Carlo's, of the advantage.
        deterministic: whether the ratios of all trials are alike, so that every trial draws from
            one distribution and no less.
    """

    world_d: Floats
    world_d_prime: Floats
    advantage: float
    standard_error: float
    deterministic: bool


class GoodnessOfFit(TypedDict):
    """How far a sample is from theory.

    Attributes:
        statistic: the Kolmogorov-Smirnov distance.
        p_value: how often a sample that follows theory lies so far from it.
        trials: how many were compared.
    """

    statistic: float
    p_value: float
    trials: int


def trial_mu(sensitivities: Floats, noise_std: Floats) -> Floats:
    """Return mu = sqrt(sum_i (LS_i/sigma_i)^2) of every trial, [T].

    A step without a difference counts 0 even where it has no noise; a difference without noise
    makes mu infinite.

    Args:
        sensitivities: float64 [T, k], the realised local sensitivities LS_i.
        noise_std: float64 [T, k], the sigma_i that hides each.

    Raises:
        InputError: unless both arrays are [T, k] and nowhere negative or NaN.
    """
    return np.sqrt(np.square(_ratios(sensitivities, noise_std)).sum(axis=1))


def predict(sensitivities: Floats, noise_std: Floats, prior: float = 0.5) -> Prediction:
    """Return what the realised LS_i/sigma_i predict: mu, and the mean advantage over trials.

    At even odds the advantage of a trial is 2 Phi(mu_t/2) - 1; from another prior the adversary
    decides D iff its ratio passes -logit(prior), and TPR - FPR is smaller. Exact where LS_i/sigma_i
    is deterministic, as under noise scaled to LS. Otherwise the sensitivities depend on the noise
    drawn before them and the prediction is approximate; `deterministic` says which.

    Args:
        sensitivities: float64 [T, k], the realised local sensitivities LS_i.
        noise_std: float64 [T, k], the sigma_i that hides each.
        prior: the adversary's probability of D, in (0, 1).

    Raises:
        InputError: as of `trial_mu`.
    """
    mu = trial_mu(sensitivities, noise_std)
    with np.errstate(divide="ignore", invalid="ignore"):
        lead = np.where(mu > 0, logit(prior) / mu, 0.0)
    return Prediction(
        trial_mu=mu,
        mu=math.sqrt(np.square(mu).mean()),
        advantage=float((ndtr(lead + mu / 2) - ndtr(lead - mu / 2)).mean()),
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
    prior: float = 0.5,
    games: int = 200_000,
) -> Simulation:
    """Play the trials of a run again, without gradients: what sampled steps predict.

    A step whose record joins with probability q releases B (b g + (1-b) g') + noise, besides what
    is known, and

        lambda = log(1 - q + q e^s) - log(1 - q + q e^s'),  s = (<r, g> - |g|^2/2) / sigma^2,

    s' with g'. That depends on the noise only through its components along g and g', two standard
    normals whose correlation the three norms determine. The coins and the noise are the same in
    both worlds. The advantage is that of deciding D iff the log-odds from `prior` are above 0, ties
    as in `estimators.advantage`: exact up to the standard error where the norms over sigma are
    deterministic, else approximate as in `predict`.

    Args:
        present_norms: float64 [T, k], |g| of the record.
        absent_norms: float64 [T, k], |g'| of its replacement, 0 where it is only removed.
        sensitivities: float64 [T, k], |g - g'|.
        noise_std: float64 [T, k], sigma.
        sampling_rate: q, in (0, 1].
        generator: of the coins and the noise.
        prior: the adversary's probability of D, in (0, 1).
        games: least number of games in all; every trial is played equally often, at least once.

    Returns:
        Final log-odds of N >= games games in either world, and the advantage that they predict.

    Raises:
        InputError: as of `trial_mu`; a gradient without noise; unless 0 < sampling_rate <= 1.
    """
    present, absent, apart = _sampled(
        present_norms, absent_norms, sensitivities, noise_std, sampling_rate
    )
    trials, steps = present.shape
    shape = (-(-games // trials), trials)
    log_odds = {True: np.zeros(shape), False: np.zeros(shape)}
    # Every step of every trial once, with the same coins and noise in both worlds.
    for step in range(steps):
        game = _Step.of(present[:, step], absent[:, step], apart[:, step], sampling_rate)
        played = game.play(shape, generator)
        for world in log_odds:
            log_odds[world] += game.losses(played, world)
    # +1 for D, -1 for D', 0 for a tie; a decision that is right in both worlds wins 1.
    decided = {world: np.sign(odds + logit(prior)) for world, odds in log_odds.items()}
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
    prior: float = 0.5,
) -> Floats:
    """Return the log-odds of every trial as one number [T], N(0, 1) if theory is right.

    What step i adds, given all before, is lambda_i ~ N(+-s^2/2, s^2) with s = LS_i/sigma_i, however
    s depends on the noise of earlier steps. Each is standardised, and their sum over sqrt(k): exact
    whether sensitivities vary or not. For a step that says nothing (s = 0) a normal is drawn: were
    it left out, how many count could depend on what they said.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T, k], Lambda for D after every step.
        sensitivities: float64 [T, k], the realised local sensitivities LS_i.
        noise_std: float64 [T, k], the sigma_i that hides each.
        generator: of the normals for steps that say nothing.
        prior: the probability of D from which the log-odds start, in (0, 1).

    Returns:
        float64 [T]; NaN for trials that say nothing at all and for those with a difference that no
        noise hides.

    Raises:
        InputError: unless 0 < prior < 1; arrays that are empty, of unequal shapes or not numbers.
    """
    worlds, losses = _losses(worlds, log_odds, prior)
    ratios = _ratios(sensitivities, noise_std)
    _check_shape(losses, ratios)
    standard, signs = generator.standard_normal(ratios.shape), np.where(worlds, 0.5, -0.5)[:, None]
    with np.errstate(invalid="ignore"):  # what no noise hides
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
    prior: float = 0.5,
) -> Floats:
    """Return `scores` [T] of steps that a record joins with a probability.

    Every step of every trial is played again, as by `simulate`, in the world that it was in. The
    rank of the real one among those played and itself is uniform, ties broken at random, however
    few they are; its normal score is what is summed.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T, k], Lambda for D after every step.
        present_norms: float64 [T, k], |g| of the record.
        absent_norms: float64 [T, k], |g'| of its replacement, 0 where it is only removed.
        sensitivities: float64 [T, k], |g - g'|.
        noise_std: float64 [T, k], sigma.
        sampling_rate: in (0, 1].
        generator: of what is played, and of the ties.
        prior: the probability of D from which the log-odds start, in (0, 1).

    Raises:
        InputError: as of `scores` and `simulate`.
    """
    worlds, losses = _losses(worlds, log_odds, prior)
    present, absent, apart = _sampled(
        present_norms, absent_norms, sensitivities, noise_std, sampling_rate
    )
    _check_shape(losses, present)
    played = min(MOST_PLAYED, max(FEWEST_PLAYED, STEPS_PLAYED // losses.size))
    standard = np.empty(losses.shape)
    for step in range(losses.shape[1]):
        game = _Step.of(present[:, step], absent[:, step], apart[:, step], sampling_rate)
        others = game.play((played, len(worlds)), generator)
        gap = losses[:, step] - game.losses(others, worlds)
        # A sum of log-odds is rounded, and many steps without the record are alike.
        ties = (np.abs(gap) <= ROUNDED).sum(axis=0)
        rank = (gap > ROUNDED).sum(axis=0) + generator.random(len(worlds)) * (ties + 1)
        standard[:, step] = ndtri(rank / (played + 1))
    return _joined(standard, np.maximum(present, absent))


def fit(worlds: Bools, standard: Floats) -> dict[str, GoodnessOfFit | None]:
    """Return, for "world_d" and "world_d_prime", how well scores follow N(0, 1).

    Args:
        worlds: bool [T], True where the model was trained on D.
        standard: float64 [T], see `scores`; NaN are left out.

    Returns:
        The goodness of fit by world; None for a world without others than NaN.
    """
    informative = ~np.isnan(standard)
    return {
        name: _distance_from_normal(standard[informative & world])
        for name, world in (("world_d", worlds), ("world_d_prime", ~worlds))
    }


def _losses(worlds: Bools, log_odds: Floats, prior: float) -> tuple[Bools, Floats]:
    """Return the worlds, and what every step adds to the log-odds from even odds, [T, k]."""
    if np.ndim(log_odds) != 2 or not np.size(log_odds):
        raise InputError(f"log-odds are {np.shape(log_odds)}; give them as [trials, steps]")
    if not 0 < prior < 1:
        raise InputError(f"prior is {prior}; give a probability between 0 and 1")
    worlds, _ = check_trials(worlds, log_odds[:, -1])
    with np.errstate(invalid="ignore"):  # from infinite to infinite
        return worlds, np.diff(log_odds, axis=1, prepend=float(logit(prior)))


def _check_shape(losses: Floats, ratios: Floats) -> None:
    if losses.shape != ratios.shape:
        raise InputError(f"log-odds are {losses.shape}, norms {ratios.shape}; give both as [T, k]")


def _joined(standard: Floats, ratios: Floats) -> Floats:
    informative = (ratios > 0).any(axis=1)
    return np.where(informative, standard.sum(axis=1) / math.sqrt(standard.shape[1]), np.nan)


@dataclass(frozen=True)
class _Step:
    """One sampled step of every trial: |g|, |g'| and <g, g'>, each over sigma or its square, [T].

    `play` draws what chance decides, and `losses` are the log-likelihood ratios that this makes.
    """

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
        """Return lambda [n, T] of what was played, where D was used in `worlds`."""
        joined, along_g, along_h = played
        mean = np.where(worlds, self.g**2, self.inner)
        found = _mixed(joined * mean - self.g**2 / 2 + along_g, self.sampling_rate)
        if self.h.any():
            mean = np.where(worlds, self.inner, self.h**2)
            found = found - _mixed(joined * mean - self.h**2 / 2 + along_h, self.sampling_rate)
        return found


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
        raise InputError("a gradient meets no noise, so that nothing is left to chance; add noise")
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
    shared = np.divide(inner, g, out=np.zeros_like(g), where=g > 0)
    alone = np.sqrt(np.maximum(h**2 - shared**2, 0.0))
    return g * first, shared * first + alone * generator.standard_normal(shape)


def _ratios(norms: npt.ArrayLike, noise_std: npt.ArrayLike) -> Floats:
    """Return norms over the noise that hides them, [T, k]: 0 for 0/0, inf for a norm over 0."""
    norms, noise_std = np.asarray(norms, float), np.asarray(noise_std, float)
    if norms.ndim != 2 or not norms.size or noise_std.shape != norms.shape:
        raise InputError(
            f"sensitivities are {norms.shape} and noise_std {noise_std.shape}; "
            "give both as [trials, steps]"
        )
    if not (np.all(norms >= 0) and np.all(noise_std >= 0)):
        raise InputError(
            "a sensitivity or noise_std is negative or not a number; give them all >= 0"
        )
    unhidden = np.where(norms > 0, np.inf, 0.0)
    return np.divide(norms, noise_std, out=unhidden, where=noise_std > 0)


def _distance_from_normal(standard: Floats) -> GoodnessOfFit | None:
    if not standard.size:
        return None
    test = scipy.stats.kstest(standard, "norm")
    return GoodnessOfFit(
        statistic=float(test.statistic), p_value=float(test.pvalue), trials=standard.size
    )
