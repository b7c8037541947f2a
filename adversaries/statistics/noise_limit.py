"""An upper bound on the Gaussian noise in releases, without knowledge of their signal.

Each round releases x = s + noise, a vector of P coordinates, with an unknown signal s that may
depend on all earlier rounds. By Anderson's inequality, for every centre c that was chosen before
the round, the symmetric, unimodal likelihood ratio

    L(x) = N(x; c, (a rho sigma)^2) / N(x; c, (rho sigma)^2),    a < 1,

has a mean of at most 1 under N(s, (rho' sigma)^2) with rho' >= rho. So 1 - w + w L(x) is an
e-value, and so is the product over the coordinates, which grows where there is less noise. Centres
and weights learn from earlier rounds which coordinates have signal. A mixture of alternatives whose
weights move from round to round (fixed share) is an e-process: by Ville's inequality it ever
exceeds 1/alpha with probability at most alpha.

Sources:
    Anderson, "The integral of a symmetric unimodal function over a symmetric convex set and some
    probability inequalities", 1955; Herbster and Warmuth, "Tracking the best expert", 1998; Ramdas,
    Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023.
"""

import math

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.statistics.intervals import significance

RATIOS = 2.0 ** (np.arange(16, -17, -1) / 8)
"""Tested ratios of the noise to the claimed noise, from 4 down to 1/4."""

CLAIMED = int(np.flatnonzero(RATIOS == 1)[0])
"""Position of the claimed noise in `RATIOS`."""

LESS = np.array([0.4, 0.7, 0.9])
"""a: the share of the noise that each alternative assumes."""

SHARES = np.array([0.1, 0.4, 1.0])
"""w: the share of the coordinates that an alternative assumes free of signal."""

MOVED = 0.02
"""Share of its weight that every alternative gives to the others between two rounds."""

AT_ONCE = 2**13
"""Numbers x of ratios and coordinates that are computed at once."""

COORDINATES = 2**14
"""More coordinates are thinned evenly to this number, which is enough and takes 0.1 s a round."""


class NoiseLimit:
    """The largest noise, as a multiple of the claimed noise, that a training's releases allow."""

    def __init__(self) -> None:
        alternatives = 2 * LESS.size * SHARES.size + 1  # the last one bets nothing
        self._weights = np.full((len(RATIOS), alternatives), 1 / alternatives)
        self._log_e = np.zeros(len(RATIOS))
        self._highest = np.zeros(len(RATIOS))
        self._total: Floats | float = 0.0
        self._variance, self._rounds = 0.0, 0

    def observe(self, released: npt.NDArray[np.floating], std: float) -> None:
        """Update the e-processes with a round.

        Args:
            released: [P], of the same size in every round.
            std: the claimed standard deviation of the noise on every coordinate; 0 proves nothing.
        """
        x = released[:: -(-released.size // COORDINATES)].astype(np.float64)
        if std > 0:
            self._bet(x, std)
        self._total = self._total + x
        self._variance += std**2
        self._rounds += 1

    @property
    def log_e(self) -> float:
        """The log of the e-process against at least the claimed noise, as it stands."""
        return float(self._log_e[CLAIMED])

    def limit(self, confidence: float) -> float:
        """Return the largest multiple of the claimed noise, or inf. Raises InputError."""
        refuted = self._highest >= -math.log(significance(confidence))
        # Test from the most noise down to the first ratio that is not refuted: one test in all.
        stands = int(np.argmin(refuted)) if not refuted.all() else len(RATIOS)
        return float(RATIOS[stands - 1]) if stands else math.inf

    def _bet(self, x: Floats, std: float) -> None:
        # The centre must be chosen before the round, so it is the mean of earlier rounds only.
        mean = np.asarray(self._total / max(1, self._rounds))
        # Some ratios at a time, which bounds the memory.
        step = max(1, AT_ONCE // x.size)
        for start in range(0, len(RATIOS), step):
            rows = slice(start, start + step)
            scale = RATIOS[rows, None] * std
            free = self._free(mean, RATIOS[rows]) if self._rounds else np.ones(())
            # Two centres: 0 for coordinates without signal, and the earlier mean for a steady
            # signal. The last alternative bets nothing, so its log is 0.
            centres = _log_e_values(x / scale, free), _log_e_values((x - mean) / scale, np.ones(()))
            logs = np.concatenate([*centres, np.zeros((len(centres[0]), 1))], axis=1)
            largest = logs.max(axis=1, keepdims=True)
            # Subtracting the largest log first avoids overflow. The sum over the mixture is the
            # factor by which the e-process grows.
            won = self._weights[rows] * np.exp(logs - largest)
            grown = won.sum(axis=1, keepdims=True)
            self._log_e[rows] += (largest + np.log(grown))[:, 0]
            # Fixed share: the posterior weights, of which each alternative gives a part away, so
            # that a later change of the signal can still be learnt.
            self._weights[rows] = (1 - MOVED) * won / grown + MOVED / logs.shape[1]
        # Ville's inequality bounds the highest value ever reached, so a ratio stays refuted.
        self._highest = np.maximum(self._highest, self._log_e)

    def _free(self, mean: Floats, ratios: Floats) -> Floats:
        """Return a guess at the probability that each coordinate is free of signal [R, P]."""
        # The variance that noise alone gives the mean of the rounds. What exceeds it is the
        # signal's.
        noise = ratios[:, None] ** 2 * self._variance / self._rounds**2
        signal = np.maximum(np.mean(mean**2) - noise, 1e-9 * noise)
        # Two normal models of each coordinate's mean, noise alone or noise with signal, from even
        # odds.
        narrow, wide = (-0.5 * (mean**2 / v + np.log(v)) for v in (noise, noise + signal))
        return np.exp(-np.logaddexp(0.0, wide - narrow))


def _log_e_values(x: Floats, where: Floats) -> Floats:
    """Return the logs of the products of 1 - w + w L(x) over coordinates, [R, alternatives].

    x and where: [R, P], or [] for where.
    """
    less, share = LESS[:, None, None], SHARES[:, None, None, None]
    # N(x; 0, a^2) / N(x; 0, 1), for every a in LESS and every coordinate.
    ratio = np.exp(-0.5 * x**2 * (1 / less**2 - 1)) / less
    # A weight of 1 may leave log(0) for a coordinate that is all signal.
    with np.errstate(divide="ignore"):
        logs: Floats = np.log1p(share * where * (ratio - 1)).sum(axis=-1)
    return logs.reshape(-1, len(x)).T
