"""What T trials of the identification game say about epsilon, and how surely they say it.

The data are T independent trials: worlds bool [T], True where the model was trained on D; log_odds
float64 [T], the adversary's final Lambda for D; sensitivities and noise_std float64 [T, k], the
realised LS_i and the sigma_i that hides it; where records are sampled, also present_norms and
absent_norms, the clipped gradient norms of the record and of its replacement. Log-odds start from
prior 1/2 unless a function takes the prior: with another one, subtract logit(prior) where epsilon
is read off them.

The paper is Bernau et al., "Quantifying identifiability to choose and audit epsilon in
differentially private deep learning". Its estimators make no confidence statement. Those that do
are lower bounds and stand in `LOWER_BOUNDS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betainccinv, betaincinv, logit, ndtr, ndtri
from scipy.stats import ks_2samp, kstest, nct

from fedsim.errors import InputError
from fedsim.gaussian import epsilon as gaussian_epsilon

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

ALARM_CONFIDENCE = 0.999
"""How sure a contradiction of theory, or of a claim, must be before a report calls it one."""

LARGEST_EFFECT = 50.0
"""Standardised mean differences above this count as this: scipy's noncentral t soon diverges."""

RESOLUTION = 1e-12
"""A standard deviation below this share of the largest log-odds is rounding, not noise."""


@dataclass(frozen=True)
class Interval:
    """A two-sided interval that covers the truth with probability at least `confidence`."""

    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Advantage:
    """The adversary's advantage, in [-1, 1], with the counts of trials behind it."""

    point: float
    standard_error: float
    interval: Interval
    wins: int
    losses: int
    ties: int


@dataclass(frozen=True)
class Frequency:
    """How often something happened in independent trials."""

    point: float
    interval: Interval
    count: int
    trials: int


@dataclass(frozen=True)
class LowerBound:
    """With probability at least `confidence`, no epsilon below this one is true at `delta`.

    `assumes` says when that holds; `trusts_noise`, whether the claimed noise entered. `details`
    holds the statistics behind the number. `reason` says why a bound of 0 says nothing, if it does.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumes: str
    trusts_noise: bool
    details: dict[str, float] = field(default_factory=dict)
    reason: str | None = None


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


def significance(confidence: float) -> float:
    """Return alpha = 1 - confidence. Raises InputError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; give a number between 0 and 1, such as 0.95")
    return 1 - confidence


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """Return the exact interval of a binomial proportion; each end misses with at most alpha/2.

    Without trials it is [0, 1]. Clopper and Pearson, "The use of confidence or fiducial limits",
    1934. Raises InputError on an impossible confidence.
    """
    tail = significance(confidence) / 2
    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = float(betainccinv(successes + 1, failures, tail)) if failures else 1.0
    return Interval(low, high, confidence)


# What the adversary achieved.


def advantage(worlds: Bools, log_odds: Floats, confidence: float) -> Advantage:
    """Return the advantage Adv = TPR - FPR of deciding D where Lambda > 0, D' where Lambda < 0.

    A tie, Lambda = 0, is neither won nor lost: Adv is the mean over the worlds of the share of wins
    less the share of losses. With one world only (the paper trains on D alone) it is that world's,
    2 wins/T - 1 (Definition 5, section 5.3).

    The interval is Clopper-Pearson's for the share of wins, mapped by 2p - 1; its lower end counts
    ties as lost and its upper end as won, which is valid whatever the ties would have been. Where
    the worlds differ in their shares of wins it only covers more often (Hoeffding, "On the
    distribution of the number of successes in independent trials", 1956). Worlds that differ by one
    trial widen it by 1/T; beyond that it is the mean of one interval for each world, each at
    (1 + confidence)/2. Raises InputError on an impossible confidence, and on arrays that are empty,
    unequal or not numbers.
    """
    worlds, log_odds = _trials(worlds, log_odds)
    scores = np.where(worlds, 1, -1) * np.sign(log_odds).astype(np.int64)
    by_world = [scores[world] for world in (worlds, ~worlds) if world.any()]
    variance = sum(world.var() / len(world) for world in by_world)
    return Advantage(
        point=float(np.mean([world.mean() for world in by_world])),
        standard_error=math.sqrt(variance) / len(by_world),
        interval=_advantage_interval(by_world, confidence),
        wins=int((scores > 0).sum()),
        losses=int((scores < 0).sum()),
        ties=int((scores == 0).sum()),
    )


def delta_prime(
    worlds: Bools, log_odds: Floats, epsilon: Floats | float, confidence: float
) -> Frequency:
    """Return delta': how often the belief exceeds rho_beta(epsilon) when D was used.

    That is Lambda > epsilon in trials on D; epsilon is [T], or one number for all. It estimates
    Pr_D[privacy loss > epsilon], which is not delta but lies above it (section 6.2 compares it with
    delta). Raises InputError if epsilon < 0, on an impossible confidence, and if no trial used D.
    """
    if not np.all(np.asarray(epsilon) >= 0):
        raise InputError(f"epsilon is {epsilon}; give a number of at least 0")
    used = _log_odds_under_d(worlds, log_odds)
    allowed = np.broadcast_to(epsilon, np.shape(worlds))[np.asarray(worlds, bool)]
    count = int((used > allowed).sum())
    interval = clopper_pearson(count, len(used), confidence)
    return Frequency(count / len(used), interval, count, len(used))


# The paper's estimators of epsilon: points, without a confidence statement.


def epsilon_from_sensitivities(
    sensitivities: Floats,
    noise_std: Floats,
    delta: float,
    epsilon_of_mu: Callable[[float, float], float],
) -> float:
    """Return the epsilon of the trial with the largest realised LS_i/sigma_i (section 5.3).

    `epsilon_of_mu(mu, delta)` chooses the accounting: the paper's RDP, or the exact conversion, and
    of sampled steps an accountant's at the root mean square ratio mu/sqrt(k). A tautology under
    noise that is scaled to LS: it gives back the epsilon that set the noise. inf where a
    sensitivity meets no noise. Raises InputError as `trial_mu` does.
    """
    largest = float(trial_mu(sensitivities, noise_std).max())
    return math.inf if math.isinf(largest) else epsilon_of_mu(largest, delta)


def epsilon_from_belief(worlds: Bools, log_odds: Floats) -> float:
    """Return the largest log-odds ln(beta/(1 - beta)) of the trials on D, at least 0.

    Section 5.3 prints beta/(1 - beta), without the logarithm of Eq. 10. An extreme value: it grows
    with the number of trials, and bounds nothing. Raises InputError if no trial used D.
    """
    return max(0.0, float(_log_odds_under_d(worlds, log_odds).max()))


def epsilon_from_advantage(advantage: float, delta: float) -> float:
    """Return epsilon' = 2 sqrt(2 ln(1.25/delta)) Phi^-1((Adv + 1)/2); 0 for Adv <= 0.

    Theorem 2 solved for epsilon; Eq. 15 prints it without the factor 2. It presumes the classic
    sigma = sqrt(2 ln(1.25/delta)) Delta/epsilon and says nothing about tightly calibrated noise.
    Adv = 1 gives inf. Raises InputError unless -1 <= Adv <= 1 and 0 < delta < 1.
    """
    if not -1 <= advantage <= 1:
        raise InputError(f"the advantage is {advantage}; give a number from -1 to 1")
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; give a probability above 0 and below 1, such as 1e-5")
    quantile = float(ndtri((max(0.0, advantage) + 1) / 2))
    return 2 * math.sqrt(2 * math.log(1.25 / delta)) * quantile


# Lower bounds on epsilon that hold with confidence.


def clopper_pearson_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float
) -> LowerBound:
    """Return the bound that the rates of the decision Lambda > 0 prove.

    (epsilon, delta)-privacy forces TPR <= e^epsilon FPR + delta, and the same of TNR and FNR. With
    TPR no lower and FPR no higher than their limits at alpha/2 each, both hold at once, and
    epsilon is the larger logarithm (Jagielski et al., "Auditing differentially private machine
    learning", 2020, Algorithm 2 and Theorem 2; there delta = 0). The threshold was fixed before
    the trials; a tie decides D'. Needs trials of both worlds, else 0 with the reason. Raises
    InputError unless 0 <= delta < 1, and as `advantage` does.
    """
    worlds, log_odds = _trials(worlds, log_odds)
    if not 0 <= delta < 1:
        raise InputError(f"delta is {delta}; give a probability from 0 to below 1, such as 1e-5")
    decided = log_odds > 0
    true, false = decided[worlds], decided[~worlds]
    tpr = clopper_pearson(int(true.sum()), true.size, confidence).low
    fpr = clopper_pearson(int(false.sum()), false.size, confidence).high
    return LowerBound(
        epsilon=max(_log_ratio(tpr - delta, fpr), _log_ratio(1 - fpr - delta, 1 - tpr)),
        delta=delta,
        confidence=confidence,
        method="Clopper-Pearson limits of the true and false positive rates at the threshold 0",
        assumes="independent trials",
        trusts_noise=False,
        details={"true_positive_rate_low": tpr, "false_positive_rate_high": fpr},
        reason=None if true.size and false.size else "trials of one world only",
    )


def gaussian_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> LowerBound:
    """Return the bound that the standardised difference of the two samples of log-odds proves.

    Under Gaussian noise Lambda | b ~ N(+-mu^2/2, mu^2), so the difference of the means over the
    common standard deviation is mu, whatever scale the adversary's claimed noise gave Lambda. The
    two-sample t statistic is noncentral t with noncentrality mu/sqrt(1/n1 + 1/n0); the mu at which
    it would be this large with probability alpha is the exact lower limit (Hedges, "Distribution
    theory for Glass's estimator of effect size", 1981), and epsilon(mu, delta) its conversion.

    Where the model cannot hold (fewer than two trials of a world, log-odds that are infinite or do
    not vary) the bound is 0 and `reason` says why. Raises InputError unless 0 < delta < 1, and as
    `advantage` does.
    """
    worlds, log_odds = _trials(worlds, log_odds)
    alpha = significance(confidence)
    with_d, without = log_odds[worlds], log_odds[~worlds]
    reason = _not_gaussian(with_d, without)
    details = {} if reason else _standardised_difference(with_d, without, alpha)
    return LowerBound(
        epsilon=gaussian_epsilon(details.get("mu_low", 0.0), delta),
        delta=delta,
        confidence=confidence,
        method="noncentral t limit of the standardised difference between the worlds",
        assumes="independent trials, normal log-odds of one variance in both worlds",
        trusts_noise=False,
        details=details,
        reason=reason,
    )


LOWER_BOUNDS: dict[str, Callable[[Bools, Floats, float, float], LowerBound]] = {
    "clopper_pearson": clopper_pearson_bound,
    "gaussian": gaussian_bound,
}
"""Name -> function of (worlds, log_odds, delta, confidence)."""

NORMAL_LOG_ODDS = frozenset({"gaussian"})
"""The lower bounds that hold only for normal log-odds."""


def lower_bounds(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float, not_normal: str | None = None
) -> dict[str, LowerBound]:
    """Return every lower bound by its name.

    not_normal: why the log-odds are not normal, if so: the bounds that need it are 0 and give this
    as the reason. Raises InputError as the bounds do.
    """
    bounds = {
        name: bound(worlds, log_odds, delta, confidence) for name, bound in LOWER_BOUNDS.items()
    }
    if not_normal:
        for name in NORMAL_LOG_ODDS:
            bounds[name] = replace(bounds[name], epsilon=0.0, details={}, reason=not_normal)
    return bounds


# What theory predicts for the run itself.


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
    worlds, log_odds = _trials(worlds, log_odds)
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
    worlds, log_odds = _trials(worlds, log_odds)
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


def _trials(worlds: npt.ArrayLike, log_odds: npt.ArrayLike) -> tuple[Bools, Floats]:
    bits, odds = np.asarray(worlds, bool), np.asarray(log_odds, np.float64)
    if bits.ndim != 1 or not bits.size or odds.shape != bits.shape:
        raise InputError(
            f"worlds are {bits.shape} and log_odds {odds.shape}; give both as [trials]"
        )
    if np.isnan(odds).any():
        raise InputError("log-odds are not numbers: a model diverged; lower the learning rate")
    return bits, odds


def _log_odds_under_d(worlds: Bools, log_odds: Floats) -> Floats:
    worlds, log_odds = _trials(worlds, log_odds)
    if not worlds.any():
        raise InputError("no trial was trained on D; run trials of both worlds")
    return log_odds[worlds]


def _advantage_interval(by_world: list[npt.NDArray[np.int64]], confidence: float) -> Interval:
    pooled = np.concatenate(by_world)
    imbalance = abs(len(by_world[0]) - len(by_world[1])) if len(by_world) == 2 else 0
    if imbalance <= 1:
        low, high = _win_rate_limits(pooled, confidence)
        slack = imbalance / len(pooled)
        return Interval(max(-1.0, low - slack), min(1.0, high + slack), confidence)
    limits = [_win_rate_limits(world, (1 + confidence) / 2) for world in by_world]
    low, high = np.mean(limits, axis=0).tolist()
    return Interval(low, high, confidence)


def _win_rate_limits(scores: npt.NDArray[np.int64], confidence: float) -> tuple[float, float]:
    wins, losses = int((scores > 0).sum()), int((scores < 0).sum())
    low = 2 * clopper_pearson(wins, len(scores), confidence).low - 1
    high = 1 - 2 * clopper_pearson(losses, len(scores), confidence).low
    return low, high


def _log_ratio(numerator: float, denominator: float) -> float:
    return math.log(numerator / denominator) if numerator > denominator else 0.0


def _not_gaussian(with_d: Floats, without: Floats) -> str | None:
    if min(with_d.size, without.size) < 2:
        return "fewer than two trials of a world"
    both = np.concatenate([with_d, without])
    if not np.isfinite(both).all():
        return "infinite log-odds: a step without noise"
    if max(with_d.std(), without.std()) <= RESOLUTION * np.abs(both).max():
        return "log-odds that do not vary"
    return None


def _standardised_difference(with_d: Floats, without: Floats, alpha: float) -> dict[str, float]:
    """Return mu estimated by the standardised mean difference, its lower limit and freedom."""
    freedom = with_d.size + without.size - 2
    squares = with_d.size * with_d.var() + without.size * without.var()
    effect = float((with_d.mean() - without.mean()) / math.sqrt(squares / freedom))
    scale = math.sqrt(1 / with_d.size + 1 / without.size)
    # The limit grows with the statistic, so a smaller statistic keeps the bound valid.
    statistic = min(effect, LARGEST_EFFECT) / scale

    def excess(noncentrality: float) -> float:
        return float(nct.sf(statistic, freedom, noncentrality)) - alpha

    limit = 0.0
    if excess(0) < 0:
        high = max(1.0, statistic)
        while excess(high) < 0:
            high *= 2
        limit = brentq(excess, 0, high) * scale
    return {"mu": effect, "mu_low": limit, "degrees_of_freedom": freedom}


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
