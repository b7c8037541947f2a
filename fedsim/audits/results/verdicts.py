"""The verdict of a run at each vantage: the measurement beside what theory allows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from fedsim.audits.results.numbers import Ends, Real


@dataclass(frozen=True)
class AlarmCheck:
    """A check that was made, with its alarm if it raised one.

    Attributes:
        name: name of the alarm that it may raise.
        alarm: contradiction of theory, in whole sentences with the likely cause; None without one.
            An honest run raises it with probability at most 1 - ALARM_CONFIDENCE.
        by_chance: False where the checked number is not a statistic, so that an honest run never
            raises the alarm.
    """

    name: str
    alarm: str | None
    by_chance: bool = True


def alarms(checks: Iterable[AlarmCheck]) -> dict[str, str]:
    return {check.name: check.alarm for check in checks if check.alarm}


def chance_alarms(checks: Iterable[AlarmCheck]) -> int:
    """Return the number of alarms that chance could raise: one for each check of a statistic.

    This number times 1 - ALARM_CONFIDENCE bounds how often a report accuses an honest mechanism.
    """
    return sum(check.by_chance for check in checks)


State = Literal[
    "above", "no-limit", "within-chance", "not-contradicted", "attack-below", "below", "untested"
]
"""State of a measurement against theory, as report.json has it.

above: a check contradicts theory, with the confidence of an alarm.
no-limit: theory sets the advantage no limit below 1.
within-chance: the whole interval lies above the limit, but no check raised an alarm.
not-contradicted: the interval contains the limit, so that the trials cannot tell.
attack-below: the whole interval lies below the limit, but a better attack may achieve more.
below: the whole interval lies below the limit, and no adversary at this vantage does better.
untested: no measurement has an interval; there is theory alone.
"""


@dataclass(frozen=True)
class StateWords:
    """How a page words a state.

    Attributes:
        text: a few words, without a full stop.
        kind: "good", "open" where the audit cannot tell, "caution" or "alarm".
        means: meaning of the state, without a full stop.
        advice: what the reader should do, without a full stop.
    """

    text: str
    kind: Literal["good", "open", "caution", "alarm"]
    means: str
    advice: str


BELOW = StateWords(
    "Below the limit",
    "good",
    "the whole interval lies below the limit of theory; this adversary is the best possible at "
    "this vantage",
    "rely on the limit; the measurement is of one target only",
)
ATTACK_BELOW = StateWords(
    "Attack below the limit",
    "open",
    "the whole interval lies below the limit of theory; a better attack may achieve more",
    "rely on the limit, not on this attack",
)
NOT_CONTRADICTED = StateWords(
    "Not contradicted",
    "open",
    "the measurement agrees with theory, but does not prove it",
    "read how much missing noise the audit would detect; a longer audit detects smaller amounts",
)
TOO_FEW = StateWords(
    "Too few trials",
    "open",
    "the interval is so wide that it says little about how often the adversary is right",
    "add trials to the run",
)
NOT_MEASURED = StateWords(
    "Not measured",
    "open",
    "the limit comes from theory alone",
    'to measure it, set audit.vantages = "all", rehearse the training, plant canaries, or add an '
    "auditor",
)
CANNOT_TELL = StateWords(
    "Cannot tell",
    "open",
    "there is a measurement, but no limit or interval to compare it with",
    "read the reasons; they say what is missing",
)
NO_PROTECTION = StateWords(
    "No protection",
    "caution",
    "no noise protects the records from this observer",
    "decide whether you trust this observer; if not, change federation.trust",
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
    "the interval lies above the limit, but not far enough for an alarm, which needs 99.99 % "
    "confidence",
    "repeat it with more trials and another seed",
)
CONTRADICTED = StateWords(
    "Contradicted",
    "alarm",
    "an alarm, with 99.99 % confidence: a measurement contradicts theory, the claim, or what was "
    "declared",
    "do not rely on ε; the warning names the likely cause",
)

VAGUE = 0.5
"""Length of an interval of the share of right answers that says little."""

TABLE = (
    *(BELOW, ATTACK_BELOW, NOT_CONTRADICTED, TOO_FEW, NOT_MEASURED, CANNOT_TELL),
    *(NO_PROTECTION, NO_LIMIT, NO_GUARANTEE, WITHIN_CHANCE, CONTRADICTED),
)
"""Every state that a page can show, in the order of the documentation."""

WORDS: dict[State, StateWords] = {
    "above": CONTRADICTED,
    "within-chance": WITHIN_CHANCE,
    "not-contradicted": NOT_CONTRADICTED,
    "attack-below": ATTACK_BELOW,
    "below": BELOW,
}
"""Words of the states that depend on nothing else."""


def standing(interval: Ends | None, limit: float, *, exact: bool, alarmed: bool = False) -> State:
    """Return the state of an advantage's interval against its limit.

    Args:
        interval: low and high end; None where no measurement has an interval.
        limit: largest advantage that theory allows; 1 for no limit.
        exact: whether the adversary decides by the exact posterior, so that none does better.
        alarmed: whether a check contradicts theory, with the confidence of an alarm.
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
    interval: Ends | None = None,
    measured: bool = False,
    unlimited: StateWords = NO_PROTECTION,
) -> StateWords:
    """Return the words of a state.

    Args:
        interval: interval of the advantage. If it is wide, agreement with the limit says little.
        measured: for "untested", whether there is a measurement without an interval.
        unlimited: for "no-limit", the words that say why there is no limit.
    """
    if state == "no-limit":
        return unlimited
    if state == "untested":
        return CANNOT_TELL if measured else NOT_MEASURED
    # An advantage is twice the share of right answers, less 1.
    if state == "not-contradicted" and interval and (interval[1] - interval[0]) / 2 >= VAGUE:
        return TOO_FEW
    return WORDS[state]


Basis = Literal["measured", "theory"]
Answer = Literal["meets", "misses", "cannot-tell"]


@dataclass(frozen=True)
class MeasuredThere:
    """Measurements of the trials at a vantage."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]; None for a single training."""
    interval: Ends | None
    """Interval of the advantage; None where all trials are of one world."""
    confidence: Real
    """Confidence of the interval and of the lower bound, in (0, 1)."""
    trials: int
    """Number of trials."""
    chance: Real | None
    """Advantage that a coin toss stays below in as many trials, with the same confidence; None
    where there is no advantage."""
    belief: Real
    """Largest belief in D of any trial on D, at least even odds."""
    passed: Real | None
    """Share of trials on D whose belief passed rho_beta; None for a single training."""
    passed_interval: Ends | None
    """Interval of `passed`, at the same confidence."""
    passed_limit: Real | None
    """Share of trials on D whose belief passed the organisation's limit; None without a limit."""
    epsilon: Real
    """Lower bound on epsilon; 0 proves nothing."""
    epsilon_by: str
    """Estimator of the lower bound, chosen in advance: "one_run" for canaries, else its name in
    `empirical.lower_bounds`."""
    exact_posterior: bool
    """Whether the adversary decides by the exact posterior, so that none does better."""


@dataclass(frozen=True)
class Towards:
    """What theory allows at one vantage."""

    vantage: str
    """Name of the vantage."""
    epsilon: Real
    """Tight epsilon, at the delta of the report."""
    rho_beta: Real
    """Belief bound of this epsilon."""
    rho_alpha: Real
    """Advantage that no adversary exceeds."""
    risks: list[tuple[Real, Real]] = field(default_factory=list)
    """Success of an attack without the release, and its largest success with it; only of the
    worst-off client."""


@dataclass(frozen=True)
class AllowedThere:
    """What theory allows at a vantage, for one training."""

    advantage: Real
    """Advantage that no adversary exceeds, in [0, 1]: rho_alpha; 1 for
    no limit."""
    kind: Literal["rho-alpha", "none"]
    """Which of the bounds `advantage` is."""
    rho_alpha: Real
    """Bound of differential privacy, in [0, 1]."""
    rho_beta: Real
    """Belief that is passed only rarely."""
    passed: Real
    """Upper bound on the share of trials on D in which any pair passes rho_beta; 1 for no limit."""
    epsilon: Real
    """Tight epsilon; infinite where no noise hides the target."""
    delta: Real
    """Delta of epsilon."""
    worst: Towards
    """Bounds of the worst-off client; the others are of the target's client. Clients differ where
    some miss rounds and it is public which ones."""


@dataclass(frozen=True)
class OwnLimit:
    """A vantage against a limit that the organisation set."""

    of: Literal["advantage", "belief"]
    """Quantity that is limited."""
    limit: Real
    """The limit, as configured in `report`."""
    answer: Answer
    """By theory it holds for every pair of neighbours; by measurement for this target alone."""
    by: Basis
    """Basis of the answer; for "cannot-tell", the last one that was tried."""
    trials: int | None
    """Trials that would tell with probability 80 %, if the measurement stays the same; None where
    the answer is already known, or where no number would tell."""


@dataclass(frozen=True)
class VantageVerdict:
    """The verdict at one vantage."""

    vantage: str
    """"server", "participant" or "released-model"."""
    state: State
    """State of the measurement against theory."""
    basis: Basis
    """Whether anything was measured."""
    measured: MeasuredThere | None
    """None where nothing was measured."""
    allowed: AllowedThere
    """What theory allows."""
    limits: list[OwnLimit]
    """One for each limit that is configured."""
    seen_below: Real | None = None
    """Share of the claimed noise below which the audit would have raised an alarm with probability
    95 %. 0: it could detect no shortfall. None: nothing was measured, or nothing is claimed."""
