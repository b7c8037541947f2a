"""How much Gaussian noise releases can have, judged by nobody who knows what they are releases of.

Each round releases x = s + noise, a vector of P coordinates. What the signal s is, nobody tells; it
may depend on all earlier rounds. Noise of at least rho times the claimed standard deviation sigma
makes small |x - c| rare, for every s and for every centre c that was chosen before the round: by
Anderson's inequality the symmetric, unimodal likelihood ratio

    L(x) = N(x; c, (a rho sigma)^2) / N(x; c, (rho sigma)^2),    a < 1,

has a mean of at most 1 under N(s, (rho' sigma)^2) with rho' >= rho, and the largest where s = c. So
1 - w + w L(x) is an e-value, and so is the product over the coordinates: it grows where there is
less noise, and loses little to coordinates that are full of signal. Centres and weights learn from
earlier rounds where there is none, and how it goes on. A mixture of alternatives whose weights move
from round to round (a fixed share) is an e-process: by Ville's inequality it ever exceeds 1/alpha
with probability alpha at most, however often one looks.

Sources:
    Anderson, "The integral of a symmetric unimodal function over a symmetric convex set and some
    probability inequalities", 1955; Herbster and Warmuth, "Tracking the best expert", 1998; Ramdas,
    Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023.
"""

import math

import numpy as np
import numpy.typing as npt

from adversaries.statistics.intervals import significance

Floats = npt.NDArray[np.float64]

RATIOS = 2.0 ** (np.arange(16, -17, -1) / 8)
"""Noise over what is claimed that is tested, from the most, 4, to the least, 1/4."""

CLAIMED = int(np.flatnonzero(RATIOS == 1)[0])
"""Where in `RATIOS` the claimed noise is."""

LESS = np.array([0.4, 0.7, 0.9])
"""a: how much less noise each alternative has."""

SHARES = np.array([0.1, 0.4, 1.0])
"""w: the share of the coordinates that an alternative takes for free of signal."""

MOVED = 0.02
"""How much of its weight every alternative gives to all others between two rounds."""

COORDINATES = 2**14
"""More coordinates than this are thinned evenly: they tell enough, and a round takes 0.1 s."""


class NoiseLimit:
    """The largest noise, over what is claimed, that the releases of a training leave possible."""

    def __init__(self) -> None:
        alternatives = 2 * LESS.size * SHARES.size + 1  # the last one bets nothing
        self._weights = np.full((len(RATIOS), alternatives), 1 / alternatives)
        self._log_e = np.zeros(len(RATIOS))
        self._highest = np.zeros(len(RATIOS))
        self._total: Floats | float = 0.0
        self._variance, self._rounds = 0.0, 0

    def observe(self, released: npt.NDArray[np.floating], std: float) -> None:
        """Take in a round.

        Args:
            released: [P], of the same size in every round.
            std: the claimed standard deviation of the noise on every coordinate; a round whose
                noise is claimed to be none says nothing.
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
        """Return how many times the claimed noise there is at most; `math.inf` for no limit.

        Valid after every round, whichever was chosen for looking.

        Args:
            confidence: in (0, 1).

        Raises:
            InputError: an impossible confidence.
        """
        refuted = self._highest >= -math.log(significance(confidence))
        # From the most noise down to the first ratio that stands: so all of them are one test.
        stands = int(np.argmin(refuted)) if not refuted.all() else len(RATIOS)
        return float(RATIOS[stands - 1]) if stands else math.inf

    def _bet(self, x: Floats, std: float) -> None:
        """Multiply the e-processes by the e-values of a round."""
        mean = self._total / max(1, self._rounds)
        for row, ratio in enumerate(RATIOS):
            scale = ratio * std
            free = self._free(mean, ratio) if self._rounds else np.ones(())
            logs = [
                _log_e_values(x / scale, free),
                _log_e_values((x - mean) / scale, np.ones(())),
            ]
            values = np.append(np.concatenate(logs), 0.0)
            largest = values.max()
            won = self._weights[row] * np.exp(values - largest)
            self._log_e[row] += largest + math.log(won.sum())
            self._weights[row] = (1 - MOVED) * won / won.sum() + MOVED / won.size
        self._highest = np.maximum(self._highest, self._log_e)

    def _free(self, mean: Floats | float, ratio: float) -> Floats:
        """Return how likely each coordinate is free of signal [P], by the mean of earlier rounds.

        A guess, on which the power depends and no guarantee.
        """
        mean = np.asarray(mean)
        noise = ratio**2 * self._variance / self._rounds**2
        signal = max(float(np.mean(mean**2)) - noise, 1e-9 * noise)
        narrow, wide = (-0.5 * (mean**2 / v + math.log(v)) for v in (noise, noise + signal))
        return np.exp(-np.logaddexp(0.0, wide - narrow))


def _log_e_values(x: Floats, where: Floats) -> Floats:
    """Return the logs of the products of 1 - w + w L(x) over coordinates, of every alternative.

    x: [P], over the noise that is tested; where: [P], by which every share is multiplied.
    """
    less, share = LESS[:, None], SHARES[:, None, None]
    ratio = np.exp(-0.5 * x**2 * (1 / less**2 - 1)) / less
    # A weight of 1 may leave nothing of a coordinate that is all signal.
    with np.errstate(divide="ignore"):
        logs: Floats = np.log1p(share * where * (ratio - 1)).sum(axis=-1)
    return logs.ravel()
