"""The measured trade-off curve at every vantage, against the curve of theory."""

from collections.abc import Callable, Mapping

import numpy as np

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from adversaries.statistics.trade_off_bands import trade_off_band
from adversaries.statistics.trials import two_sided
from fedsim.audits.results.measured import TradeOff
from fedsim.audits.results.verdicts import Checks
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy import risks
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust import Vantage

SHOWN = 65
"""Number of thresholds, and of rates of theory, in a report."""

CHECKED = 257
"""Number of thresholds that a check compares."""


def report(
    views: Mapping[Vantage, Arrays], towards: Callable[[Vantage], Mechanism], confidence: float
) -> dict[str, TradeOff]:
    """Return the measured curves of `report.json`, by vantage.

    Args:
        views: the arrays of each measured vantage, from `audited_run.seen_from`.
        towards: returns the mechanism that a vantage faces.
        confidence: of each band, in (0, 1).
    """
    return {
        vantage.value: _at(seen, towards(vantage), confidence)
        for vantage, seen in views.items()
        if seen and two_sided(seen["worlds"])
    }


def _at(seen: Arrays, mechanism: Mechanism, confidence: float) -> TradeOff:
    worlds, final = seen["worlds"], seen["log_odds"][:, -1]
    band = trade_off_band(worlds, final, confidence, SHOWN)
    sure = trade_off_band(worlds, final, ALARM_CONFIDENCE, CHECKED)
    # Theory allows most at the upper limit of FPR: TPR must not surely be above even that.
    above = sure.true_low - risks.true_positives(mechanism, sure.false_high)
    rates = np.linspace(0, 1, SHOWN)
    return TradeOff(
        confidence=confidence,
        **{name: column.tolist() for name, column in vars(band).items()},
        rates=rates.tolist(),
        allowed=risks.true_positives(mechanism, rates).tolist(),
        surely_above=float(above.max()),
    )


def checks(curves: Mapping[str, TradeOff], primary: Vantage) -> Checks:
    """Return the check of each vantage that the band does not cross the curve of theory."""
    made = {}
    for vantage, curve in curves.items():
        alarm = ""
        if curve.surely_above > 0:
            alarm = (
                f"The measured trade-off curve at the vantage {vantage} crosses the curve of "
                f"theory: at some false-positive rate, the true-positive rate is at least "
                f"{curve.surely_above:.2g} above what any attack may reach, with confidence "
                f"{ALARM_CONFIDENCE:g}. The noise is not the noise that was accounted for, or a "
                "clipped gradient exceeds the sensitivity."
            )
        own = vantage == primary.value
        made["curve" if own else f"curve_{vantage}"] = alarm
    return made
