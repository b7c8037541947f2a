"""The verdict of a run: what was measured at every vantage, beside what theory allows there."""

from dataclasses import dataclass
from typing import Literal

from fedsim.audits.results.numbers import Ends, Real
from fedsim.audits.results.verdict_states import State

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
