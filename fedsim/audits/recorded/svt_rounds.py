"""NVFlare's SVTPrivacy filter, round by round: how much Laplace noise its uploads really had.

It clips every number of an update to [-g, g], chooses n of them by the sparse vector technique,
adds Laplace noise of scale b to these and sends zeros for all others. Of an update and its negative
the same numbers are chosen with the same chances, so that the two differ in n Laplace variables
whose centres lie up to 2 g apart: their epsilon is a lower bound on that of the filter.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.finding import Finding
from fedsim.audits.recorded.recorded_noise import number
from fedsim.audits.recorded.transcript_findings import Asked, Notes
from fedsim.federation.transcripts.records import ObservedRound

GRID = 1e-4
"""Of losses, as a share of one number's: rounded down, so that the bound holds."""

SCALAR = "a number that is no array is sent without noise: its epsilon is infinite"
LESS = "the Laplace noise is less than configured: {:.4g} to {:.4g} times its scale (99.99 % conf.)"
TOTAL = (
    "SVTPrivacy(epsilon={:g}) is of the choice of numbers alone. Its own ledger comes to epsilon "
    "{:.4g} in {} rounds (delta 0), noise of the upload included; the noise that was measured "
    "leaves at least {:.4g} at delta {:g} between an update and its negative"
)


class SvtRounds:
    """What the rounds of one site's SVTPrivacy filter give."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._rounds: list[tuple[float, float, int, float]] = []
        self._epsilon = 0.0

    def observe(self, observed: ObservedRound) -> None:
        """Take in a round."""
        mechanism = observed.mechanism
        gamma, steps = number(mechanism, "svt_gamma"), number(mechanism, "filter_steps") or 1.0
        release = number(mechanism, "svt_epsilon_release")
        uploads = number(mechanism, "svt_n_upload")
        before = observed.unprotected or {}
        if not gamma or not release or not uploads or set(before) != set(observed.own):
            return
        if any(array.ndim == 0 for array in before.values()):
            self._notes.add("alarm", SCALAR, observed.round)
        noise = [np.zeros(0)]
        for name, array in before.items():
            if array.ndim:
                sent = observed.own[name].ravel().astype(np.float64) / steps
                clipped = np.clip(array.ravel().astype(np.float64) / steps, -gamma, gamma)
                noise.append((sent - clipped)[sent != 0])
        left: npt.NDArray[np.float64] = np.concatenate(noise)
        if not left.size or not np.isfinite(left).all():
            return
        scale = 2 * gamma * uploads / release
        self._rounds.append((float(np.abs(left).sum()), scale, left.size, gamma))
        self._epsilon += number(mechanism, "svt_epsilon_total") or math.inf

    def measured(self, asked: Asked) -> dict[str, Any] | None:
        """Return noise and epsilon, None without rounds; append what is wrong."""
        if not self._rounds:
            return None
        total = sum(size for _, _, size, _ in self._rounds)
        length = sum(sum_ / scale for sum_, scale, _, _ in self._rounds)
        shown, sure = (_interval(length, total, at) for at in (asked.confidence, ALARM_CONFIDENCE))
        if sure[1] < 1:
            asked.findings.append(Finding("alarm", "", LESS.format(*sure)))
        # Of rounds that differ, the one that tells least.
        reach = min(2 * gamma / (scale * sure[1]) for _, scale, _, gamma in self._rounds)
        proven = laplace_epsilon(reach, total, asked.delta)
        text = TOTAL.format(
            number(asked.mechanism, "svt_epsilon") or math.nan,
            self._epsilon,
            len(self._rounds),
            proven,
            asked.delta,
        )
        asked.findings.append(Finding("caution", "", text))
        return {
            "filter": "SVTPrivacy",
            "rounds": len(self._rounds),
            "uploads": total,
            "scale_over_configured": {
                "point": length / total,
                "low": shown[0],
                "high": shown[1],
                "confidence": asked.confidence,
            },
            "ledger_epsilon": self._epsilon,
            "proven": {"confidence": ALARM_CONFIDENCE, "epsilon": proven},
        }


def laplace_epsilon(reach: float, count: int, delta: float) -> float:
    """Return a lower bound on the epsilon of so many Laplace variables, each moved by its reach.

    Args:
        delta: in (0, 1).
    """
    # Half a second, which others need not wait for.
    from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415

    losses = privacy_loss_distribution.from_laplace_mechanism(
        1.0,
        sensitivity=reach,
        pessimistic_estimate=False,
        value_discretization_interval=reach * max(GRID, 1e-7 * count),
        use_connect_dots=False,
    )
    return float(losses.self_compose(count).get_epsilon_for_delta(delta))


def _interval(length: float, count: int, confidence: float) -> tuple[float, float]:
    """Return an exact interval of b from the summed sizes of Laplace variables: 2 S/b is chi^2."""
    tail = (1 - confidence) / 2
    low = 2 * length / float(chi2.isf(tail, 2 * count))
    return low, 2 * length / float(chi2.ppf(tail, 2 * count))
