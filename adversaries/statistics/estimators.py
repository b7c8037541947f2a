"""Estimates from T trials of the identification game: advantage, delta' and epsilon.

Log-odds start from even odds. The paper is Bernau et al., "Quantifying identifiability to choose
and audit epsilon in differentially private deep learning". `lower_bounds` has estimators with
confidence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from adversaries.arrays import Bools, Floats, Ints
from adversaries.errors import InputError
from adversaries.statistics.forecast import trial_mu
from adversaries.statistics.gaussian import check_positive_delta
from adversaries.statistics.intervals import Frequency, Interval, clopper_pearson
from adversaries.statistics.trials import check_trials


@dataclass(frozen=True)
class AdvantageEstimate:
    """The adversary's advantage, in [-1, 1], with the counts of trials behind it.

    Attributes:
        point: TPR - FPR as counted.
        standard_error: of the point, from the spread of the trials.
        interval: two-sided, within [-1, 1].
        wins: trials with the right decision.
        losses: trials with the wrong decision.
        ties: trials with Lambda = 0.
    """

    point: float
    standard_error: float
    interval: Interval
    wins: int
    losses: int
    ties: int


def advantage(worlds: Bools, log_odds: Floats, confidence: float) -> AdvantageEstimate:
    """Return the advantage Adv = TPR - FPR of deciding D where Lambda > 0, D' where Lambda < 0.

    A tie, Lambda = 0, is neither won nor lost. Adv is the share of wins less the share of losses,
    averaged over the worlds; with one world only it is 2 wins/T - 1 (Definition 5, section 5.3).

    The interval is Clopper-Pearson's for the share of wins, mapped by 2p - 1, with ties as lost at
    its lower end and as won at its upper. It is valid where the worlds differ in their shares of
    wins (Hoeffding, "On the distribution of the number of successes in independent trials", 1956).
    If they differ by one trial, it is wider by 1/T; if by more, it is the mean of one interval for
    each world, each at (1 + confidence)/2.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D.
        confidence: of the interval, in (0, 1).

    Raises InputError for confidence out of range, or for trials that `check_trials` refuses.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    # +1 for a right decision, -1 for a wrong one, 0 for a tie.
    scores = np.where(worlds, 1, -1) * np.sign(log_odds).astype(np.int64)
    by_world = [scores[world] for world in (worlds, ~worlds) if world.any()]
    # The worlds are independent samples, so the variances of their means add up. Half of the sum of
    # both means is the advantage.
    variance = sum(world.var() / len(world) for world in by_world)
    return AdvantageEstimate(
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

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds.
        epsilon: >= 0, [T] or one number for all trials.
        confidence: of the interval, in (0, 1).

    Raises InputError for epsilon or confidence out of range, or for no trial that used D. Source:
    Section 6.2, which compares it with delta.
    """
    if not np.all(np.asarray(epsilon) >= 0):
        raise InputError(f"epsilon is {epsilon}; give a number of at least 0")
    under_d = _log_odds_under_d(worlds, log_odds)
    allowed = np.broadcast_to(epsilon, np.shape(worlds))[np.asarray(worlds, bool)]
    count = int((under_d > allowed).sum())
    interval = clopper_pearson(count, len(under_d), confidence)
    return Frequency(count / len(under_d), interval, count, len(under_d))


def epsilon_from_sensitivities(
    sensitivities: Floats,
    noise_std: Floats,
    delta: float,
    epsilon_of_mu: Callable[[float, float], float],
) -> float:
    """Return the epsilon of the trial with the largest realised LS_i/sigma_i.

    Args:
        sensitivities: float64 [T, k], the realised local sensitivities LS_i.
        noise_std: float64 [T, k], the sigma_i that hides each.
        delta: of the guarantee, in (0, 1).
        epsilon_of_mu: accounting from (mu, delta); sampled steps at the mean square mu/sqrt(k).

    Returns: epsilon; infinite for a sensitivity without noise.
    Raises InputError unless both arrays are [T, k] and nowhere negative or NaN. Source: Section
    5.3.
    """
    largest = float(trial_mu(sensitivities, noise_std).max())
    return math.inf if math.isinf(largest) else epsilon_of_mu(largest, delta)


def epsilon_from_belief(worlds: Bools, log_odds: Floats) -> float:
    """Return the largest log-odds ln(beta/(1 - beta)) of the trials on D, at least 0.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds.

    Raises InputError if no trial used D. Source: Section 5.3, without the logarithm of Eq. 10.
    """
    return max(0.0, float(_log_odds_under_d(worlds, log_odds).max()))


def epsilon_from_advantage(advantage: float, delta: float) -> float:
    """Return epsilon' = 2 sqrt(2 ln(1.25/delta)) Phi^-1((Adv + 1)/2); 0 for Adv <= 0.

    Args:
        advantage: in [-1, 1]; 1 gives infinity.
        delta: of the guarantee, in (0, 1).

    Raises InputError unless -1 <= advantage <= 1 and 0 < delta < 1.
    Source: Theorem 2 solved for epsilon; Eq. 15 prints it without the factor 2.
    """
    if not -1 <= advantage <= 1:
        raise InputError(f"the advantage is {advantage}; give a number from -1 to 1")
    check_positive_delta(delta)
    # An advantage below 0 proves nothing, so it counts as 0.
    quantile = float(ndtri((max(0.0, advantage) + 1) / 2))
    return 2 * math.sqrt(2 * math.log(1.25 / delta)) * quantile


def _log_odds_under_d(worlds: Bools, log_odds: Floats) -> Floats:
    worlds, log_odds = check_trials(worlds, log_odds)
    if not worlds.any():
        raise InputError("no trial was trained on D; run trials of both worlds")
    return log_odds[worlds]


def _advantage_interval(by_world: list[Ints], confidence: float) -> Interval:
    pooled = np.concatenate(by_world)
    imbalance = abs(len(by_world[0]) - len(by_world[1])) if len(by_world) == 2 else 0
    if imbalance <= 1:
        low, high = _win_rate_limits(pooled, confidence)
        # One trial more in a world shifts the pooled advantage by at most 1/T.
        slack = imbalance / len(pooled)
        return Interval(max(-1.0, low - slack), min(1.0, high + slack), confidence)
    # The pooled share would weigh the worlds by their sizes. An interval for each world, each with
    # half of the error, avoids this (Bonferroni).
    limits = [_win_rate_limits(world, (1 + confidence) / 2) for world in by_world]
    low, high = np.mean(limits, axis=0).tolist()
    return Interval(low, high, confidence)


def _win_rate_limits(scores: Ints, confidence: float) -> tuple[float, float]:
    wins, losses = int((scores > 0).sum()), int((scores < 0).sum())
    low = 2 * clopper_pearson(wins, len(scores), confidence).low - 1
    # A tie is neither a win nor a loss, so the upper end counts only the losses.
    high = 1 - 2 * clopper_pearson(losses, len(scores), confidence).low
    return low, high
