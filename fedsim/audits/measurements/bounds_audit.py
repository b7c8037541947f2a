"""The lower bounds on epsilon of a run: which hold, and which one leads."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from adversaries.arrays import Bools, Floats
from adversaries.bounds import lower_bounds
from adversaries.bounds.gaussian_bounds import LARGEST_SHARE, NOT_NORMAL, TOO_MIXED, mixed_share
from adversaries.bounds.lower_bounds import LOWER_BOUNDS, clopper_pearson_bound
from adversaries.bounds.rate_bounds import by_scale
from adversaries.statistics import forecast
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.results.verdicts import Checks
from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms.noise_family import noise_family
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust import Vantage

LEADING = ("gaussian", "mu_gdp", "trade_off", "clopper_pearson")
"""The headline is the first of these bounds that holds.

The mechanism decides, not the size of the bounds. The trials decide two things: the realised
sensitivities must hardly vary (`LARGEST_SHARE`), and the check of normality refuses one sample of
normal log-odds in a hundred. Where either refuses the first bound, the second leads.
"""


@dataclass(frozen=True, eq=False)
class BoundsAudit:
    """What the trials of a run prove of epsilon, without trust in the claimed noise."""

    config: Config
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
        return refused(self.config)

    @cached_property
    def not_normal(self) -> str | None:
        """Why log-odds are not normal under the claimed noise; None where theory says they are.

        Under less noise, `lessened` refuses log-odds that are too far from normal.
        """
        if reason := _never_normal(self.config):
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
            counted = clopper_pearson_bound(*observed)
            proven["trade_off"] = by_scale(counted, noise_family(self.mechanism))
        return proven

    def checks(self, epsilon: float) -> Checks:
        """Return the check of every bound against theory.

        A bound that a test of the trials refused counts too, since it could have passed the test.
        """
        made = {}
        sure = f"with confidence {ALARM_CONFIDENCE:g}"
        for name, bound in self.bounds(ALARM_CONFIDENCE).items():
            if bound.reason not in (None, NOT_NORMAL, TOO_MIXED):
                continue
            alarm = ""
            if bound.epsilon > epsilon:
                alarm = (
                    f"The lower bound '{name}' is above what the noise guarantees. Epsilon is at "
                    f"least {bound.epsilon:.3f} {sure}, but theory allows {epsilon:.3f} at delta "
                    f"{self.delta:g}."
                )
            made[name] = alarm
        return made


def headline(bounds: Mapping[str, EpsilonBound]) -> str:
    holding = [name for name in LEADING if name in bounds and bounds[name].reason is None]
    return (holding or ["clopper_pearson"])[0]


def refused(config: Config) -> dict[str, str]:
    """Return the lower bounds that hold for no run of a configuration, with the reason of each."""
    reasons: dict[str, str] = {}
    never_normal = _never_normal(config)
    for name, estimator in LOWER_BOUNDS.items():
        if estimator.normal and never_normal:
            reasons[name] = never_normal
    if not config.training.clipping:
        reason = "the mechanism does not add noise of one scale to clipped sums"
        reasons |= {"mu_gdp": reason, "trade_off": reason}
    if config.participation.secret:
        reasons["mu_gdp"] = "sampled steps do not compose to a Gaussian mechanism; see trade_off"
    return reasons


def _never_normal(config: Config) -> str | None:
    if config.participation.secret:
        return "log-odds are not normal under sampling"
    if config.federation.vantage is Vantage.RELEASED_MODEL:
        return "the log-odds of the released model are an attack's score, which need not be normal"
    if config.training.local_steps > 1:
        return (
            "the log-odds of local steps are a linearised attack's score, which need not be normal"
        )
    return None
