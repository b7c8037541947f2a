"""The verdict of a run: what was measured at every vantage, beside what theory allows there."""

from dataclasses import dataclass
from typing import Literal

from fedsim.audits.results.numbers import Ends, Real

State = Literal[
    "above",
    "no-limit",
    "within-chance",
    "not-contradicted",
    "attack-below",
    "below",
    "untested",
]
"""How a measurement stands to theory, as report.json has it.

above: a check contradicts theory, as surely as an alarm must be.
no-limit: theory sets the advantage no limit below 1.
within-chance: the whole interval lies above the limit, but no check raised an alarm.
not-contradicted: the interval holds the limit, so that the trials cannot tell.
attack-below: the whole interval lies below the limit, but a better attack may achieve more.
below: the whole interval lies below the limit, and no adversary there does better.
untested: nothing was measured that has an interval; theory alone speaks.
"""


@dataclass(frozen=True)
class StateWords:
    """What is said of a state.

    Attributes:
        text: a few words, without a full stop.
        kind: "good", "open" where it cannot be told, "caution" or "alarm".
        means: what it says, without a full stop.
        advice: what a reader does about it.
    """

    text: str
    kind: Literal["good", "open", "caution", "alarm"]
    means: str
    advice: str


BELOW = StateWords(
    "Below the limit",
    "good",
    "the whole interval lies below what theory allows, and no adversary there does better",
    "rely on the limit, not on the measurement: it is of one target",
)
ATTACK_BELOW = StateWords(
    "Attack below the limit",
    "open",
    "the whole interval lies below what theory allows; a better attack may achieve more",
    "rely on the limit, not on this attack",
)
NOT_CONTRADICTED = StateWords(
    "Not contradicted",
    "open",
    "what was measured agrees with what theory allows, and does not prove it",
    "read which deviation the audit would have seen; more trials would see less",
)
NOT_MEASURED = StateWords(
    "Not measured",
    "open",
    "theory alone speaks",
    "measure it, if the measurement matters: with audit.vantages = all, canaries, or an auditor",
)
CANNOT_TELL = StateWords(
    "Cannot tell",
    "open",
    "there is a measurement, and no limit or interval to hold it against",
    "read the reasons: they name what would tell",
)
NO_PROTECTION = StateWords(
    "No protection",
    "caution",
    "no noise hides anybody from whoever looks there",
    "decide whether whoever looks there is trusted, or change the setting",
)
NO_LIMIT = StateWords(
    "No limit at this budget",
    "caution",
    "the budget is so large that theory allows certainty",
    "lower the budget",
)
NO_GUARANTEE = StateWords(
    "No guarantee",
    "caution",
    "something that theory needs is missing, such as clipping",
    "read the reason, and change the setting",
)
WITHIN_CHANCE = StateWords(
    "Above the limit, within chance",
    "caution",
    "the whole interval lies above the limit, but not as surely as an alarm must be",
    "repeat it with more trials and another seed",
)
ABOVE = StateWords(
    "Above the limit",
    "alarm",
    "an alarm, at 99.99 %: the whole interval lies above the limit",
    "do not rely on ε; the warning names the likely cause",
)
CONTRADICTS = StateWords(
    "Contradicts theory",
    "alarm",
    "an alarm, at 99.99 %: something else than the advantage contradicts what is claimed",
    "do not rely on ε; the warning names the likely cause",
)

TABLE = (
    *(BELOW, ATTACK_BELOW, NOT_CONTRADICTED, NOT_MEASURED, CANNOT_TELL),
    *(NO_PROTECTION, NO_LIMIT, NO_GUARANTEE, WITHIN_CHANCE, ABOVE, CONTRADICTS),
)
"""Every state that a page can show, in the order of the documentation."""

WORDS: dict[State, StateWords] = {
    "within-chance": WITHIN_CHANCE,
    "not-contradicted": NOT_CONTRADICTED,
    "attack-below": ATTACK_BELOW,
    "below": BELOW,
}
"""Of the states whose words depend on nothing else."""


def standing(interval: Ends | None, limit: float, *, exact: bool, alarmed: bool = False) -> State:
    """Return how the interval of an advantage stands to its limit.

    Args:
        interval: low and high end; None where nothing has an interval.
        limit: that no adversary exceeds by theory; 1 for no limit.
        exact: whether the adversary decides by the exact posterior, so that none does better.
        alarmed: whether a check contradicts theory, as surely as an alarm must be.
    """
    if alarmed:
        return "above"
    if limit >= 1:
        return "no-limit"
    if interval is None:
        return "untested"
    low, high = interval
    if low > limit:
        return "within-chance"
    if high >= limit:
        return "not-contradicted"
    return "below" if exact else "attack-below"


def words_of(
    state: State,
    *,
    over: bool = False,
    measured: bool = False,
    unlimited: StateWords = NO_PROTECTION,
) -> StateWords:
    """Return what is said of a state.

    Args:
        over: of "above", whether the whole interval lies above the limit.
        measured: of "untested", whether there is a measurement without an interval.
        unlimited: of "no-limit", why there is none.
    """
    if state == "above":
        return ABOVE if over else CONTRADICTS
    if state == "no-limit":
        return unlimited
    if state == "untested":
        return CANNOT_TELL if measured else NOT_MEASURED
    return WORDS[state]


Basis = Literal["measured", "theory"]

Answer = Literal["meets", "misses", "cannot-tell"]


@dataclass(frozen=True)
class MeasuredThere:
    """What the trials showed at a vantage."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]; None of a single training."""
    interval: Ends | None
    """Of the advantage; None where all trials are of one world."""
    confidence: Real
    """In (0, 1), of the interval and of the lower bound."""
    trials: int
    """How many there were."""
    chance: Real | None
    """The advantage that somebody who tosses a coin stays below in as many trials, with the same
    confidence; None where there is no advantage."""
    belief: Real
    """The largest belief in D of any trial on D, at least even odds."""
    passed: Real | None
    """The share of trials on D whose belief passed rho_beta; None of a single training."""
    passed_interval: Ends | None
    """Of `passed`, at the same confidence."""
    passed_limit: Real | None
    """The share of trials on D whose belief passed the organisation's limit; None without one."""
    epsilon: Real
    """At least this is proven; 0 for nothing."""
    epsilon_by: str
    """The estimator that proved it, chosen in advance: "one_run" of canaries, else its name in
    `empirical.lower_bounds`."""
    exact_posterior: bool
    """Whether the adversary decides by the exact posterior, so that none does better."""


@dataclass(frozen=True)
class Towards:
    """What theory allows at one vantage."""

    vantage: str
    """Who looks."""
    epsilon: Real
    """Tight, at the delta of the report."""
    rho_beta: Real
    """Of this epsilon."""
    rho_alpha: Real
    """The advantage that no adversary exceeds."""


@dataclass(frozen=True)
class AllowedThere:
    """What theory allows at a vantage, of one training."""

    advantage: Real
    """What no adversary exceeds, in [0, 1]: rho_alpha, or the bound of PAC privacy; 1 for no
    limit."""
    kind: Literal["rho-alpha", "pac", "none"]
    """Which of them it is."""
    rho_alpha: Real
    """Of differential privacy, in [0, 1]."""
    rho_beta: Real
    """The belief that is passed only rarely."""
    passed: Real
    """In which share of the trials on D any pair passes rho_beta at most; 1 for no limit."""
    epsilon: Real
    """Tight; infinite where there is no noise that hides the target."""
    delta: Real
    """At which."""
    worst: Towards
    """The same of the client who is worst off; the others are of the target's. Clients differ where
    not all take part in every round and who does is known."""


@dataclass(frozen=True)
class OwnLimit:
    """How a vantage stands to a limit of the organisation's own."""

    of: Literal["advantage", "belief"]
    """What is limited."""
    limit: Real
    """As configured in `report`."""
    answer: Answer
    """For theory: of every pair of neighbours. For a measurement: of this target alone."""
    by: Basis
    """What the answer rests on; of one that is not there, what was asked last."""
    trials: int | None
    """How many would tell with 80 %, if what was measured stays as it is; None where it is told, or
    where no number would."""


@dataclass(frozen=True)
class VantageVerdict:
    """One vantage."""

    vantage: str
    """"server", "participant" or "released-model"."""
    state: State
    """How what was measured stands to theory."""
    basis: Basis
    """Whether anything was measured."""
    measured: MeasuredThere | None
    """None where nothing was."""
    allowed: AllowedThere
    """By theory."""
    limits: list[OwnLimit]
    """One for each limit that is configured."""
    seen_below: Real | None = None
    """The audit would have seen, with 95 %, noise below this share of what is claimed; 0 where no
    shortfall can be named; None where nothing was measured, or nothing is claimed."""


@dataclass(frozen=True)
class Change:
    """What theory would allow if one setting were another."""

    key: str
    """Of the configuration, or "" for the run as it is."""
    value: float | int | str | None
    """That it would have; None for the run as it is."""
    was: float | int | str | None
    """That it has."""
    towards: list[Towards]
    """By vantage, in the order of the configuration's values."""
