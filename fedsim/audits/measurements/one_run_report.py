"""What a run's report says of its one-run audit: what canaries prove, beside what is claimed."""

import math
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from adversaries.statistics import gaussian, intervals
from adversaries.statistics import one_run as estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from adversaries.statistics.order_statistics import order_bound, order_bounds
from fedsim.audits.measurements.check import Check
from fedsim.audits.results.measured import CanaryScores, LowerBound, OneRun, Spread
from fedsim.config.objects import GameRules
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game import one_run
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import aggregate_noise_multiplier, sensitivity
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust.model import Vantage

Mine = tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]
"""Coins and scores of one trial's canaries, [m] both."""

HEADLINE = 0
"""The trial whose audit is the headline: the first, whatever the others say."""

NAMES = {
    "binomial": "binomial bound",
    "f_dp": "f-DP bound",
    "order": "order-statistics bound",
    "estimate": "estimate",
}

NOTE = (
    "About the guarantee of one canary added or left out. A canary adds at most the clipping norm "
    "to a sum, as anybody may, so that everybody else's guarantee is as it was."
)


def report(
    game: GameRules, transcript: Arrays, releases: Releases, delta: float, confidence: float
) -> OneRun | None:
    """Return the `one_run` of report.json; None where no canaries were planted.

    Args:
        transcript: with `canary_scores` and `canaries_included` [T, m].
    """
    scores, coins = transcript.get("canary_scores"), transcript.get("canaries_included")
    if scores is None or coins is None:
        return None
    guesses, mine = game.canaries.guesses, (coins[HEADLINE], scores[HEADLINE])
    kind = game.canaries.kind
    mu = canary_mu(releases)
    limit = gaussian.epsilon(mu, delta) if math.isfinite(mu) else math.inf
    everybody = {
        "binomial": estimators.binomial_bounds(coins, scores, delta, confidence, guesses),
        "f_dp": estimators.f_dp_bounds(coins, scores, delta, confidence, guesses),
    }
    if one_run.KINDS[kind].orthogonal:
        everybody["order"] = order_bounds(coins, scores, delta, confidence)
    everybody["estimate"] = estimators.client_canary_estimates(coins, scores, delta)
    return OneRun(
        kind=kind,
        known_data=game.canaries.known_data,
        score=game.canaries.score,
        unit=game.scheme.privacy.unit,
        count=game.canaries.count,
        clients=sorted(set(one_run.hosts(game).tolist())),
        included=int(mine[0].sum()),
        trials=len(scores),
        headline_trial=HEADLINE,
        delta=delta,
        confidence=confidence,
        claimed_epsilon=PLD.epsilon(releases.towards(Vantage.PARTICIPANT), delta),
        canary_mu=mu,
        canary_epsilon=limit,
        bounds={
            name: LowerBound(**asdict(bound))
            for name, bound in _bounds(kind, mine, guesses, delta, confidence).items()
        },
        estimate=estimators.client_canary_estimate(*mine, delta, confidence),
        spread={
            name: _spread(there, limit)
            for name, found in everybody.items()
            if (there := found[~np.isnan(found)]).size
        }
        if len(scores) > 1
        else None,
        scores=_histogram(*mine),
        alarm=alarm(kind, mine, guesses, delta, limit),
        note=NOTE,
    )


def leading(kind: str) -> str:
    """Return which bound is the headline, decided by the kind of canaries before any is scored.

    The tightest whose assumptions all runs with such canaries meet: their steps are not sampled, so
    that the trade-off curve is Gaussian, and orthogonal canaries do not interfere.
    """
    return "order" if one_run.KINDS[kind].orthogonal else "f_dp"


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
            releases.clients,
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


def _bounds(
    kind: str, mine: Mine, guesses: int, delta: float, confidence: float
) -> dict[str, intervals.LowerBound]:
    found = {
        "binomial": estimators.binomial_bound(*mine, delta, confidence, guesses),
        "f_dp": estimators.f_dp_bound(*mine, delta, confidence, guesses),
    }
    if one_run.KINDS[kind].orthogonal:
        found["order"] = order_bound(*mine, delta, confidence)
    return found


def alarm(
    kind: str,
    mine: Mine,
    guesses: int,
    delta: float,
    limit: float,
) -> str | None:
    """Return the alarm that canaries raise which show more than the noise allows, or None.

    Args:
        mine: the coins of the canaries, bool [m], and their scores, float64 [m].
        guesses: of the attack that is bounded; 0 to take the best number.
    """
    # One would do; all are looked at, so that each has its share of what may go wrong.
    sure = 1 - (1 - ALARM_CONFIDENCE) / (3 if one_run.KINDS[kind].orthogonal else 2)
    found = _bounds(kind, mine, guesses, delta, sure)
    proven = max(bound.epsilon for bound in found.values())
    if proven <= limit:
        return None
    return (
        f"The canaries show more than the claimed noise allows: epsilon is at least {proven:.3f} "
        f"with confidence {ALARM_CONFIDENCE:g}, but {limit:.3f} at delta {delta:g} by theory. The "
        "noise is not what was accounted for, or a canary is longer than the clipping norm."
    )
