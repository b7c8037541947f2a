"""Noisy means: the noise measured as a residual, and beliefs about whose update is in the mean.

A round releases r = sum_j w_j u_j + N(0, s^2 I), where u_j is the clipped update of client j. An
auditor who knows every u_j obtains the noise e. An adversary that knows all but one asks whether
that client took part: two Gaussians at distance |w_j u_j|, as in Bernau et al., Lemma 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import chi2, kstest

from adversaries.arrays import Floats
from adversaries.statistics.intervals import Interval, significance

FINGERPRINT = 4096
"""Coordinates of the noise that are kept from every round, to detect reused noise."""


ROUNDING_MARGIN = 2.0
"""A residual up to so many times the expected root mean square of rounding counts as rounding."""

CLEAR_OF_ROUNDING = 0.3
"""Factor of sqrt(n): least (s/r)^2 at which the shape of n coordinates is judged, r the rounding.

With a dither as wide as the gap h between two numbers, the distribution function of rounded noise
is off by at most h^2/8 max|phi'|/s^2, which for h <= 2 r is 0.12 (r/s)^2. Kolmogorov and Smirnov's
test alarms at 2.23/sqrt(n); rounding may cause at most a fifth of that.
"""


@dataclass(frozen=True)
class Contribution:
    """One client's part in a mean.

    Attributes:
        weight: w.
        norm: |w u|.
        projection: <e, w u>, with e the noise of the release.
    """

    weight: float
    norm: float
    projection: float


@dataclass(frozen=True)
class Release:
    """One noisy mean, reduced to what an audit needs. e is the residual.

    Attributes:
        round: its number.
        size: P, the number of parameters.
        claimed_std: s as configured; None if unknown.
        energy: |e|^2.
        rounding: root mean square of e if it were only rounding.
        clipping_norm: C, the largest |u_j|; None where nothing limits it.
        contributions: by client.
        by_array: P, |e|^2 and `rounding` of each array of the model, by name.
        fingerprint: the first coordinates of e, float32, each dithered evenly over one unit in the
            last place of its parameter, because noise in a model is discrete.
        fingerprint_rounding: `rounding` of the fingerprint's coordinates alone.
    """

    round: int
    size: int
    claimed_std: float | None
    energy: float
    rounding: float
    clipping_norm: float | None
    contributions: dict[int, Contribution]
    by_array: dict[str, tuple[int, float, float]]
    fingerprint: npt.NDArray[np.float32]
    fingerprint_rounding: float = 0.0

    @property
    def left_over(self) -> float:
        """The root mean square of the residual."""
        return math.sqrt(self.energy / self.size) if self.size else 0.0

    @property
    def noiseless(self) -> bool:
        """Whether rounding alone could explain the residual."""
        return self.left_over <= ROUNDING_MARGIN * self.rounding

    @property
    def energy_of_noise(self) -> float:
        """A lower bound on the part of |e|^2 that is noise and not rounding."""
        return energy_of_noise(self.energy, self.size, self.rounding)


def energy_of_noise(energy: float, size: int, rounding: float) -> float:
    """Return a lower bound on the part of |e|^2 that is noise.

    Args:
        energy: |e|^2.
        size: P, the number of coordinates.
        rounding: root mean square of e if it were only rounding.
    """
    return max(0.0, energy - size * (ROUNDING_MARGIN * rounding) ** 2)


def clipped(update: Floats, norm: float | None) -> Floats:
    """Return the update, shortened if it is too long.

    Args:
        update: float64 [P].
        norm: the largest length; None for no limit.
    """
    length = float(np.linalg.norm(update))
    return update * (norm / length) if norm is not None and length > norm else update


def std_interval(energy: float, freedom: int, confidence: float) -> Interval:
    """Return an exact interval of s from the squared length of normals N(0, s^2).

    Args:
        energy: sum of the squares.
        freedom: number of normals; 0 gives the interval [0, inf).
        confidence: in (0, 1).

    Raises InputError for confidence out of range.
    """
    tail = significance(confidence) / 2
    if freedom < 1:
        return Interval(0.0, math.inf, confidence)
    # |e|^2/s^2 is chi-square, so its upper quantile gives the lower end of s.
    low = math.sqrt(energy / chi2.isf(tail, freedom))
    return Interval(low, math.sqrt(energy / chi2.ppf(tail, freedom)), confidence)


def log_likelihood_ratio(contribution: Contribution, std: float) -> float:
    """Return the log-likelihood ratio of this client's update against no change.

    It is <w u + e - w u / 2, w u> / s^2; 0 for a client that changed nothing.

    Args:
        contribution: the client's part in the release.
        std: s, >= 0; 0 gives infinity.
    """
    if contribution.norm == 0:
        return 0.0
    if std == 0:
        return math.inf
    return (contribution.norm**2 / 2 + contribution.projection) / std**2


def clear_of_rounding(releases: Sequence[Release]) -> list[Release]:
    """Return the rounds whose noise is so far above rounding that its shape can be judged.

    releases: one for each round.
    """
    noisy = [release for release in releases if not release.noiseless]
    # The shape test joins all rounds; the more coordinates it has, the less rounding it allows.
    least = CLEAR_OF_ROUNDING * math.sqrt(sum(release.fingerprint.size for release in noisy))
    return [
        release
        for release in noisy
        if _root_mean_square(release) ** 2 >= least * release.fingerprint_rounding**2
    ]


def normality(releases: Sequence[Release]) -> float | None:
    """Return the p-value of Gaussian noise (Kolmogorov, Smirnov; Lilliefors, 1967); or None."""
    clear = [release for release in clear_of_rounding(releases) if _root_mean_square(release)]
    if not clear:
        return None
    # Each round has its own scale. Scaling by an estimate makes the test conservative (Lilliefors).
    sample = np.concatenate(
        [release.fingerprint.astype(np.float64) / _root_mean_square(release) for release in clear]
    )
    if sample.size < 100 or min(release.size for release in clear) < 100:
        return None
    return float(kstest(sample, ndtr).pvalue)


def _root_mean_square(release: Release) -> float:
    coordinates = release.fingerprint.astype(np.float64)
    return math.sqrt(coordinates @ coordinates / coordinates.size) if coordinates.size else 0.0


def repeated_noise(releases: Sequence[Release], confidence: float) -> list[tuple[int, int]]:
    """Return pairs of rounds whose noise is the same, or correlated beyond chance.

    Args:
        releases: one for each round; rounds without noise are left out.
        confidence: in (0, 1); independent noise is accused with probability at most 1 - confidence.

    Raises InputError for confidence out of range.
    """
    noisy = [release for release in releases if not release.noiseless]
    if len(noisy) < 2 or len({release.fingerprint.size for release in noisy}) > 1:
        return []
    coordinates = noisy[0].fingerprint.size
    if coordinates < 64:
        return []
    stacked = np.stack([release.fingerprint for release in noisy]).astype(np.float64)
    stacked /= np.linalg.norm(stacked, axis=1, keepdims=True)
    # Absolute values, so that noise with the opposite sign counts as reused too.
    correlation = np.abs(stacked @ stacked.T)
    pairs = len(noisy) * (len(noisy) - 1) / 2
    # P(|r| > x) <= 2 exp(-(n - 1) x^2 / 2) for directions on the sphere (concentration of measure).
    limit = math.sqrt(2 * math.log(2 * pairs / significance(confidence)) / (coordinates - 1))
    first, second = np.nonzero(np.triu(correlation > limit, 1))
    return [(noisy[i].round, noisy[j].round) for i, j in zip(first, second, strict=True)]
