"""The lower bounds on epsilon of a run: which hold, and which one leads."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import ndtr

from adversaries.arrays import Bools, Floats
from adversaries.bounds import lower_bounds
from adversaries.bounds.gaussian_bounds import LARGEST_SHARE, NOT_NORMAL, TOO_MIXED, mixed_share
from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.bounds.rate_bounds import NoiseFamily, trade_off_bound
from adversaries.statistics import forecast
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.results.verdicts import AlarmCheck
from fedsim.config.objects import GameRules, Scheme
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy import loss_distribution
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust.model import Vantage

SCALES = tuple(float(scale) for scale in 2.0 ** (np.arange(-4 * 32, 8 * 32 + 1) / 32))
"""A sixteenth to 256 times the claimed noise, in steps of 2 %."""

LINES = 2000
LARGEST_LOSS = 600.0
REACH = 6.0
"""Standard deviations of the loss beyond which no supporting line is taken."""


def noise_family(mechanism: Mechanism) -> NoiseFamily:
    """Return the family of a mechanism with noise, for `rate_bounds.trade_off_bound`.

    For full batches it is the Gaussian family. Its bound is that of mu-Gaussian privacy, up to one
    step of the scale.
    """
    multipliers = [group.noise_multiplier for group in mechanism.groups]
    return NoiseFamily(
        # Only scales at which double precision suffices.
        scales=[
            scale
            for scale in SCALES
            if scale * min(multipliers) >= 1e-6 and scale * max(multipliers) <= 1e100
        ],
        miss_rate=lambda scale, rate: miss_rate(scaled(mechanism, scale), rate),
        epsilon=lambda scale, delta: PLD.epsilon(scaled(mechanism, scale), delta),
    )


def scaled(mechanism: Mechanism, scale: float) -> Mechanism:
    groups = (
        replace(group, noise_multiplier=group.noise_multiplier * scale)
        for group in mechanism.groups
    )
    return Mechanism(tuple(groups), mechanism.neighbouring)


def miss_rate(mechanism: Mechanism, false_positive_rate: float) -> float:
    """Return a lower bound on the false negative rate of naming D, at a false positive rate.

    delta(epsilon) of D against D' says TPR - e^epsilon FPR <= delta(epsilon) at every real epsilon.
    The trade-off curve is the highest of these lines (Dong, Roth and Su, "Gaussian differential
    privacy", 2019, Proposition 2.12). Fewer lines, and a pessimistic loss distribution, lie below
    the curve. The bound is 0 where the noise is too little for a loss distribution.
    """
    slopes, offsets = _lines(mechanism)
    return float(np.max(offsets - slopes * false_positive_rate, initial=0.0))


@lru_cache(maxsize=len(SCALES))
def _lines(mechanism: Mechanism) -> tuple[Floats, Floats]:
    """Return slopes e^epsilon [n] and offsets 1 - delta(epsilon) [n] of the supporting lines."""
    if not loss_distribution.resolves(mechanism, 1e-3):
        return np.empty(0), np.empty(0)
    distribution = loss_distribution.composed(mechanism)[0]
    losses, masses = distribution.losses, np.maximum(distribution.masses, 0.0)
    # The probability under D that the loss is at least each value: from the right, with the
    # infinite loss first.
    true = distribution.infinite + np.cumsum(masses[::-1])[::-1]
    # The same under D', where each loss has e^-loss times its probability under D. Cut off where
    # e^loss overflows, which only lowers the lines.
    false = np.cumsum((masses * np.exp(-np.maximum(losses, -LARGEST_LOSS)))[::-1])[::-1]
    # Spaced evenly in standard deviations, as if the loss were normal.
    levels = ndtr(np.linspace(REACH, -REACH, LINES))
    # `true` falls, so its negative rises and can be searched.
    chosen = np.unique(np.searchsorted(-true, -levels))
    chosen = chosen[chosen < losses.size]
    chosen = chosen[np.abs(losses[chosen]) < LARGEST_LOSS]
    # One supporting line at each chosen loss: slope e^loss, and offset 1 - delta(loss) with delta =
    # true - e^loss false.
    slopes = np.exp(losses[chosen])
    return slopes, 1 - (true[chosen] - slopes * false[chosen])


LEADING = ("gaussian", "mu_gdp", "trade_off", "clopper_pearson")
"""The headline is the first of these bounds that holds.

The mechanism decides, not the size of the bounds. The trials decide two things: the realised
sensitivities must hardly vary (`LARGEST_SHARE`), and the check of normality refuses one sample of
normal log-odds in a hundred. Where either refuses the first bound, the second leads.
"""


@dataclass(frozen=True, eq=False)
class BoundsAudit:
    """What the trials of a run prove of epsilon, without trust in the claimed noise."""

    rules: GameRules
    mechanism: Mechanism
    transcript: Arrays
    delta: float

    @property
    def worlds(self) -> Bools:
        return self.transcript["worlds"]

    @cached_property
    def log_odds(self) -> Floats:
        """Log-odds of all trials after the last round, [T], from even odds."""
        return self.transcript["log_odds"][:, -1]

    @cached_property
    def refused(self) -> dict[str, str]:
        return refused(self.rules)

    @cached_property
    def not_normal(self) -> str | None:
        """Why log-odds are not normal under the claimed noise; None where theory says they are.

        Under less noise, `lessened` refuses log-odds that are too far from normal.
        """
        if reason := _never_normal(self.rules.scheme):
            return reason
        if mixed_share(self._trial_mu, float(self._trial_mu.max())) > LARGEST_SHARE:
            return (
                "the challenge moves the sums differently in every trial, so that the log-odds "
                "are a mixture"
            )
        return None

    @cached_property
    def _trial_mu(self) -> Floats:
        return forecast.trial_mu(self.transcript["sensitivities"], self.transcript["noise_stds"])

    def bounds(self, confidence: float) -> dict[str, EpsilonBound]:
        """Return lower bounds by name; those that do not hold are 0."""
        kinds = lower_bounds.MechanismKind
        observed = self.worlds, self.log_odds, self.delta, confidence
        proven = lower_bounds.lower_bounds(
            *observed,
            kinds.OTHER if self.mechanism.sampled else kinds.GAUSSIAN,
            self.not_normal,
            trial_mu=self._trial_mu,
            refused=self.refused,
        )
        sampled = self.mechanism.sampled and not self.mechanism.noiseless
        if sampled and "trade_off" not in self.refused:
            proven["trade_off"] = trade_off_bound(*observed, noise_family(self.mechanism))
        return proven

    def checks(self, epsilon: float) -> list[AlarmCheck]:
        """Return the check of every bound against theory.

        A bound that a test of the trials refused counts too, since it could have passed the test.
        """
        made = []
        sure = f"with confidence {ALARM_CONFIDENCE:g}"
        for name, bound in self.bounds(ALARM_CONFIDENCE).items():
            if bound.reason not in (None, NOT_NORMAL, TOO_MIXED):
                continue
            alarm = None
            if bound.epsilon > epsilon:
                alarm = (
                    f"The lower bound '{name}' is above what the noise guarantees. Epsilon is at "
                    f"least {bound.epsilon:.3f} {sure}, but theory allows {epsilon:.3f} at delta "
                    f"{self.delta:g}."
                )
            made.append(AlarmCheck(name, alarm))
        return made


def headline(bounds: Mapping[str, EpsilonBound]) -> str:
    holding = [name for name in LEADING if name in bounds and bounds[name].reason is None]
    return (holding or ["clopper_pearson"])[0]


def refused(rules: GameRules) -> dict[str, str]:
    """Return the lower bounds that hold for no run of a configuration, with the reason of each."""
    reasons: dict[str, str] = {}
    scheme = rules.scheme
    never_normal = _never_normal(scheme)
    for name, estimator in LOWER_BOUNDS.items():
        if estimator.normal and never_normal:
            reasons[name] = never_normal
    if not scheme.training.clipping:
        reason = "the mechanism does not add noise of one scale to clipped sums"
        reasons |= {"mu_gdp": reason, "trade_off": reason}
    if scheme.participation.secret:
        reasons["mu_gdp"] = "sampled steps do not compose to a Gaussian mechanism; see trade_off"
    return reasons


def _never_normal(scheme: Scheme) -> str | None:
    if scheme.participation.secret:
        return "log-odds are not normal under sampling"
    if scheme.federation.vantage is Vantage.RELEASED_MODEL:
        return "the log-odds of the released model are an attack's score, which need not be normal"
    if scheme.training.local_steps > 1:
        return (
            "the log-odds of local steps are a linearised attack's score, which need not be normal"
        )
    return None
