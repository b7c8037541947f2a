"""Which setting to take: the limits, the settings that are tried, and the rule that picks one.

Theory says which settings meet the limit on the adversary, exactly; the trials say how accurate
their models are, with an interval. Nothing is picked on a measurement that cannot tell.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval
from fedsim.audits.results.theory import Bounds, VantageBounds
from fedsim.audits.results.verdicts import Towards
from fedsim.config import Scalar
from fedsim.config.objects import Scheme
from fedsim.config.targets import KEYS
from fedsim.privacy.mechanism import effective_noise_multiplier
from fedsim.privacy.trust import Trust
from fedsim.studies.choose.grid import Outcome

BELIEF, ADVANTAGE = "privacy.rho-beta", "privacy.rho-alpha"

FACTORS, FEW_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0), (0.5, 1.0, 2.0)
"""Multiples of the limit that are tried where noise alone varies, and where other keys do too: of
epsilon, or of mu, which is about the inverse of a multiple of the noise."""

NEAR = 0.02
"""How far below the best accuracy a stricter setting may be to be worth a look."""

POWER = 0.8
"""The share of searches in which the number of trainings that is said to tell does tell."""

State = Literal["chosen", "cannot tell", "none"]


@dataclass(frozen=True)
class Limit:
    """What the adversary may achieve at most.

    Attributes:
        key: `BELIEF`, a bound on its belief, which passes it in few trainings (`tail_limit`); or
            `ADVANTAGE`, a bound on its advantage over a coin.

    Raises:
        InputError: a value that bounds nothing, or that nothing meets.
    """

    key: str
    value: float

    def __post_init__(self) -> None:
        lowest = 0.5 if self.key == BELIEF else 0.0
        if not lowest < self.value < 1:
            name, example = ("belief", 0.75) if self.key == BELIEF else ("advantage", 0.2)
            raise InputError(
                f"--max-{name} is {self.value:g}; give a number above {lowest:g}, which is a "
                f"coin's, and below 1, which is certainty, for example {example}"
            )

    @property
    def kind(self) -> str:
        """What is limited, in a word."""
        return "belief" if self.key == BELIEF else "advantage"

    def met_by(self, bounds: Bounds | Towards) -> bool:
        """Return whether theory's bounds are within the limit, up to the search's precision."""
        found = bounds.rho_beta if self.key == BELIEF else bounds.rho_alpha
        return found <= self.value * (1 + 1e-8)

    def levels(self, factors: Sequence[float]) -> list[float]:
        """Return stricter and looser bounds around this one, rising.

        Args:
            factors: of epsilon or mu, 1 for the limit itself.
        """
        found = set()
        for factor in factors:
            if self.key == BELIEF:
                level = float(expit(factor * logit(self.value)))
                coin = 0.5
            else:
                level = float(2 * ndtr(factor * ndtri((1 + self.value) / 2)) - 1)
                coin = 0.0
            level = self.value if factor == 1 else round(level, 4)
            if coin < level < 1:
                found.add(level)
        return sorted(found)


@dataclass(frozen=True)
class Candidate:
    """One setting, as theory and its trials have it.

    Attributes:
        noise_multiplier: nominal, as `privacy.noise-multiplier` takes it.
        tail_limit: in what share of trainings the belief passes rho_beta at most.
        accuracy_interval: of that mean; None for fewer than two trainings, or for equal ones.
        band: between which accuracies nine in ten single trainings were; None where unknown.
    """

    name: str
    values: Mapping[str, Scalar]
    noise_multiplier: float
    epsilon: float
    rho_beta: float
    rho_alpha: float
    tail_limit: float
    meets: bool
    accuracy: float | None
    accuracy_interval: Interval | None
    trainings: int
    advantage: float | None
    advantage_interval: tuple[float, float] | None
    alarm: bool
    band: tuple[float, float] | None = None
    towards: tuple[VantageBounds, ...] = ()
    majority: float = 0.0
    balanced_accuracy: float | None = None
    area_under_curve: float | None = None
    least_recall: tuple[str, float] | None = None

    @property
    def has_learnt(self) -> bool:
        """Whether the accuracy is shown to be above the majority class's share.

        By the lower end of its interval; by the mean where there is none.
        """
        if self.accuracy is None:
            return False
        between = self.accuracy_interval
        return (self.accuracy if between is None else between.low) > self.majority

    @property
    def right_at_most(self) -> float:
        """How often any adversary names the world at most; a coin does so in half of the cases."""
        return (1 + self.rho_alpha) / 2

    @property
    def others(self) -> tuple[tuple[str, Scalar], ...]:
        """The values of the keys that do not say how much noise there is."""
        return tuple((key, value) for key, value in self.values.items() if key not in KEYS)

    @property
    def left_out(self) -> str:
        """Why it is not chosen, whatever it meets; "" where nothing speaks against it."""
        if self.alarm:
            return "whose trials contradict theory"
        if self.accuracy is None:
            return "of which no model has an accuracy"
        if self.has_learnt:
            return ""
        between = self.accuracy_interval
        if between is not None and between.high > self.majority:
            return "whose trainings cannot tell whether it has learnt more than the majority class"
        return "which has learnt nothing"

    def is_accurate(self, least: float) -> bool | None:
        """Return whether the accuracy is at least so much; None where the interval holds it."""
        if self.accuracy_interval is None:
            return None
        if self.accuracy_interval.low >= least:
            return True
        return False if self.accuracy_interval.high < least else None


@dataclass(frozen=True)
class Choice:
    """What was picked, and what there is beside it.

    Attributes:
        least: of each combination of the other keys, the setting of least noise that meets the
            limit.
        strictest: the strictest that meets it, within `NEAR` of the best accuracy of those.
        nearest: where nothing was chosen, what comes near: the most accurate that meets the limit,
            and the strictest that is accurate enough.
    """

    state: State
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    least: tuple[Candidate, ...]
    strictest: Candidate | None
    nearest: tuple[Candidate, ...]


def varied(limit: Limit, over: Mapping[str, Sequence[Scalar]]) -> dict[str, Sequence[Scalar]]:
    """Return the keys that a search varies: noise around the limit, unless `over` says which."""
    if set(over) & set(KEYS):
        return dict(over)
    return {**over, limit.key: limit.levels(FEW_FACTORS if over else FACTORS)}


def check(scheme: Scheme) -> None:
    """Make sure that noise protects from the vantage at all."""
    federation = scheme.federation
    if scheme.privacy.noise.mechanism.by_candidate:
        raise InputError(
            'fedsim choose is for noise with a guarantee; set privacy.noise to "isotropic" '
            "(PAC noise bounds what is told on average alone)"
        )

    def share(trust: Trust) -> float:
        return effective_noise_multiplier(
            1.0, trust, federation.vantage, federation.clients, colluders=federation.colluding
        )

    if share(federation.trust) > 0:
        return
    helping = [trust.value for trust in Trust if share(trust) > 0]
    raise InputError(
        f"against the {federation.vantage.value} no noise meets any limit under "
        f"{federation.trust.value} trust, where it sees every client's sum before the noise; "
        f"give --set federation.trust={helping[0]}"
        + "".join(f" or {other}" for other in helping[1:])
        + ", or protect from somebody else with --against"
    )


def candidate(outcome: Outcome, limit: Limit, settings: int) -> Candidate | None:
    """Return a setting as theory and its trials have it; None where its run failed."""
    report = outcome.report
    if report is None:
        return None
    measured, bounds, classes = report.empirical, report.bounds, report.utility.quality
    worst = next(each.allowed.worst for each in report.verdicts if each.vantage == report.vantage)
    # The report's bounds are those of the target's client.
    here = worst if worst.rho_alpha > bounds.rho_alpha else bounds
    together = 1 - (1 - measured.confidence) / settings
    return Candidate(
        name=outcome.point.name,
        values=outcome.point.values,
        noise_multiplier=report.mechanism.noise_multiplier,
        epsilon=here.epsilon,
        rho_beta=here.rho_beta,
        rho_alpha=here.rho_alpha,
        tail_limit=bounds.tail_limit,
        meets=limit.met_by(here),
        accuracy=outcome.accuracy,
        accuracy_interval=outcome.accuracy_interval(together),
        trainings=len(outcome.accuracies),
        advantage=measured.advantage,
        advantage_interval=measured.advantage_interval,
        alarm=bool(report.contradictions),
        band=outcome.band,
        towards=tuple(bounds.vantages),
        majority=report.utility.majority,
        balanced_accuracy=report.utility.balanced_accuracy,
        area_under_curve=report.utility.area_under_curve,
        least_recall=None if classes is None else classes.least_recall,
    )


def choose(candidates: Sequence[Candidate], min_accuracy: float | None = None) -> Choice:
    """Pick a setting by a rule that is fixed in advance.

    Of each combination of the other keys the least noise that meets the limit in theory. Without a
    least accuracy the most accurate of these; with one the strictest setting that meets the limit,
    of which the lower end of the interval is as accurate. Trials that contradict theory rule a
    setting out, and so does an accuracy that is not shown to be above the majority class's share.

    Args:
        min_accuracy: that the model is to have at least, in (0, 1); None to have the best.
    """
    known = [each for each in candidates if not each.left_out]
    usable = [each for each in known if each.meets]
    combinations: dict[tuple[tuple[str, Scalar], ...], Candidate] = {}
    for each in sorted(usable, key=lambda one: one.rho_alpha):
        combinations[each.others] = each
    least = tuple(combinations.values())
    state: State = "none"
    chosen, nearest = None, list(_best(usable))
    if min_accuracy is None:
        chosen = next(iter(_best(least)), None)
    else:
        chosen = _strictest(each for each in usable if each.is_accurate(min_accuracy))
        undecided = [each for each in usable if each.is_accurate(min_accuracy) is None]
        state = "cannot tell" if undecided else "none"
        nearest = list(_best(undecided or usable))
    if chosen is None:
        accurate = (each for each in known if min_accuracy and each.is_accurate(min_accuracy))
        nearest += filter(None, [_strictest(accurate)])
    best = next(iter(_best(usable)), None)
    return Choice(
        state="chosen" if chosen else state,
        candidates=tuple(candidates),
        chosen=chosen,
        least=least,
        strictest=best
        and _strictest(each for each in usable if _accuracy(each) >= _accuracy(best) - NEAR),
        nearest=() if chosen else tuple(nearest),
    )


def noise_costs_nothing(candidates: Sequence[Candidate]) -> bool:
    """Return whether the trials show no loss of accuracy by noise.

    The interval of the difference between the loosest and the strictest setting holds 0, and all
    means are within `NEAR` of each other.
    """
    usable = (each for each in candidates if each.accuracy is not None)
    known = sorted(usable, key=lambda each: each.rho_alpha)
    if len(known) < 2:
        return False
    means = [_accuracy(each) for each in known]
    ends = [each.accuracy_interval for each in (known[0], known[-1])]
    reach = math.hypot(*(math.inf if end is None else (end.high - end.low) / 2 for end in ends))
    return math.isfinite(reach) and abs(means[-1] - means[0]) <= reach and np.ptp(means) <= NEAR


def trainings_needed(found: Candidate, least: float) -> int | None:
    """Return of how many trainings four in five searches could tell that a setting is accurate.

    Args:
        found: a setting whose interval holds the least accuracy.

    Returns:
        The number; None where its mean is no more than that, so that none may, and where it has no
        interval.
    """
    between = found.accuracy_interval
    if between is None or _accuracy(found) <= least:
        return None
    reach = (between.high - between.low) / 2
    # The interval must end above the least accuracy although the mean comes out lower by chance.
    luck = 1 + ndtri(POWER) / ndtri((1 + between.confidence) / 2)
    return math.ceil(found.trainings * (luck * reach / (_accuracy(found) - least)) ** 2)


def _accuracy(found: Candidate) -> float:
    return -math.inf if found.accuracy is None else found.accuracy


def _best(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the most accurate setting, the stricter of equals; nothing of nothing."""
    return sorted(candidates, key=lambda each: (-_accuracy(each), each.rho_alpha))[:1]


def _strictest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the setting that leaves the adversary least, the more accurate of equals."""
    order = sorted(candidates, key=lambda each: (round(each.rho_alpha, 9), -_accuracy(each)))
    return order[0] if order else None
