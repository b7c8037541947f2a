"""The one-run audit of a run's report: what the canaries prove, beside the claim."""

import math

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.bounds import one_run as estimators
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results.measured import CanaryScores, OneRunResult
from fedsim.audits.results.verdicts import Checks
from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game import one_run
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import aggregate_noise_multiplier, sensitivity
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Vantage

Mine = tuple[Bools, Floats]
HEADLINE = 0
"""Trial of the headline: always the first, so that no result decides it."""

LEADING = "f_dp"
"""Bound of the headline. Steps with canaries are not sampled, so that its assumption holds: a
Gaussian trade-off curve."""

NAMES = {"binomial": "binomial bound", "f_dp": "f-DP bound"}

CONTRADICTED = (
    "The canaries show more than the claimed noise allows: epsilon is at least {:.3f} with "
    f"confidence {ALARM_CONFIDENCE:g}, but theory allows {{:.3f}} at delta {{:g}}. The noise is "
    "not the noise that was accounted for, or a canary is longer than the clipping norm."
)


def report(
    game: Config, transcript: Arrays, releases: Releases, delta: float, confidence: float
) -> OneRunResult | None:
    scores, coins = transcript.get("canary_scores"), transcript.get("canaries_included")
    if scores is None or coins is None:
        return None
    mine = coins[HEADLINE], scores[HEADLINE]
    mu = canary_mu(releases)
    limit = gaussian.epsilon(mu, delta) if math.isfinite(mu) else math.inf
    return OneRunResult(
        count=game.canaries.count,
        clients=sorted(set(one_run.hosts(game).tolist())),
        included=int(mine[0].sum()),
        trials=len(scores),
        claimed_epsilon=PLD.epsilon(releases.towards(Vantage.PARTICIPANT), delta),
        canary_mu=mu,
        canary_epsilon=limit,
        bounds=estimators.bounds(*mine, delta, confidence),
        estimate=estimators.client_canary_estimate(*mine, delta, confidence),
        scores=_histogram(*mine),
    )


def canary_mu(releases: Releases) -> float:
    """Return mu of one canary of norm C in all rounds, for an observer of the aggregates alone.

    It is an upper bound, since a mislabelled record's gradient may be shorter; inf without noise.
    """
    # In units of the sensitivity, which is 2C where neighbours replace a record.
    relative = 1 / sensitivity(releases.neighbouring, 1.0)
    total = 0.0
    for alike in releases.rounds:
        multiplier = aggregate_noise_multiplier(
            alike.noise_multiplier,
            releases.trust,
            releases.clients,
            alike.participants or releases.clients,
        )
        # Squared signal-to-noise ratios of independent rounds add up.
        total += math.inf if not multiplier else alike.count * (relative / multiplier) ** 2
    return math.sqrt(total)


def checks(audited: OneRunResult | None, game: Config, transcript: Arrays, delta: float) -> Checks:
    if audited is None:
        return {}
    mine = transcript["canaries_included"][HEADLINE], transcript["canary_scores"][HEADLINE]
    return {"one_run": alarm(mine, delta, audited.canary_epsilon)}


def alarm(mine: Mine, delta: float, limit: float) -> str:
    """Return the alarm of canaries that show more than the noise allows; "" without one."""
    # Each of two bounds may convict, so that each has its share of the error.
    sure = 1 - (1 - ALARM_CONFIDENCE) / 2
    proven = max(bound.epsilon for bound in estimators.bounds(*mine, delta, sure).values())
    return CONTRADICTED.format(proven, limit, delta) if proven > limit else ""


def cautions(audited: OneRunResult | None) -> list[str]:
    if not audited:
        return []
    return [
        f"{audited.count} canaries were planted, each included or not by a coin. They cost "
        "accuracy, and the beliefs are those of an adversary that knows them."
    ]


def _histogram(included: Bools, scores: Floats) -> CanaryScores:
    edges = np.histogram_bin_edges(scores, 40)
    inside, outside = (np.histogram(scores[which], edges)[0] for which in (included, ~included))
    return CanaryScores(edges.tolist(), inside.tolist(), outside.tolist())
