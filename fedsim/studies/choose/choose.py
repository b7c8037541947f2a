"""The rule by which `fedsim choose` picks a setting, with the limits and the settings to try.

Theory decides exactly which settings meet the limit on the adversary. The trials measure how
accurate their models are, with an interval. The rule picks no setting that the interval leaves
open.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval
from fedsim.audits.results.theory import RunBounds, RunVantageBounds
from fedsim.audits.results.verdicts import Towards
from fedsim.config import Scalar
from fedsim.config.jobs import KEYS
from fedsim.config.objects import Scheme
from fedsim.privacy import risks
from fedsim.privacy.mechanism import effective_noise_multiplier
from fedsim.privacy.trust import Trust
from fedsim.studies.choose.grid import RunOutcome

BELIEF, ADVANTAGE, RISK = "privacy.rho-beta", "privacy.rho-alpha", "privacy.max-risk"

BASELINE = "privacy.baseline-risk"

FACTORS, FEW_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0), (0.5, 1.0, 2.0)
"""Multiples of the limit to try if only the noise varies, and if other keys vary too.

They multiply epsilon, or mu, which is about the inverse of the noise multiplier.
"""

NEAR = 0.02
"""Largest loss of accuracy, against the best, at which a stricter setting is reported."""

POWER = 0.8
"""Share of searches in which the suggested number of trainings decides."""

State = Literal["chosen", "cannot tell", "none"]


@dataclass(frozen=True)
class Limit:
    """The limit on what the adversary achieves.

    Attributes:
        key: `BELIEF`, a bound on its belief, which few trainings exceed (`tail_limit`);
            `ADVANTAGE`, a bound on its advantage over a coin; or `RISK`, a bound on the success of
            any attack.
        baseline: success of the attack without the model, in (0, 1), for `RISK`.

    Raises:
        InputError: the value is not between success without the model and certainty.
    """

    key: str
    value: float
    baseline: float = risks.BASELINE

    def __post_init__(self) -> None:
        if not 0 < self.baseline < 1:
            raise InputError(
                f"--baseline-risk is {self.baseline:g}; give the success of an attack without the "
                "model, above 0 and below 1, for example 0.001"
            )
        if not self._lowest < self.value < 1:
            by = "success without the model" if self.key == RISK else "a coin's"
            example = {
                BELIEF: 0.75,
                ADVANTAGE: 0.2,
                RISK: min(5 * self._lowest, (1 + self._lowest) / 2),
            }[self.key]
            raise InputError(
                f"--max-{self.kind} is {self.value:g}; give a number above {self._lowest:g} ({by}) "
                f"and below 1 (certainty), for example {example:g}"
            )

    @property
    def _lowest(self) -> float:
        return {BELIEF: 0.5, ADVANTAGE: 0.0, RISK: self.baseline}[self.key]

    @property
    def kind(self) -> str:
        """The limited quantity: "belief", "advantage" or "risk"."""
        return {BELIEF: "belief", ADVANTAGE: "advantage", RISK: "risk"}[self.key]

    @property
    def settings(self) -> dict[str, Scalar]:
        """Keys that every run of the search takes from the limit."""
        return {BASELINE: self.baseline} if self.key == RISK else {}

    @property
    def numbers(self) -> dict[str, float]:
        """The limit as report.json has it: its value by its kind, and the baseline of a risk."""
        return {self.kind: self.value} | ({"baseline": self.baseline} if self.settings else {})

    def met_by(self, bounds: RunBounds | Towards, risk: float | None) -> bool:
        """Return whether theory's bounds are within the limit.

        Args:
            risk: largest success of an attack from the limit's baseline; None only where another
                quantity is limited.
        """
        bound = bounds.rho_beta if self.key == BELIEF else bounds.rho_alpha
        if self.key == RISK:
            assert risk is not None
            bound = risk
        return bound <= self.value * (1 + 1e-8)  # the calibration finds noise to this precision

    def levels(self, factors: Sequence[float]) -> list[float]:
        """Return stricter and looser bounds around this one, in rising order.

        Args:
            factors: multiples of epsilon or mu; 1 is the limit itself.
        """
        levels = set()
        for factor in factors:
            if self.key == BELIEF:
                level = float(expit(factor * logit(self.value)))
            elif self.key == ADVANTAGE:
                level = float(2 * ndtr(factor * ndtri((1 + self.value) / 2)) - 1)
            else:  # the trade-off curve of a Gaussian mechanism, as in `risks.true_positives`
                start = ndtri(self.baseline)
                level = float(ndtr(start + factor * (ndtri(self.value) - start)))
            # A small risk has few digits after the point, so that its leading ones are kept.
            rounded = float(f"{level:.4g}") if self.key == RISK else round(level, 4)
            level = self.value if factor == 1 else rounded
            if self._lowest < level < 1:
                levels.add(level)
        return sorted(levels)


@dataclass(frozen=True)
class Candidate:
    """One setting with its bounds by theory and the measurements of its trials.

    Attributes:
        noise_multiplier: nominal, as in `privacy.noise-multiplier`.
        tail_limit: upper bound on the share of trainings in which the belief exceeds rho_beta.
        risk: largest success of any attack that succeeds in the limit's baseline without the model;
            None for a run of an earlier version.
        accuracy_interval: of the mean accuracy; None for fewer than two trainings, or if all are
            equal.
        band: 5th and 95th percentile of a single training's accuracy; None if unknown.
    """

    name: str
    values: Mapping[str, Scalar]
    noise_multiplier: float
    epsilon: float
    rho_beta: float
    rho_alpha: float
    tail_limit: float
    risk: float | None
    meets: bool
    accuracy: float | None
    accuracy_interval: Interval | None
    trainings: int
    advantage: float | None
    advantage_interval: tuple[float, float] | None
    alarm: bool
    band: tuple[float, float] | None = None
    towards: tuple[RunVantageBounds, ...] = ()
    majority: float = 0.0
    balanced_accuracy: float | None = None
    area_under_curve: float | None = None
    least_recall: tuple[str, float] | None = None

    @property
    def has_learnt(self) -> bool:
        """Whether the accuracy is shown to be above the majority class's share.

        The lower end of the interval decides, or the mean if there is no interval.
        """
        if self.accuracy is None:
            return False
        between = self.accuracy_interval
        return (self.accuracy if between is None else between.low) > self.majority

    @property
    def right_at_most(self) -> float:
        """Upper bound on the share of cases in which an adversary is right; a coin has 0.5."""
        return (1 + self.rho_alpha) / 2

    @property
    def others(self) -> tuple[tuple[str, Scalar], ...]:
        """The values of the keys that do not set the noise."""
        return tuple((key, value) for key, value in self.values.items() if key not in KEYS)

    @property
    def left_out(self) -> str:
        """A sentence that says why the setting may not be chosen; "" if it may."""
        if self.alarm:
            return "Its trials contradict theory."
        if self.accuracy is None:
            return "None of its models has an accuracy."
        if self.has_learnt:
            return ""
        between = self.accuracy_interval
        if between is not None and between.high > self.majority:
            return "Its trainings cannot tell whether it has learnt more than the majority class."
        return "It is right no more often than the majority class."

    def is_accurate(self, least: float) -> bool | None:
        """Return whether the accuracy is at least `least`; None if the interval contains it."""
        if self.accuracy_interval is None:
            return None
        if self.accuracy_interval.low >= least:
            return True
        return False if self.accuracy_interval.high < least else None


@dataclass(frozen=True)
class Choice:
    """The chosen setting, and its alternatives.

    Attributes:
        least: the setting with the least noise that meets the limit, for each combination of the
            other keys.
        strictest: the strictest setting that meets the limit with an accuracy within `NEAR` of the
            best.
        nearest: if no setting was chosen, the most accurate one that meets the limit and the
            strictest one that is accurate enough.
    """

    state: State
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    least: tuple[Candidate, ...]
    strictest: Candidate | None
    nearest: tuple[Candidate, ...]


def varied(limit: Limit, over: Mapping[str, Sequence[Scalar]]) -> dict[str, Sequence[Scalar]]:
    """Return the keys and values to try: noise around the limit, unless `over` sets the noise."""
    if set(over) & set(KEYS):
        return dict(over)
    return {**over, limit.key: limit.levels(FEW_FACTORS if over else FACTORS)}


def check_protectable(scheme: Scheme) -> None:
    """Raise InputError if no noise protects from the adversary at its vantage."""
    federation = scheme.federation
    if scheme.privacy.noise.mechanism.by_candidate:
        raise InputError(
            'fedsim choose needs noise with a guarantee; set privacy.noise = "isotropic" '
            "(PAC noise only bounds an average)"
        )

    def share(trust: Trust) -> float:
        return effective_noise_multiplier(
            1.0, trust, federation.vantage, federation.clients, colluders=federation.colluding
        )

    if share(federation.trust) > 0:
        return
    helping = " or ".join(trust.value for trust in Trust if share(trust) > 0)
    raise InputError(
        f"with {federation.trust.value} trust, the {federation.vantage.value} sees every client's "
        f"sum before the noise, so that no noise meets a limit; give --set federation.trust="
        f"{helping}, or name another adversary with --against"
    )


def candidate(outcome: RunOutcome, limit: Limit, settings: int) -> Candidate | None:
    """Return a setting with its bounds and measurements; None if its run failed.

    Args:
        settings: number of settings that share one confidence level (Bonferroni).
    """
    report = outcome.report
    if report is None:
        return None
    measured, bounds, classes = report.empirical, report.bounds, report.utility.quality
    worst = next(each.allowed.worst for each in report.verdicts if each.vantage == report.vantage)
    # The report's bounds hold for the target's client; another client may be worse off.
    weakest = worst if worst.rho_alpha > bounds.rho_alpha else bounds
    risk = dict(worst.risks).get(limit.baseline)
    if risk is None and limit.key == RISK:
        raise InputError(
            f"the run {outcome.point.name} was made by an earlier version of fedsim, whose "
            "reports have no risks; name another directory with --out"
        )
    together = 1 - (1 - measured.confidence) / settings
    return Candidate(
        name=outcome.point.name,
        values=outcome.point.values,
        noise_multiplier=report.mechanism.noise_multiplier,
        epsilon=weakest.epsilon,
        rho_beta=weakest.rho_beta,
        rho_alpha=weakest.rho_alpha,
        tail_limit=bounds.tail_limit,
        risk=risk,
        meets=limit.met_by(weakest, risk),
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

    Without a minimum accuracy: take, for each combination of the other keys, the least noise that
    meets the limit in theory, and pick the most accurate of these settings. With a minimum: pick
    the strictest setting that meets the limit and whose interval lies above the minimum. A setting
    is ruled out if its trials contradict theory, or if its accuracy is not shown to be above the
    majority class's share.

    Args:
        min_accuracy: minimum accuracy, in (0, 1); None to get the most accurate model.
    """
    eligible = [each for each in candidates if not each.left_out]
    usable = [each for each in eligible if each.meets]
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
        accurate = (each for each in eligible if min_accuracy and each.is_accurate(min_accuracy))
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

    This holds if the interval of the difference between the loosest and the strictest setting
    contains 0, and all means are within `NEAR` of each other.
    """
    usable = (each for each in candidates if each.accuracy is not None)
    measured = sorted(usable, key=lambda each: each.rho_alpha)
    if len(measured) < 2:
        return False
    means = [_accuracy(each) for each in measured]
    ends = [each.accuracy_interval for each in (measured[0], measured[-1])]
    reach = math.hypot(*(math.inf if end is None else (end.high - end.low) / 2 for end in ends))
    return math.isfinite(reach) and abs(means[-1] - means[0]) <= reach and np.ptp(means) <= NEAR


def trainings_needed(setting: Candidate, least: float) -> int | None:
    """Return how many trainings show, in a share `POWER` of searches, that a setting is accurate.

    Args:
        setting: its interval contains the minimum accuracy.

    Returns:
        The number; None if the setting has no interval, or if its mean is not above the minimum.
    """
    between = setting.accuracy_interval
    if between is None or _accuracy(setting) <= least:
        return None
    reach = (between.high - between.low) / 2
    # The interval must lie above the minimum even if the mean is lower by chance.
    luck = 1 + ndtri(POWER) / ndtri((1 + between.confidence) / 2)
    return math.ceil(setting.trainings * (luck * reach / (_accuracy(setting) - least)) ** 2)


def _accuracy(setting: Candidate) -> float:
    return -math.inf if setting.accuracy is None else setting.accuracy


def _best(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return a list with the most accurate setting, the stricter of equals; [] for no setting."""
    return sorted(candidates, key=lambda each: (-_accuracy(each), each.rho_alpha))[:1]


def _strictest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the setting with the least advantage, the more accurate of equals."""
    order = sorted(candidates, key=lambda each: (round(each.rho_alpha, 9), -_accuracy(each)))
    return order[0] if order else None
