"""The lower bounds on epsilon of a run: which hold, which one leads, and whether they agree."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import TypedDict

import numpy as np
from scipy.special import logit

from adversaries.statistics import agreement, forecast, lower_bounds, privacy_profile
from adversaries.statistics.agreement import Comparison
from adversaries.statistics.gaussian_bounds import LARGEST_SHARE, NOT_NORMAL, TOO_MIXED, mixed_share
from adversaries.statistics.intervals import ALARM_CONFIDENCE, LowerBound
from adversaries.statistics.lower_bounds import COMMON, LOWER_BOUNDS
from adversaries.statistics.rate_bounds import trade_off_bound
from adversaries.statistics.trials import Bools, Floats
from fedsim.audits.measurements.check import Check
from fedsim.audits.measurements.noise_family import noise_family
from fedsim.audits.results import measured
from fedsim.audits.results.theory import Prediction
from fedsim.config import Config
from fedsim.federation.runs import precision
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.observers import at_server
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust.model import Vantage

LEADING = ("gaussian", "mu_gdp", "trade_off", "clopper_pearson")
"""The headline is the first of these that holds: what it is rests on the mechanism, not on how
large the bounds came out. Of the trials two things decide whether the first holds: the realised
sensitivities, which must hardly vary (`LARGEST_SHARE`), and the check of normality, which refuses
one sample of normal log-odds in a hundred. Where either does, the second leads."""

RULE = (
    "the first that holds of: studentised Gaussian (full batches), mu of Gaussian privacy (full "
    "batches), the sampled mechanism's trade-off curve, Clopper-Pearson"
)

PROFILE_POINTS = 41


class Proven(TypedDict):
    """What the lower bounds make of `empirical` in a report."""

    lower_bounds: dict[str, measured.LowerBound]
    headline: measured.Headline
    agreement: measured.Agreement
    privacy_profile: measured.PrivacyProfile | None


CHANCE_RESOLVED = 0.02
"""To what share of itself the chance that a bound is above epsilon is worked out."""

LESS_NOISE = (
    "The worlds lie further apart than the claimed noise lets them. Likely causes: less noise than "
    "claimed, noise that repeats or that not all of the model gets, or a gradient larger than "
    "the clipping norm."
)
MORE_NOISE = (
    "The worlds lie less far apart than the claimed noise would have them. Likely causes: more "
    "noise than claimed, an adversary that is mistaken about the sums or the sampling, or a record "
    "that took part with less than the gradient that was reported."
)


def bounds_of(
    config: Config,
    mechanism: Mechanism,
    transcript: Arrays,
    delta: float,
    confidence: float,
    names: Collection[str] = (*LOWER_BOUNDS, "trade_off"),
) -> dict[str, LowerBound]:
    """Return lower bounds by their names; those that do not hold of the run are 0 with a reason.

    Args:
        transcript: the run's arrays by name.
        delta: at which epsilons are stated, in (0, 1).
        confidence: of every interval and bound, in (0, 1).
    """
    worlds, log_odds = _played(config.audit.prior, transcript)
    refusals, played = (
        refused(config),
        precision.design(config.trials, config.audit.confidence, len(worlds)),
    )
    found = lower_bounds.lower_bounds(
        worlds,
        log_odds,
        delta,
        confidence,
        lower_bounds.MechanismKind.OTHER
        if mechanism.sampled
        else lower_bounds.MechanismKind.GAUSSIAN,
        not_normal(config, transcript),
        played,
        trial_mu=_trial_mu(transcript),
        refused=refusals,
        names=[name for name in names if name in LOWER_BOUNDS],
    )
    sampled = mechanism.sampled and not mechanism.noiseless
    if sampled and "trade_off" in names and "trade_off" not in refusals:
        family = noise_family(mechanism)
        bound = trade_off_bound(worlds, log_odds, delta, played.level(confidence), family)
        found["trade_off"] = replace(bound, confidence=confidence)
    return found


def chances_of(
    config: Config, mechanism: Mechanism, transcript: Arrays, bounds: Mapping[str, LowerBound]
) -> dict[str, float]:
    """Return by name how often chance alone puts a bound above the claimed epsilon.

    Of those that are above it, but not as surely as an alarm must be: the significance at which the
    bound is epsilon. Credible bounds say nothing of the kind.

    Args:
        transcript: the run's arrays by name.
    """

    def above(found: Mapping[str, LowerBound]) -> list[str]:
        return [
            name
            for name, bound in found.items()
            if bound.kind == "confidence" and bound.epsilon > PLD.epsilon(mechanism, bound.delta)
        ]

    chances = {}
    for name in above(bounds):
        delta, high = bounds[name].delta, 1 - bounds[name].confidence
        low = surest = 1 - ALARM_CONFIDENCE
        while high > low * (1 + CHANCE_RESOLVED):
            middle = math.sqrt(low * high)
            proven = bounds_of(config, mechanism, transcript, delta, 1 - middle, (name,))
            low, high = (low, middle) if above(proven) else (middle, high)
        if low > surest:
            chances[name] = high
    return chances


def report(
    bounds: Mapping[str, LowerBound],
    chances: Mapping[str, float],
    comparisons: list[Comparison],
    profile: measured.PrivacyProfile | None,
) -> Proven:
    """Return the entries of `empirical` in the report that the bounds make.

    Args:
        chances: as of `chances_of`.
        comparisons: as of `comparisons_of`.
        profile: as of `profile_of`.
    """
    name = headline(bounds)
    agree = all(each.agree for each in comparisons) if comparisons else None
    return {
        "lower_bounds": {
            name: measured.LowerBound(**asdict(bound), p_value=chances.get(name))
            for name, bound in bounds.items()
        },
        "headline": measured.Headline(name, bounds[name].epsilon, bounds[name].confidence, RULE),
        "agreement": measured.Agreement(agree, list(comparisons)),
        "privacy_profile": profile,
    }


def headline(bounds: Mapping[str, LowerBound]) -> str:
    """Return the name of the bound that a report leads with, by the rule of `LEADING`."""
    holding = [name for name in LEADING if name in bounds and bounds[name].reason is None]
    return (holding or ["clopper_pearson"])[0]


def comparisons_of(config: Config, prediction: Prediction, transcript: Arrays) -> list[Comparison]:
    """Return the comparisons of what trusts the noise with what does not.

    Together they disagree by chance with at most 1 - ALARM_CONFIDENCE. None where log-odds are the
    score of an attack, which nobody claims to be a likelihood ratio, or the worlds share random
    numbers, which both comparisons take for independent.

    Args:
        transcript: the run's arrays by name.
    """
    worlds, log_odds = _played(config.audit.prior, transcript)
    played = precision.design(config.trials, config.audit.confidence, len(worlds))
    if not _exact(config) or played.common:
        return []
    each = played.level((1 + ALARM_CONFIDENCE) / 2)
    comparisons = [agreement.calibration(worlds, log_odds, each)]
    claimed = prediction.mu if prediction.deterministic else None
    if claimed is not None and not not_normal(config, transcript):
        comparisons.append(agreement.mu(worlds, log_odds, claimed, each))
    return [found for found in comparisons if found is not None]


def profile_of(
    config: Config, mechanism: Mechanism, transcript: Arrays, confidence: float
) -> measured.PrivacyProfile | None:
    """Return the privacy profile over a grid of epsilons, beside that of the claimed mechanism.

    None where log-odds are no likelihood ratios, or the noise hides nothing.

    Args:
        transcript: the run's arrays by name.
        confidence: of every interval and bound, in (0, 1).
    """
    worlds, log_odds = _played(config.audit.prior, transcript)
    if not _exact(config) or mechanism.noiseless or not np.isfinite(log_odds).all():
        return None
    played = precision.design(config.trials, config.audit.confidence, len(log_odds))
    last = max(1.0, float(np.quantile(np.abs(log_odds), 0.99)))
    grid = np.linspace(0.0, last, PROFILE_POINTS)
    found = privacy_profile.privacy_profiles(worlds, log_odds, grid, played.level(confidence))
    return measured.PrivacyProfile(
        epsilon=grid.tolist(),
        theory=[PLD.delta(mechanism, epsilon) for epsilon in grid.tolist()],
        directions={
            name: measured.Band(
                profile.estimate.tolist(), profile.low.tolist(), profile.high.tolist()
            )
            for name, profile in found.items()
        },
        note="Each point of the band holds on its own, with the confidence of the report.",
    )


def checks(
    config: Config,
    mechanism: Mechanism,
    transcript: Arrays,
    comparisons: list[Comparison],
    epsilon: float,
    delta: float,
) -> list[Check]:
    """Return the checks of every bound against theory, and of theory against itself.

    Bounds that trust the noise say nothing about it, and credible ones nothing of how often they
    err: neither is a check. One that a test of the trials refused could have passed it, so that it
    counts. The comparisons together have the level of one.

    Args:
        transcript: the run's arrays by name.
        comparisons: as of `comparisons_of`.
        delta: at which epsilons are stated, in (0, 1).
    """
    made = []
    sure = f"with confidence {ALARM_CONFIDENCE:g}"
    proven = bounds_of(config, mechanism, transcript, delta, ALARM_CONFIDENCE)
    for name, bound in proven.items():
        if bound.trusts_noise or bound.kind == "credible":
            continue
        if bound.reason not in (None, NOT_NORMAL, TOO_MIXED):
            continue
        alarm = None
        if bound.epsilon > epsilon:
            alarm = (
                f"The lower bound '{name}' is above what the noise guarantees: epsilon is at least "
                f"{bound.epsilon:.3f} {sure}, but {epsilon:.3f} at delta "
                f"{delta:g} by theory."
            )
        made.append(Check(name, alarm))
    if comparisons:
        alarm = None
        if differing := [each for each in comparisons if not each.agree]:
            alarm = (
                "What trusts the claimed noise and what does not disagree, "
                f"{sure}: {'; '.join(map(_worded, differing))}. "
                + (LESS_NOISE if differing[0].surer else MORE_NOISE)
            )
        made.append(Check("trust", alarm))
    return made


def refused(config: Config) -> dict[str, str]:
    """Return by their names the lower bounds that hold of no run of a configuration, and why.

    Of those that are left the Gaussian ones may still be refused for what the trials were.
    """
    reasons: dict[str, str] = {}
    never_normal, common = _never_normal(config), config.trials.pairing == "common"
    for name, estimator in LOWER_BOUNDS.items():
        if estimator.normal and never_normal:
            reasons[name] = never_normal
        elif common and not estimator.dependent_worlds:
            reasons[name] = COMMON
    if config.privacy.noise.mechanism.own_law or not config.training.clipping:
        reason = "the mechanism is not one scale of noise on clipped sums"
        reasons |= {"mu_gdp": reason, "trade_off": reason}
    if config.participation.secret:
        reasons["mu_gdp"] = "sampled steps do not compose to a Gaussian mechanism; see trade_off"
    if not _exact(config):
        reasons["privacy_profile"] = "the log-odds are not exact likelihood ratios here"
    return reasons


def not_normal(config: Config, transcript: Arrays) -> str | None:
    """Return why the log-odds are not normal, None where theory says that they are.

    Under the claimed noise; under less, `lessened` refuses what is too far from normal.

    Args:
        transcript: the run's arrays by name.
    """
    if reason := _never_normal(config):
        return reason
    trial_mu = _trial_mu(transcript)
    if mixed_share(trial_mu, float(trial_mu.max())) > LARGEST_SHARE:
        return "the challenge moves the sums differently in every trial, so that log-odds are mixed"
    return None


def _never_normal(config: Config) -> str | None:
    if config.participation.secret:
        return "log-odds are not normal under sampling"
    if config.privacy.pac_prior == "halves":
        return "the log-odds are a mixture over the candidates, which is not normal"
    if config.federation.vantage is Vantage.RELEASED_MODEL:
        return "the log-odds of the released model are an attack's score, which need not be normal"
    if config.training.local_steps > 1:
        return (
            "the log-odds of local steps are a linearised attack's score, which need not be normal"
        )
    return None


def _trial_mu(transcript: Arrays) -> Floats:
    return forecast.trial_mu(transcript["sensitivities"], transcript["noise_stds"])


def _played(prior: float, transcript: Arrays) -> tuple[Bools, Floats]:
    """Return the worlds and the final log-odds of all trials, [T], the latter from even odds."""
    return transcript["worlds"], transcript["log_odds"][:, -1] - logit(prior)


def _exact(config: Config) -> bool:
    exact = at_server.is_exact(
        config.training.local_steps,
        config.federation.adversary_rounds,
        config.audit.mode,
        config.federation.vantage,
    )
    return exact and config.privacy.pac_prior != "halves"


def _worded(comparison: Comparison) -> str:
    if comparison.name == "mu":
        claimed, low, high = (comparison.details[name] for name in ("predicted", "low", "high"))
        return f"mu is {claimed:.3f} by the claim, but measured between {low:.3f} and {high:.3f}"
    return (
        f"beliefs do not come true as often as they say (p = {comparison.details['p_value']:.2g})"
    )
