"""Quality of the trials' final models, by class."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adversaries.statistics.intervals import mean_interval
from fedsim.audits.results.quality import OfClass, Proportion, Quality, SureRecords

Floats = npt.NDArray[np.float64]


def over_trials(
    confusions: Floats, calibrations: Floats, names: Sequence[str], confidence: float
) -> Quality:
    """Return the quality of the final models of E trials on the same records.

    The intervals are over trainings like these, on these records.

    confusions: [E, c, c], a row for each label.
    calibrations: [E, b, 3], from `fedsim.learning.training.quality.calibrations`.
    names: names of the c classes.
    confidence: confidence of every interval, in (0, 1).
    """
    of_class, answers = confusions.sum(2), confusions.sum(1)
    right = confusions.diagonal(axis1=1, axis2=2)
    records, sure, correct = np.moveaxis(calibrations, 2, 0)

    return Quality(
        confidence,
        [
            OfClass(
                name,
                int(of_class[0, label]),
                proportion(right[:, label], of_class[:, label], confidence),
                proportion(right[:, label], answers[:, label], confidence),
            )
            for label, name in enumerate(names)
        ],
        confusions.mean(0).tolist(),
        [
            SureRecords(
                float(records[:, place].mean()), float(sure[:, place].sum() / total), accuracy
            )
            for place, total in enumerate(records.sum(0))
            if (accuracy := proportion(correct[:, place], records[:, place], confidence))
        ],
    )


def proportion(counted: Floats, of: Floats, confidence: float) -> Proportion | None:
    """Return the ratio of two means over trials, with Student's interval of its linearisation.

    None where the denominator is 0. Source: Cochran, "Sampling techniques" (1977), section 2.11,
    the variance of a ratio of means.

    counted, of: [E].
    confidence: in (0, 1).
    """
    if not of.sum():
        return None
    value = float(counted.sum() / of.sum())
    apart = (counted - value * of) / of.mean()
    if len(of) < 2 or np.ptp(apart) < 1e-12:  # values that did not vary do not show their variance
        return Proportion(value, None)
    interval = mean_interval(apart, confidence)
    return Proportion(value, (max(0.0, value + interval.low), min(1.0, value + interval.high)))
