"""What theory predicts for the trials of a run, and how well they follow it.

worlds: bool [T], True where the model was trained on D; log_odds: float64 [T], the adversary's
final Lambda for D; sensitivities and noise_std: float64 [T, k], the realised LS_i and the sigma_i
that hides it; where records are sampled, also present_norms and absent_norms, the clipped gradient
norms of the record and of its replacement. Log-odds start from prior 1/2 unless a function takes
the prior.
"""

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from scipy.special import logit, ndtr
from scipy.stats import ks_2samp, kstest

from adversaries.trials import Bools, Floats, check_trials
from fedsim.errors import InputError


@dataclass(frozen=True)
class Prediction:
    """What theory predicts for a run: trial_mu [T], their root mean square, the mean advantage."""

    trial_mu: Floats
    mu: float
    advantage: float
    deterministic: bool


@dataclass(frozen=True)
class Simulation:
    """Games of a run played again on paper: final log-odds [N] from even odds, for each world.

    advantage: what they predict, with its Monte-Carlo standard_error; deterministic: whether the
    ratios of all trials are alike, so that every trial draws from one distribution and no less.
    """

    world_d: Floats
    world_d_prime: Floats
    advantage: float
    standard_error: float
    deterministic: bool


class GoodnessOfFit(TypedDict):
    """A Kolmogorov-Smirnov distance from theory, its p-value, and how many trials it compared."""

    statistic: float
    p_value: float
    trials: int


def trial_mu(sensitivities: Floats, noise_std: Floats) -> Floats:
    """Return mu = sqrt(sum_i (LS_i/sigma_i)^2) of every trial, [T].

    A step without a difference counts 0 even where it has no noise; a difference without noise
    makes mu infinite. Raises InputError unless both arrays are [T, k] and nowhere negative or NaN.
    """
    mu: Floats = np.sqrt(np.square(_ratios(sensitivities, noise_std)).sum(axis=1))
    return mu


def predict(sensitivities: Floats, noise_std: Floats, prior: float = 0.5) -> Prediction:
    """Return what the realised LS_i/sigma_i [T, k] predict: mu, and the mean advantage over trials.

    At even odds the advantage of a trial is 2 Phi(mu_t/2) - 1; from another prior the adversary
    decides D iff its ratio passes -logit(prior), and TPR - FPR is smaller.
    Exact where LS_i/sigma_i is deterministic, as under noise scaled to LS. Otherwise the
    sensitivities depend on the noise drawn before them and the prediction is approximate;
    `deterministic` says which. Raises InputError as `trial_mu` does.
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


def log_odds_fit(
    worlds: Bools, log_odds: Floats, mu: Floats | float, prior: float = 0.5
) -> dict[str, GoodnessOfFit | None]:
    """Return, for "world_d" and "world_d_prime", how well log-odds [T] follow N(+-mu^2/2, mu^2).

    A Kolmogorov-Smirnov test of (Lambda - logit(prior) -+ mu_t^2/2)/mu_t against N(0, 1); mu is
    [T] or one number for all. Exact where LS_i/sigma_i is deterministic, else approximate. Trials
    whose mu is 0 or infinite have no density and are left out; None where none remain. Raises
    InputError unless 0 < prior < 1, and on arrays that are empty, unequal or not numbers.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    _check_prior(prior)
    mu = np.asarray(mu, float)
    if mu.shape not in ((), worlds.shape) or not np.all(mu >= 0):
        raise InputError(f"mu is {mu.shape}; give one number >= 0 for each of {worlds.size} trials")
    mu = np.broadcast_to(mu, worlds.shape)
    spread = (mu > 0) & np.isfinite(mu)
    ratios = log_odds - logit(prior)
    return {
        "world_d": _distance_from_normal(ratios, mu, worlds & spread, sign=1),
        "world_d_prime": _distance_from_normal(ratios, mu, ~worlds & spread, sign=-1),
    }


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

    present_norms, absent_norms, sensitivities, noise_std [T, k]: |g|, |g'|, |g - g'| and sigma, of
    the record, of its replacement (0 where it is only removed) and of the noise. A step whose
    record joins with probability q releases B (b g + (1-b) g') + noise, besides what is known, and

        lambda = log(1 - q + q e^s) - log(1 - q + q e^s'),  s = (<r, g> - |g|^2/2) / sigma^2,

    s' with g'. That depends on the noise only through its components along g and g', two standard
    normals whose correlation the three norms determine. Every trial is played equally often, at
    least `games` times in all or once each, with the same coins and noise in both worlds.

    The advantage is that of deciding D iff the log-odds from `prior` are above 0, ties as in
    `advantage`. Exact up to the standard error where the norms over sigma are deterministic, else
    approximate as in `predict`. Raises InputError as `trial_mu` does, for a gradient without noise,
    and unless 0 < sampling_rate <= 1.
    """
    if not 0 < sampling_rate <= 1:
        raise InputError(f"the sampling rate is {sampling_rate}; give a number above 0, at most 1")
    present, absent, apart = (
        _ratios(norms, noise_std) for norms in (present_norms, absent_norms, sensitivities)
    )
    if not all(np.isfinite(ratios).all() for ratios in (present, absent, apart)):
        raise InputError("a gradient meets no noise, so that nothing is left to chance; add noise")
    trials, steps = present.shape
    shape = (-(-games // trials), trials)
    log_odds = {True: np.zeros(shape), False: np.zeros(shape)}
    for step in range(steps):
        joined: Bools | float = (
            generator.random(shape) < sampling_rate if sampling_rate < 1 else 1.0
        )
        g, h = present[:, step], absent[:, step]
        inner = (g**2 + h**2 - apart[:, step] ** 2) / 2
        along_g, along_h = _correlated_noise(g, h, inner, shape, generator)
        for world, mean_g, mean_h in ((True, g**2, inner), (False, inner, h**2)):
            log_odds[world] += _mixed(joined * mean_g - g**2 / 2 + along_g, sampling_rate)
            if h.any():
                log_odds[world] -= _mixed(joined * mean_h - h**2 / 2 + along_h, sampling_rate)
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


def simulated_fit(
    worlds: Bools, log_odds: Floats, simulation: Simulation, prior: float = 0.5
) -> dict[str, GoodnessOfFit | None]:
    """Return, for "world_d" and "world_d_prime", how well log-odds [T] follow the simulated ones.

    A two-sample Kolmogorov-Smirnov test of Lambda - logit(prior); None for a world without trials.
    Its p-value is valid where the simulation is deterministic, else approximate. Raises InputError
    unless 0 < prior < 1, and on arrays that are empty, unequal or not numbers.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    _check_prior(prior)
    ratios = log_odds - logit(prior)
    return {
        "world_d": _distance_from_sample(ratios[worlds], simulation.world_d),
        "world_d_prime": _distance_from_sample(ratios[~worlds], simulation.world_d_prime),
    }


def _mixed(ratio: Floats, sampling_rate: float) -> Floats:
    """Return log(1 - q + q e^s) of a record that joins with probability q."""
    if sampling_rate == 1:
        return ratio
    mixture: Floats = np.logaddexp(math.log1p(-sampling_rate), math.log(sampling_rate) + ratio)
    return mixture


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
    ratios: Floats = np.divide(norms, noise_std, out=unhidden, where=noise_std > 0)
    return ratios


def _check_prior(prior: float) -> None:
    if not 0 < prior < 1:
        raise InputError(f"prior is {prior}; give a probability between 0 and 1")


def _distance_from_normal(
    ratios: Floats, mu: Floats, chosen: Bools, sign: int
) -> GoodnessOfFit | None:
    if not chosen.any():
        return None
    deviation = ratios[chosen] / mu[chosen] - sign * mu[chosen] / 2
    test = kstest(deviation, "norm")
    return GoodnessOfFit(
        statistic=float(test.statistic), p_value=float(test.pvalue), trials=deviation.size
    )


def _distance_from_sample(ratios: Floats, simulated: Floats) -> GoodnessOfFit | None:
    if not ratios.size:
        return None
    # The exact p-value is quadratic in the sizes; the simulated sample is much the larger one, with
    # which the asymptotic one comes to the exact one-sample distribution of the trials.
    test = ks_2samp(ratios, simulated, method="asymp")
    return GoodnessOfFit(
        statistic=float(test.statistic), p_value=float(test.pvalue), trials=ratios.size
    )
