"""The lower bounds on epsilon of a run: which hold, which one leads, and whether they agree."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import TypedDict

import numpy as np
from scipy.special import ndtr

from adversaries.arrays import Bools, Floats
from adversaries.bounds import agreement, lower_bounds, privacy_profile
from adversaries.bounds.agreement import EstimateComparison
from adversaries.bounds.gaussian_bounds import LARGEST_SHARE, NOT_NORMAL, TOO_MIXED, mixed_share
from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.bounds.rate_bounds import NoiseFamily, trade_off_bound
from adversaries.statistics import forecast
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.results import measured
from fedsim.audits.results.theory import PredictionResult
from fedsim.audits.results.verdicts import AlarmCheck
from fedsim.config.campaign import AuditConfig
from fedsim.config.objects import GameRules, Scheme
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.observers import at_server
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

RULE = (
    "the first of these that applies: studentised Gaussian (full batches), mu of Gaussian "
    "privacy (full batches), the sampled mechanism's trade-off curve, Clopper-Pearson"
)

PROFILE_POINTS = 41
CHANCE_RESOLVED = 0.02
"""Relative precision of the chance that a bound is above epsilon."""

LESS_NOISE = (
    "Trials on D and on D' lie further apart than the claimed noise allows. Likely causes: "
    "less noise than claimed, noise that repeats or that misses a part of the model, or a gradient "
    "longer than the clipping norm."
)

MORE_NOISE = (
    "Trials on D and on D' lie closer together than the claimed noise predicts. Likely causes: "
    "more noise than claimed, an adversary with wrong sums or a wrong sampling rate, or a target "
    "whose contribution is shorter than the reported gradient."
)


class Proven(TypedDict):
    lower_bounds: dict[str, measured.ProvenBound]
    headline: measured.Headline
    agreement: measured.Agreement
    privacy_profile: measured.PrivacyProfile | None


@dataclass(frozen=True, eq=False)
class BoundsAudit:
    """What the trials of a run prove of epsilon, with and without trust in the claimed noise."""

    rules: GameRules
    audit: AuditConfig
    mechanism: Mechanism
    transcript: Arrays
    delta: float

    @property
    def worlds(self) -> Bools:
        return self.transcript["worlds"]

    @cached_property
    def exact(self) -> bool:
        """Whether the log-odds are likelihood ratios of D against D'."""
        return _exact(self.rules.scheme, self.audit.mode)

    @cached_property
    def log_odds(self) -> Floats:
        """Log-odds of all trials after the last round, [T], from even odds."""
        return self.transcript["log_odds"][:, -1]

    @cached_property
    def refused(self) -> dict[str, str]:
        return refused(self.rules, self.audit.mode)

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

    def bounds(
        self,
        confidence: float,
        names: Collection[str] = (*LOWER_BOUNDS, "trade_off"),
        delta: float | None = None,
    ) -> dict[str, EpsilonBound]:
        """Return lower bounds by name, at delta or the audit's; those that do not hold are 0."""
        delta = self.delta if delta is None else delta
        kinds = lower_bounds.MechanismKind
        proven = lower_bounds.lower_bounds(
            self.worlds,
            self.log_odds,
            delta,
            confidence,
            kinds.OTHER if self.mechanism.sampled else kinds.GAUSSIAN,
            self.not_normal,
            trial_mu=self._trial_mu,
            refused=self.refused,
            names=[name for name in names if name in LOWER_BOUNDS],
        )
        sampled = self.mechanism.sampled and not self.mechanism.noiseless
        if sampled and "trade_off" in names and "trade_off" not in self.refused:
            family = noise_family(self.mechanism)
            proven["trade_off"] = trade_off_bound(
                self.worlds, self.log_odds, delta, confidence, family
            )
        return proven

    def chances(self, bounds: Mapping[str, EpsilonBound]) -> dict[str, float]:
        """Return how often chance alone puts a bound above the claimed epsilon, by name.

        This is the significance at which the bound equals epsilon. It is given for bounds that are
        above epsilon, but not at the confidence of an alarm. Credible bounds have no such chance.
        """

        def above(candidates: Mapping[str, EpsilonBound]) -> list[str]:
            return [
                name
                for name, bound in candidates.items()
                if bound.kind == "confidence"
                and bound.epsilon > PLD.epsilon(self.mechanism, bound.delta)
            ]

        chances = {}
        for name in above(bounds):
            delta, high = bounds[name].delta, 1 - bounds[name].confidence
            # Search between the significance of an alarm and that of the report, at which the bound
            # is above epsilon.
            low = surest = 1 - ALARM_CONFIDENCE
            # Bisection on a logarithmic scale.
            while high > low * (1 + CHANCE_RESOLVED):
                middle = math.sqrt(low * high)
                proven = self.bounds(1 - middle, (name,), delta)
                low, high = (low, middle) if above(proven) else (middle, high)
            if low > surest:
                chances[name] = high
        return chances

    def comparisons(self, prediction: PredictionResult) -> list[EstimateComparison]:
        """Return the comparisons of methods that trust the noise with methods that do not.

        By chance any of them disagrees with probability at most 1 - ALARM_CONFIDENCE. The list is
        empty where log-odds are an attack's score instead of a likelihood ratio.
        """
        if not self.exact:
            return []
        # There are two comparisons, and each gets half of the error.
        each = (1 + ALARM_CONFIDENCE) / 2
        comparisons = [agreement.calibration(self.worlds, self.log_odds, each)]
        claimed = prediction.mu if prediction.deterministic else None
        if claimed is not None and not self.not_normal:
            comparisons.append(agreement.mu(self.worlds, self.log_odds, claimed, each))
        return [each for each in comparisons if each is not None]

    def profile(self, confidence: float) -> measured.PrivacyProfile | None:
        """Return the privacy profile over a grid of epsilons, beside the claimed mechanism's.

        None where log-odds are not likelihood ratios, or where the noise hides nothing.
        """
        worlds, log_odds, mechanism = self.worlds, self.log_odds, self.mechanism
        if not self.exact or mechanism.noiseless or not np.isfinite(log_odds).all():
            return None
        # The grid ends near the largest log-odds of the trials. Beyond it the estimated delta is
        # close to 0.
        last = max(1.0, float(np.quantile(np.abs(log_odds), 0.99)))
        grid = np.linspace(0.0, last, PROFILE_POINTS)
        profiles = privacy_profile.privacy_profiles(worlds, log_odds, grid, confidence)
        return measured.PrivacyProfile(
            epsilon=grid.tolist(),
            theory=[PLD.delta(mechanism, epsilon) for epsilon in grid.tolist()],
            directions={
                name: measured.EstimateBand(
                    profile.estimate.tolist(), profile.low.tolist(), profile.high.tolist()
                )
                for name, profile in profiles.items()
            },
            note="Each point of the band holds on its own, with the confidence of the report.",
        )

    def checks(self, comparisons: list[EstimateComparison], epsilon: float) -> list[AlarmCheck]:
        """Return the checks of every bound against theory, and of theory against itself.

        Two kinds of bounds are not checks: those that trust the noise cannot contradict it, and
        credible ones do not say how often they err. A bound that a test of the trials refused does
        count, since it could have passed the test. The comparisons together have one level.
        """
        made = []
        sure = f"with confidence {ALARM_CONFIDENCE:g}"
        for name, bound in self.bounds(ALARM_CONFIDENCE).items():
            if bound.trusts_noise or bound.kind == "credible":
                continue
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
        if comparisons:
            alarm = None
            if differing := [each for each in comparisons if not each.agree]:
                alarm = (
                    "Methods that trust the claimed noise disagree with methods that do not, "
                    f"{sure}: {'; '.join(map(_worded, differing))}. "
                    + (LESS_NOISE if differing[0].surer else MORE_NOISE)
                )
            made.append(AlarmCheck("trust", alarm))
        return made


def report(
    bounds: Mapping[str, EpsilonBound],
    chances: Mapping[str, float],
    comparisons: list[EstimateComparison],
    profile: measured.PrivacyProfile | None,
) -> Proven:
    name = headline(bounds)
    agree = all(each.agree for each in comparisons) if comparisons else None
    return {
        "lower_bounds": {
            name: measured.ProvenBound(**asdict(bound), p_value=chances.get(name))
            for name, bound in bounds.items()
        },
        "headline": measured.Headline(name, bounds[name].epsilon, bounds[name].confidence, RULE),
        "agreement": measured.Agreement(agree, list(comparisons)),
        "privacy_profile": profile,
    }


def headline(bounds: Mapping[str, EpsilonBound]) -> str:
    holding = [name for name in LEADING if name in bounds and bounds[name].reason is None]
    return (holding or ["clopper_pearson"])[0]


def refused(rules: GameRules, audit_mode: str) -> dict[str, str]:
    """Return the lower bounds that hold for no run of a configuration, with the reason of each."""
    reasons: dict[str, str] = {}
    scheme = rules.scheme
    never_normal = _never_normal(scheme)
    for name, estimator in LOWER_BOUNDS.items():
        if estimator.normal and never_normal:
            reasons[name] = never_normal
    if scheme.privacy.noise.mechanism.own_law or not scheme.training.clipping:
        reason = "the mechanism does not add noise of one scale to clipped sums"
        reasons |= {"mu_gdp": reason, "trade_off": reason}
    if scheme.participation.secret:
        reasons["mu_gdp"] = "sampled steps do not compose to a Gaussian mechanism; see trade_off"
    if not _exact(scheme, audit_mode):
        reasons["privacy_profile"] = "the log-odds are not exact likelihood ratios here"
    return reasons


def _exact(scheme: Scheme, audit_mode: str) -> bool:
    """Return whether the log-odds are likelihood ratios of D against D'."""
    halves = scheme.privacy.pac_prior == "halves"
    return not halves and at_server.is_exact(scheme, audit_mode, scheme.federation.vantage)


def _never_normal(scheme: Scheme) -> str | None:
    if scheme.participation.secret:
        return "log-odds are not normal under sampling"
    if scheme.privacy.pac_prior == "halves":
        return "the log-odds are a mixture over the candidates, which is not normal"
    if scheme.federation.vantage is Vantage.RELEASED_MODEL:
        return "the log-odds of the released model are an attack's score, which need not be normal"
    if scheme.training.local_steps > 1:
        return (
            "the log-odds of local steps are a linearised attack's score, which need not be normal"
        )
    return None


def _worded(comparison: EstimateComparison) -> str:
    if comparison.name == "mu":
        claimed, low, high = (comparison.details[name] for name in ("predicted", "low", "high"))
        return (
            f"the claim implies mu = {claimed:.3f}, but mu was measured between {low:.3f} and "
            f"{high:.3f}"
        )
    return (
        f"beliefs do not come true as often as they state (p = {comparison.details['p_value']:.2g})"
    )
