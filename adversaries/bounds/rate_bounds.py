"""Lower bounds on epsilon from the error rates of deciding D where Lambda > 0, and their model."""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.special import ndtri

from adversaries.arrays import Bools, Floats
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import EpsilonBound, binomial_high, significance
from adversaries.statistics.trials import ONE_WORLD, check_trials


@dataclass(frozen=True)
class NoiseFamily:
    """A mechanism at every scale of its noise.

    Attributes:
        scales: considered scales, ascending and fixed in advance; 1 is the claimed noise.
        miss_rate: (scale, false positive rate) -> a lower bound on the false negative rate that the
            mechanism allows; never falls as the scale grows, up to rounding.
        epsilon: (scale, delta) -> the guarantee of the mechanism.
    """

    scales: Sequence[float]
    miss_rate: Callable[[float, float], float]
    epsilon: Callable[[float, float], float]


@dataclass(frozen=True)
class Accusations:
    """Numbers of accusations of D, in trials on D and on D'.

    Attributes:
        true: accusations in trials on D.
        on_d: number of trials on D.
        false: accusations in trials on D'.
        others: number of trials on D'.
    """

    true: int
    on_d: int
    false: int
    others: int

    @classmethod
    def of(cls, worlds: Bools, log_odds: Floats) -> "Accusations":
        """Return the counts for the decision Lambda > 0.

        Args:
            worlds: bool [T], True where the model was trained on D.
            log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        """
        worlds, log_odds = check_trials(worlds, log_odds)
        true, false = log_odds[worlds] > 0, log_odds[~worlds] > 0
        return cls(int(true.sum()), true.size, int(false.sum()), false.size)

    @property
    def reason(self) -> str | None:
        """Why nothing follows from the counts, None if there are trials of both worlds."""
        return None if self.on_d and self.others else ONE_WORLD


def _highest(counts: Accusations, confidence: float) -> tuple[float, float]:
    """Return upper limits of FPR and FNR that hold together, each at alpha/2."""
    # Half of the error for each rate, so that both limits hold together (Bonferroni).
    tail = significance(confidence) / 2
    misses = counts.on_d - counts.true
    return (
        float(binomial_high(counts.false, counts.others, tail)),
        float(binomial_high(misses, counts.on_d, tail)),
    )


def mu_gdp_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> EpsilonBound:
    """Return the bound that the rates of the decision Lambda > 0 prove for a Gaussian mechanism.

    mu-Gaussian privacy forces Phi^-1(1 - FPR) - Phi^-1(FNR) <= mu. FPR and FNR each have their
    Clopper-Pearson limit at alpha/2. The bound holds for every mechanism that composes to a
    Gaussian one, like full batches, at any scale of its noise.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in (0, 1).
        confidence: in (0, 1).

    Returns: the bound; 0 with the `reason` without trials of both worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses. Source: Nasr et al., "Tight auditing of differentially private machine learning", 2023,
    Section 4.
    """
    counts = Accusations.of(worlds, log_odds)
    false, missed = _highest(counts, confidence)
    # At the largest FPR and FNR, Phi^-1(1 - FPR) - Phi^-1(FNR) is smallest, so it is a lower limit
    # of mu.
    mu = max(0.0, float(-ndtri(false) - ndtri(missed)))
    return EpsilonBound(
        epsilon=gaussian_epsilon(mu, delta),
        delta=delta,
        confidence=confidence,
        method="mu of Gaussian privacy from Clopper-Pearson limits of the false positive and "
        "negative rates at the threshold 0",
        assumes="independent trials, a mechanism that composes to a Gaussian one",
        details={
            "mu_low": mu,
            "false_positive_rate_high": false,
            "false_negative_rate_high": missed,
        },
        reason=counts.reason,
    )


def trade_off_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float, family: NoiseFamily
) -> EpsilonBound:
    """Return the bound that the rates of the decision Lambda > 0 prove for a family of mechanisms.

    A noise scale is refuted if FNR's Clopper-Pearson limit at alpha/2 is less than the mechanism
    allows at FPR's limit, and all larger scales with it.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in (0, 1).
        confidence: in (0, 1).
        family: the mechanism at every scale of its noise that is considered.

    Returns: the bound; 0 where no scale is refuted, or with the `reason` without trials of both
    worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses.
    """
    counts = Accusations.of(worlds, log_odds)
    false, missed = _highest(counts, confidence)

    def refuted(scale: float) -> bool:
        return family.miss_rate(scale, false) > missed

    # A mechanism with more noise than the last scale counts as perfectly private.
    least = len(family.scales)
    # More noise forces more errors. So all scales above a refuted one are refuted too, and
    # bisection finds the first. Error rates of guessing, which add up to 1 or more, refute nothing.
    if not counts.reason and false + missed < 1:
        least = bisect.bisect_left(family.scales, True, key=refuted)
    scale = family.scales[least] if least < len(family.scales) else math.inf
    details = {"false_positive_rate_high": false, "false_negative_rate_high": missed}
    if math.isfinite(scale):
        details["noise_scale_high"] = scale
    return EpsilonBound(
        epsilon=family.epsilon(scale, delta) if math.isfinite(scale) else 0.0,
        delta=delta,
        confidence=confidence,
        method="the noise whose trade-off curve still allows the Clopper-Pearson limits of the "
        "false positive and negative rates at the threshold 0",
        assumes="independent trials, the claimed mechanism, up to one scale for all its noise",
        details=details,
        reason=counts.reason,
    )
