"""One-run audits: m canaries, each in or out of the whole training by its own coin.

The highest scores are guessed to be in and the lowest to be out. Differential privacy bounds the
number of right guesses, although all guesses are about one training (Steinke, Nasr and Jagielski,
"Privacy auditing with one (1) training run", 2023). The coins are fair and independent, and scores
never depend directly on them. Neighbours are add-remove and differ in one canary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Bools, Floats, Ints
from adversaries.bounds.canaries import effect
from adversaries.bounds.guessing import binomial_epsilon, gaussian_mus, right_guesses
from adversaries.errors import InputError
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import EpsilonBound, Interval, check_delta, significance

SHARE = 8
"""By default, guesses are made about one canary in so many, which is best near m = 1000."""

SEVERAL = -1
"""Instead of a number of guesses: try all fractions in `PAID`."""

PAID = (1, 2, 4, 8, 16, 32)
"""Numbers of guesses to try, as one in so many canaries, each at an equal share of alpha
(Bonferroni)."""

LARGEST_CONVERTED = 1e6
"""Larger estimates of mu count as infinite: the scores hardly vary."""

COINS = "fair, independent coins that affect the scores only through what was released"


@dataclass(frozen=True)
class CanaryEstimate:
    """An estimate from the canaries' scores, which proves nothing.

    Attributes:
        mu: the difference of the mean scores over their common standard deviation.
        mu_interval: for mu >= 0; holds only under `assumes`, which the training does not ensure.
        epsilon: of a Gaussian mechanism with this mu at `delta`.
        epsilon_interval: from the ends of `mu_interval`.
        delta: of the guarantee.
        method: method of computation, in words.
        assumes: assumptions of the intervals, in words.
        reason: why there is no estimate, else None.
    """

    mu: float
    mu_interval: Interval
    epsilon: float
    epsilon_interval: Interval
    delta: float
    method: str
    assumes: str
    reason: str | None = None


def binomial_bound(
    included: Bools, scores: Floats, delta: float, confidence: float, guesses: int = 0
) -> EpsilonBound:
    """Return the epsilon that the right guesses prove for any (epsilon, delta)-private training.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        delta: in [0, 1).
        confidence: in (0, 1).
        guesses: their number or a code for `plans`, decided before the scores were seen.

    Returns: the bound, with the numbers of canaries, guesses and right guesses in its details.
    Raises InputError for bad arrays, guesses, delta or confidence.
    """
    check_canary_scores(included, scores, guesses)
    best = _best(_binomial(delta), included[None], scores[None], confidence, guesses)
    return EpsilonBound(
        epsilon=float(best.limits[0]),
        delta=delta,
        confidence=confidence,
        method="binomial limit of right guesses about canaries in one run",
        assumes=COINS,
        details=best.details(scores.size),
    )


def f_dp_bound(
    included: Bools, scores: Floats, delta: float, confidence: float, guesses: int = 0
) -> EpsilonBound:
    """Return the epsilon at `delta` of the largest mu that the right guesses refute.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        delta: in (0, 1).
        confidence: in (0, 1).
        guesses: their number or a code for `plans`, decided before the scores were seen.

    Returns: the bound, with canaries, guesses, right guesses and mu_low in its details.
    Raises InputError for bad arrays, guesses, delta or confidence.
    """
    check_canary_scores(included, scores, guesses)
    best = _best(gaussian_mus, included[None], scores[None], confidence, guesses)
    mu = float(best.limits[0])
    return EpsilonBound(
        epsilon=gaussian_epsilon(mu, delta),
        delta=delta,
        confidence=confidence,
        method="f-DP limit of right guesses about canaries in one run, Gaussian trade-off curves",
        assumes=f"{COINS}; a Gaussian trade-off curve, as steps without sampling have",
        details=best.details(scores.size) | {"mu_low": mu},
    )


def bounds(
    included: Bools, scores: Floats, delta: float, confidence: float, guesses: int = 0
) -> dict[str, EpsilonBound]:
    """Return `binomial_bound` and `f_dp_bound`, by name.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        delta: in (0, 1).
        confidence: of each bound by itself, in (0, 1).
        guesses: their number or a code for `plans`, decided before the scores were seen.

    Raises InputError for bad arrays, guesses, delta or confidence.
    """
    return {
        "binomial": binomial_bound(included, scores, delta, confidence, guesses),
        "f_dp": f_dp_bound(included, scores, delta, confidence, guesses),
    }


def client_canary_estimate(
    included: Bools, scores: Floats, delta: float, confidence: float
) -> CanaryEstimate:
    """Return an estimate from the standardised difference of the scores in and out.

    The paper compares a normal law of the canaries' scores with canaries that took no part. Here
    the canaries that the coin left out give the other law, and both laws share one variance. The
    interval is the two-sample t statistic's (`adversaries.bounds.canaries.effect`).

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        delta: in (0, 1).
        confidence: of the intervals, in (0, 1).

    Raises InputError for bad arrays, delta or confidence.
    Source: Andrew et al., "One-shot empirical privacy estimation", 2024.
    """
    check_canary_scores(included, scores)
    measured = effect(included, _moderate(scores), confidence)
    mu, interval = (0.0, Interval(0.0, math.inf, confidence))
    if measured.reason is None:
        mu, interval = measured.mu, measured.interval
    low, high = (_gaussian_epsilon(end, delta) for end in (interval.low, interval.high))
    return CanaryEstimate(
        mu=mu,
        mu_interval=interval,
        epsilon=_gaussian_epsilon(mu, delta),
        epsilon_interval=Interval(low, high, confidence),
        delta=delta,
        method="standardised difference of the scores of canaries in and out",
        assumes="independent normal scores of one variance, in and out: not checked, no guarantee",
        reason=measured.reason and measured.reason.replace("rounds", "canaries"),
    )


def binomial_bounds(
    included: Bools, scores: Floats, delta: float, confidence: float, guesses: int = 0
) -> Floats:
    """Return the epsilon of `binomial_bound` for every trial, [T].

    Args:
        included: bool [T, m], True where the canary was in.
        scores: float64 [T, m], not checked.
        delta: in [0, 1).
        confidence: of each bound, in (0, 1).
        guesses: their number or a code for `plans`, decided before the scores were seen.

    Raises InputError for delta or confidence out of range.
    """
    return _best(_binomial(delta), included, scores, confidence, guesses).limits


def f_dp_bounds(
    included: Bools, scores: Floats, delta: float, confidence: float, guesses: int = 0
) -> Floats:
    """Return the epsilon of `f_dp_bound` for every trial, [T].

    Args:
        included: bool [T, m], True where the canary was in.
        scores: float64 [T, m], not checked.
        delta: in (0, 1).
        confidence: of each bound, in (0, 1).
        guesses: their number or a code for `plans`, decided before the scores were seen.

    Raises InputError for delta or confidence out of range.
    """
    mus = _best(gaussian_mus, included, scores, confidence, guesses).limits
    # The conversion searches for a root, so each different mu is converted once.
    values, place = np.unique(mus, return_inverse=True)
    return np.asarray([_gaussian_epsilon(mu, delta) for mu in values.tolist()])[place]


def client_canary_estimates(included: Bools, scores: Floats, delta: float) -> Floats:
    """Return the epsilon of `client_canary_estimate` for every trial, [T].

    Args:
        included: bool [T, m], True where the canary was in.
        scores: float64 [T, m], not checked.
        delta: in (0, 1).

    Returns: float64 [T]; NaN where a trial has fewer than two canaries on one side, or scores that
    do not vary.
    Raises InputError unless 0 < delta < 1.
    """
    scores = _moderate(scores)
    size_in, size_out = included.sum(-1), (~included).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_in = (scores * included).sum(-1) / size_in
        mean_out = (scores * ~included).sum(-1) / size_out
        rest = scores - np.where(included, mean_in[..., None], mean_out[..., None])
        # The pooled standard deviation: two means were estimated, so m - 2 degrees of freedom
        # remain.
        mus = (mean_in - mean_out) / np.sqrt((rest**2).sum(-1) / (scores.shape[-1] - 2))
    # One canary on a side says nothing about the spread.
    mus[np.minimum(size_in, size_out) < 2] = np.nan
    epsilons = [mu if math.isnan(mu) else _gaussian_epsilon(mu, delta) for mu in mus.tolist()]
    return np.asarray(epsilons)


def plans(canaries: int, guesses: int = 0) -> tuple[int, ...]:
    """Return the numbers of guesses to try.

    Args:
        canaries: number of canaries, at least 1.
        guesses: one number; 0 for one canary in `SHARE`; `SEVERAL` for the fractions in `PAID`.
    """
    if guesses > 0:
        return (guesses,)
    parts = PAID if guesses == SEVERAL else (SHARE,)
    return tuple(dict.fromkeys(max(1, canaries // part) for part in parts))


def check_canary_scores(included: Bools, scores: Floats, guesses: int = 0) -> None:
    """Raise InputError for arrays or a number of guesses that no audit can use.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        guesses: their number or a code for `plans`.

    Raises InputError for arrays of unequal shapes, infinite scores, or too many guesses.
    """
    if scores.ndim != 1 or not scores.size or included.shape != scores.shape:
        raise InputError(
            f"included is {included.shape} and scores {scores.shape}; give both as [canaries]"
        )
    if not np.isfinite(scores).all():
        raise InputError("scores are not finite numbers: a model diverged; lower the learning rate")
    if not SEVERAL <= guesses <= scores.size:
        raise InputError(
            f"{guesses} guesses about {scores.size} canaries; give 1 to {scores.size}, 0 for one "
            f"in {SHARE}, or {SEVERAL} to try several numbers and pay for it"
        )


Limit = Callable[[int, int, Ints, float], Floats]
"""(canaries, guesses, numbers of right guesses [k], alpha) -> what each number proves [k]."""


@dataclass(frozen=True)
class _Best:
    """The best limit of each trial over the tried numbers of guesses, and the number, all [T]."""

    limits: Floats
    made: Ints
    right: Ints

    def details(self, canaries: int) -> dict[str, float]:
        made, right = int(self.made[0]), int(self.right[0])
        return {"canaries": canaries, "guesses": made, "right": right}


def _binomial(delta: float) -> Limit:
    check_delta(delta)

    def limits(canaries: int, guesses: int, rights: Ints, alpha: float) -> Floats:
        proven = [binomial_epsilon(canaries, guesses, v, delta, alpha) for v in rights.tolist()]
        return np.asarray(proven)

    return limits


def _best(limit: Limit, included: Bools, scores: Floats, confidence: float, guesses: int) -> _Best:
    """Return the best limits for trials [T, m]; equal counts are computed once."""
    trials, m = scores.shape
    tried = plans(m, guesses)
    # Each number of guesses that is tried pays an equal share of the error (Bonferroni), so the
    # best may be reported.
    alpha = significance(confidence) / len(tried)
    limits, right = np.empty((len(tried), trials)), np.empty((len(tried), trials), np.int64)
    for plan, made in enumerate(tried):
        right[plan] = right_guesses(included, scores, made)
        # A limit depends on the number of right guesses alone, and many trials share one.
        counts, place = np.unique(right[plan], return_inverse=True)
        limits[plan] = limit(m, made, counts, alpha)[place]
    best = limits.argmax(0), np.arange(trials)
    return _Best(limits[best], np.asarray(tried)[best[0]], right[best])


def _moderate(scores: Floats) -> Floats:
    """Return scores [..., m] times a power of two, so that squares do not over- or underflow."""
    largest = np.abs(scores).max(axis=-1, keepdims=True)
    # A power of two changes the exponents only, so no rounding is added.
    return np.ldexp(scores, -np.frexp(largest)[1])


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a mu of any sign; infinite above `LARGEST_CONVERTED`."""
    return math.inf if mu > LARGEST_CONVERTED else gaussian_epsilon(max(0.0, mu), delta)
