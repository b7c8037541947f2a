"""The verdict of a run at each vantage: the measurement beside what theory allows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedsim.audits.results.numbers import Ends

Checks = Mapping[str, str]
"""The checks that were made, by name, each with its alarm; "" without one.

An alarm says in whole sentences what contradicts theory, with the likely cause. An honest run
raises that of a statistic with probability at most 1 - ALARM_CONFIDENCE.
"""


def alarms(checks: Checks) -> dict[str, str]:
    """Return the alarms that checks raised."""
    return {name: alarm for name, alarm in checks.items() if alarm}


State = Literal[
    "contradicted",
    "no-limit",
    "above-by-chance",
    "agrees",
    "attack-below",
    "below",
    "not-measured",
    "cannot-tell",
]
"""State of a measurement against theory, as report.json has it; `WORDS` says what each means."""


@dataclass(frozen=True)
class StateWords:
    """How every renderer words a state.

    Attributes:
        kind: "good", "open" where the audit cannot tell, "caution" or "alarm".
        advice: what the reader should do, a sentence; "" where there is nothing to decide.
    """

    text: str
    kind: Literal["good", "open", "caution", "alarm"]
    means: str
    advice: str = ""


BELOW = StateWords(
    "Below the limit",
    "good",
    "the whole interval lies below the limit of theory; this adversary is the best possible at "
    "this vantage",
)
ATTACK_BELOW = StateWords(
    "Attack below the limit",
    "open",
    "the whole interval lies below the limit of theory; a better attack may achieve more",
)
AGREES = StateWords(
    "Agrees with theory", "open", "the measurement agrees with theory, but does not prove it"
)
TOO_FEW = StateWords(
    "Too few trials",
    "open",
    "the interval contains both guessing and the limit",
    "Run again with more trials.",
)
NOT_MEASURED = StateWords("Limited by theory", "open", "the limit comes from theory alone")
CANNOT_TELL = StateWords(
    "Cannot tell",
    "open",
    "there is a measurement, but no limit or interval to compare it with",
    "Read the reasons; they say what is missing.",
)
MUST_BE_TRUSTED = StateWords(
    "Must be trusted",
    "caution",
    "the server sees sums without noise",
    "Do you trust the server? If not: federation.trust=distributed or local.",
)
NO_PROTECTION = StateWords(
    "Not protected",
    "caution",
    "no noise protects the records from this observer",
    "Do you trust this observer? If not, add noise.",
)
NO_LIMIT = StateWords(
    "No limit at this budget",
    "caution",
    "the budget is so large that theory allows certainty",
    "Lower the budget.",
)
NO_GUARANTEE = StateWords(
    "No guarantee",
    "caution",
    "something that theory needs is missing, such as clipping or secret noise",
    "Do not release the model before you have changed what is missing.",
)
WITHIN_CHANCE = StateWords(
    "Above the limit, within chance",
    "caution",
    "the interval lies above the limit, but not far enough for an alarm, which needs 99.99 % "
    "confidence",
    "Measure again: with more trials and another seed, or over more rounds.",
)
CONTRADICTED = StateWords(
    "Contradicted",
    "alarm",
    "an alarm, with 99.99 % confidence: a measurement contradicts theory, the claim, or what was "
    "declared",
    "Do not rely on ε. Find the cause, and check what was already shared.",
)

TABLE = (
    *(BELOW, ATTACK_BELOW, AGREES, TOO_FEW, NOT_MEASURED, CANNOT_TELL),
    *(MUST_BE_TRUSTED, NO_PROTECTION, NO_LIMIT, NO_GUARANTEE),
    *(WITHIN_CHANCE, CONTRADICTED),
)
"""Every state that a page can show, in the order of the documentation."""

WORDS: dict[State, StateWords] = {
    "contradicted": CONTRADICTED,
    "above-by-chance": WITHIN_CHANCE,
    "agrees": AGREES,
    "attack-below": ATTACK_BELOW,
    "below": BELOW,
    "cannot-tell": CANNOT_TELL,
}
"""Words of the states that depend on nothing else."""


def standing(
    interval: Ends | None,
    limit: float | None,
    *,
    exact: bool,
    alarmed: bool = False,
    noise: Ends | None = None,
) -> State:
    """Return the state of an advantage's interval against its limit.

    Args:
        interval: low and high end; None where no measurement has an interval.
        limit: largest advantage that is allowed; 1 for no limit, None where it is unknown.
        exact: whether the adversary decides by the exact posterior, so that none does better.
        noise: interval of the measured noise over the claimed noise; None where unmeasured. It
            decides where the advantage has no interval.
    """
    if alarmed or limit is None:
        return "contradicted" if alarmed else "cannot-tell"
    if limit >= 1:
        return "no-limit"
    if interval is None and noise is None:
        return "not-measured"
    # Less noise than claimed is what more advantage than allowed is.
    low, high = interval or (math.inf if noise and noise[1] < 1 else limit, limit)
    if low > limit:
        return "above-by-chance"
    if high >= limit:
        return "agrees"
    return "below" if exact else "attack-below"


def words_of(
    state: State,
    *,
    interval: Ends | None = None,
    measured: bool = False,
    unlimited: StateWords = NO_PROTECTION,
) -> StateWords:
    """Return the words of a state.

    Args:
        interval: interval of the advantage. If it contains guessing too, the trials cannot tell.
        measured: for "not-measured", whether there is a measurement without an interval.
        unlimited: for "no-limit", the words that say why there is no limit.
    """
    if state == "no-limit":
        return unlimited
    if state == "not-measured":
        return CANNOT_TELL if measured else NOT_MEASURED
    if state == "agrees" and interval and interval[0] <= 0:
        return TOO_FEW
    return WORDS[state]
