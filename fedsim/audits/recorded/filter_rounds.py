"""The NVFlare filters of one site, round by round: the noise of its uploads.

SVTPrivacy clips every number of an update to [-g, g], and chooses n of them by the sparse vector
technique. It adds Laplace noise of scale b to these, and sends zeros for the others. An update and
its negative lead to the same choice with the same probability. They therefore differ in n Laplace
variables whose centres lie up to 2 g apart, whose epsilon is a lower bound on that of the filter.

The GaussianPrivacy of NVFlare's research examples adds N(0, (s Q)^2), where Q is a percentile of
the sizes of the update's own numbers. It clips nothing. Nothing bounds the distance of two updates,
nor the ratio of their noises, so that epsilon is infinite.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from adversaries.attacks.noisy_means import std_interval
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.left_over import Layout, believable
from fedsim.audits.recorded.recorded_noise import Asked, Notes, number
from fedsim.federation.transcripts.records import ObservedRound

GRID = 1e-4
"""Grid of losses, over the loss of one number; losses are rounded down, so that the bound holds."""

SCALAR = "a number that is not an array is sent without noise: its epsilon is infinite"
LESS = "the Laplace noise is less than configured: {:.4g} to {:.4g} times its scale (99.99 % conf.)"
TOTAL = (
    "SVTPrivacy(epsilon={:g}) covers only the choice of numbers. Its own ledger adds up to epsilon "
    "{:.4g} in {} rounds (delta 0), noise of the upload included. The measured noise leaves at "
    "least {:.4g} at delta {:g} between an update and its negative"
)

Floats = npt.NDArray[np.float64]
FILTER = "GaussianPrivacy"
NARROW = 0.1
"""Largest relative error of a round's noise that identifies it as this share of the update.

A wide interval that contains 1 rejects nothing: with few numbers, noise of any fixed size fits.
"""

BY = "the class's name, its configuration and the matching noise of every round"

NO_BOUND = (
    "the noise of GaussianPrivacy is a share of the update itself, as measured in all {} rounds "
    "({:.3g} to {:.3g} times that share in all), and nothing is clipped: epsilon is infinite. This "
    f"rests on {BY}"
)

TOO_FEW = (
    "the noise of GaussianPrivacy is {:.3g} to {:.3g} times its share of the update in {} rounds "
    "together, and in some round may be more than {:.0%} off (99.99 %), so that other noise fits "
    "as well; record more of the model's numbers in a round"
)


class SvtRounds:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._rounds: list[tuple[float, float, int, float]] = []
        self._epsilon = 0.0

    def observe(self, observed: ObservedRound) -> None:
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

    def measured(self, options: Asked) -> dict[str, Any] | None:
        """Return noise and epsilon, None without rounds; append findings."""
        if not self._rounds:
            return None
        total = sum(size for _, _, size, _ in self._rounds)
        length = sum(sum_ / scale for sum_, scale, _, _ in self._rounds)
        stated, sure = (
            _interval(length, total, at) for at in (options.confidence, ALARM_CONFIDENCE)
        )
        if sure[1] < 1:
            options.findings.append(Finding("alarm", "", LESS.format(*sure)))
        # Rounds may differ: the bound uses the one that reveals least.
        reach = min(2 * gamma / (scale * sure[1]) for _, scale, _, gamma in self._rounds)
        proven = laplace_epsilon(reach, total, options.delta)
        text = TOTAL.format(
            number(options.mechanism, "svt_epsilon") or math.nan,
            self._epsilon,
            len(self._rounds),
            proven,
            options.delta,
        )
        options.findings.append(Finding("caution", "", text))
        return {
            "filter": "SVTPrivacy",
            "rounds": len(self._rounds),
            "uploads": total,
            "scale_over_configured": {
                "point": length / total,
                "low": stated[0],
                "high": stated[1],
                "confidence": options.confidence,
            },
            "ledger_epsilon": self._epsilon,
            "proven": {"confidence": ALARM_CONFIDENCE, "epsilon": proven},
        }


def laplace_epsilon(reach: float, count: int, delta: float) -> float:
    """Return a lower bound on the epsilon of `count` Laplace variables, each moved by `reach`."""
    # The import takes half a second, which other audits need not wait for.
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
    """Return an exact interval of b from the summed sizes S of Laplace noise: 2 S/b is chi^2."""
    tail = (1 - confidence) / 2
    low = 2 * length / float(chi2.isf(tail, 2 * count))
    return low, 2 * length / float(chi2.ppf(tail, 2 * count))


class ShareRounds:
    def __init__(self) -> None:
        self._rounds: list[tuple[float, int]] = []
        self._fits = True

    def observe(self, observed: ObservedRound) -> None:
        scaled = _scaled(observed)
        self._fits = self._fits and scaled is not None
        if scaled is not None:
            self._rounds.append((float(scaled @ scaled), scaled.size))

    def measured(self) -> tuple[str, dict[str, Any]] | None:
        """Return meaning and measurement; None unless every round may have such noise.

        The measurement has "identified", with epsilon, only if other noise would not fit.
        """
        if not self._rounds or not self._fits:
            return None
        confidence = 1 - (1 - ALARM_CONFIDENCE) / len(self._rounds)
        intervals = [std_interval(energy, size, confidence) for energy, size in self._rounds]
        if not all(one.low <= 1 <= one.high for one in intervals):
            return None
        energy, size = (sum(part) for part in zip(*self._rounds, strict=True))
        sure = std_interval(energy, int(size), ALARM_CONFIDENCE)
        measurement: dict[str, Any] = {
            "filter": FILTER,
            "rounds": len(intervals),
            "scale_over_configured": {
                "point": math.sqrt(energy / size),
                "low": sure.low,
                "high": sure.high,
                "confidence": ALARM_CONFIDENCE,
            },
        }
        if not all(one.low >= 1 - NARROW and one.high <= 1 + NARROW for one in intervals):
            return TOO_FEW.format(sure.low, sure.high, len(intervals), NARROW), measurement
        measurement["identified"] = {"epsilon": math.inf, "by": BY}
        return NO_BOUND.format(len(intervals), sure.low, sure.high), measurement


def _scaled(observed: ObservedRound) -> Floats | None:
    share, percentile = (
        number(observed.mechanism, f"gaussian_{name}") for name in ("sigma0", "max_percentile")
    )
    layout = Layout.of(observed.unprotected or {})
    update, sent = (layout.vector(arrays) for arrays in (observed.unprotected or {}, observed.own))
    if not share or percentile is None or not 0 <= percentile <= 100:
        return None
    if update is None or sent is None or not update.any() or not believable(update, sent):
        return None
    most = float(np.percentile(np.abs(update[update != 0]), percentile))
    with np.errstate(over="ignore", divide="ignore"):  # a share of numbers near 0
        scaled = (sent - update) / (share * most)
    return scaled if believable(scaled) else None
