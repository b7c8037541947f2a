"""What a run's report says of its one-run audit: what canaries prove, beside what is claimed."""

import math
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from adversaries.statistics import gaussian
from adversaries.statistics import one_run as estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.check import Check
from fedsim.campaign.run_directory import Arrays
from fedsim.config import Config
from fedsim.game import one_run
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import aggregate_noise_multiplier, sensitivity
from fedsim.privacy.releases import Releases
from fedsim.results.measured import LowerBound
from fedsim.results.one_run import CanaryEstimate, CanaryScores, Interval, OneRun, Spread
from fedsim.trust.model import Vantage

HEADLINE = 0
"""The trial whose audit is the headline: the first, whatever the others say."""

LEADING = "f_dp"
"""The bound that is the headline: the tighter one. What else it assumes, a Gaussian trade-off
curve, all runs with canaries have: their steps are not sampled."""

HEADLINE_NAME = "one-run f-DP bound"

NAMES = {"binomial": "binomial bound", "f_dp": "f-DP bound", "estimate": "estimate"}

NOTE = (
    "About the guarantee of one canary added or left out. A canary adds at most the clipping norm "
    "to a sum, as anybody may, so that everybody else's guarantee is as it was."
)


def report(
    config: Config, transcript: Arrays, releases: Releases, delta: float, confidence: float
) -> OneRun | None:
    """Return the `one_run` of report.json; None where no canaries were planted.

    Args:
        config: the experiment.
        transcript: with `canary_scores` and `canaries_included` [T, m].
        releases: what one training released.
        delta: at which epsilons are stated, in (0, 1).
        confidence: of every interval and bound, in (0, 1).

    Raises:
        InputError: as of the estimators.
    """
    scores, coins = transcript.get("canary_scores"), transcript.get("canaries_included")
    if scores is None or coins is None:
        return None
    guesses, mine = config.canaries.guesses, (coins[HEADLINE], scores[HEADLINE])
    mu = canary_mu(releases)
    limit = gaussian.epsilon(mu, delta) if math.isfinite(mu) else math.inf
    bounds = {
        "binomial": estimators.binomial_bound(*mine, delta, confidence, guesses),
        "f_dp": estimators.f_dp_bound(*mine, delta, confidence, guesses),
    }
    everybody = {
        "binomial": estimators.binomial_bounds(coins, scores, delta, confidence, guesses),
        "f_dp": estimators.f_dp_bounds(coins, scores, delta, confidence, guesses),
        "estimate": estimators.client_canary_estimates(coins, scores, delta),
    }
    estimate = estimators.client_canary_estimate(*mine, delta, confidence)
    return OneRun(
        kind=config.canaries.kind,
        known_data=config.canaries.known_data,
        unit=config.privacy.unit,
        count=config.canaries.count,
        clients=sorted(set(one_run.hosts(config).tolist())),
        included=int(mine[0].sum()),
        trials=len(scores),
        headline_trial=HEADLINE,
        delta=delta,
        confidence=confidence,
        claimed_epsilon=PLD.epsilon(releases.towards(Vantage.PARTICIPANT), delta),
        canary_mu=mu,
        canary_epsilon=limit,
        bounds={name: LowerBound(**asdict(bound)) for name, bound in bounds.items()},
        estimate=CanaryEstimate(
            mu=estimate.mu,
            mu_interval=Interval(**asdict(estimate.mu_interval)),
            epsilon=estimate.epsilon,
            epsilon_interval=Interval(**asdict(estimate.epsilon_interval)),
            delta=estimate.delta,
            method=estimate.method,
            assumes=estimate.assumes,
            reason=estimate.reason,
        ),
        spread={
            name: _spread(there, limit)
            for name, found in everybody.items()
            if (there := found[~np.isnan(found)]).size
        }
        if len(scores) > 1
        else None,
        scores=_histogram(*mine),
        alarm=alarm(mine, guesses, delta, limit),
        note=NOTE,
    )


def canary_mu(releases: Releases) -> float:
    """Return mu of one canary of norm C in all rounds, towards the aggregates alone.

    An upper bound: the gradient of a mislabelled record may be shorter. inf without noise.
    """
    # In units of the sensitivity, which is 2C where records are replaced.
    relative = 1 / sensitivity(releases.neighbouring, 1.0)
    total = 0.0
    for alike in releases.rounds:
        multiplier = aggregate_noise_multiplier(
            alike.noise_multiplier,
            releases.trust,
            releases.joining_rate * releases.clients,
            alike.participants or releases.clients,
        )
        total += math.inf if not multiplier else alike.count * (relative / multiplier) ** 2
    return math.sqrt(total)


def checks(found: OneRun | None) -> list[Check]:
    """Return the check of a one-run audit against its claim, where there is one."""
    return [Check("one_run", found.alarm)] if found else []


def cautions(found: OneRun | None) -> list[str]:
    """Return what a reader must know of the canaries before the other numbers."""
    if not found:
        return []
    return [
        f"{found.count} canaries were planted, each in or out by a coin: they cost utility, and "
        "the beliefs are of an adversary who knows them."
    ]


def _spread(epsilons: npt.NDArray[np.float64], limit: float) -> Spread:
    # No number between two values: either may be infinite.
    low, high = np.quantile(epsilons, (0.05, 0.95), method="inverted_cdf").tolist()
    above, median = float((epsilons > limit).mean()), float(np.median(epsilons))
    return Spread(low, median, high, above)


def _histogram(included: npt.NDArray[np.bool_], scores: npt.NDArray[np.float64]) -> CanaryScores:
    edges = np.histogram_bin_edges(scores, 40)
    those, others = (np.histogram(scores[which], edges)[0] for which in (included, ~included))
    return CanaryScores(edges.tolist(), those.tolist(), others.tolist())


def alarm(
    mine: tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]],
    guesses: int,
    delta: float,
    limit: float,
) -> str | None:
    """Return the alarm that canaries raise which show more than the noise allows, or None.

    Args:
        mine: the coins of the canaries, bool [m], and their scores, float64 [m].
        guesses: of the attack that is bounded; 0 to take the best number.
        delta: of both epsilons.
        limit: the epsilon of the claimed noise at this delta.
    """
    # One of the two would do; both are looked at, so that each has half of what may go wrong.
    sure = 1 - (1 - ALARM_CONFIDENCE) / 2
    proven = max(
        estimators.binomial_bound(*mine, delta, sure, guesses).epsilon,
        estimators.f_dp_bound(*mine, delta, sure, guesses).epsilon,
    )
    if proven <= limit:
        return None
    return (
        f"The canaries show more than the claimed noise allows: epsilon is at least {proven:.3f} "
        f"with confidence {ALARM_CONFIDENCE:g}, but {limit:.3f} at delta {delta:g} by theory. The "
        "noise is not what was accounted for, or a canary is longer than the clipping norm."
    )
