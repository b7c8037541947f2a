"""Whether what is left over of the aggregates is what was declared: noise on a mean, as it is."""

from collections.abc import Sequence

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.recorded import noise_level

MISFIT = (
    "what was declared does not fit: what is left over moves with the updates, so that the "
    "aggregate is no mean of updates clipped to this norm; neither noise nor beliefs are measured. "
    "Declare nothing where clipping is adaptive or of single arrays, or an optimiser follows"
)

RATE = (
    "the noise is less than declared, and the mean may be less by the same factor: a server "
    "learning rate below 1, or an optimiser, which cost no privacy, leave over just this; neither "
    "noise nor beliefs are measured. Record a run with a server learning rate of 1"
)


def misfit(releases: Sequence[Release]) -> str:
    """Return why noise and beliefs cannot be told from what is left over, "" if they can."""
    # Half of what an alarm may miss for the size of the rate, half for what it then leaves over.
    doubt = (1 - ALARM_CONFIDENCE) / 2
    less = noise_level.measured(releases, ALARM_CONFIDENCE).verdict == "less"
    if less and noisy_means.scaled_fit(releases, 1 - doubt) >= doubt:
        return RATE
    return MISFIT if noisy_means.fit(releases) < 1 - ALARM_CONFIDENCE else ""
