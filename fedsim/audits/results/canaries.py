"""What the canaries of a single training prove."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from adversaries.bounds.one_run import CanaryEstimate
from fedsim.audits.results.measured import Bound
from fedsim.audits.results.numbers import REALS, Real


@dataclass(frozen=True)
class CanaryScores:
    """Histograms of the scores of included and of excluded canaries."""

    edges: list[Real]
    """Edges of the bins, rising: one more than there are bins."""
    included: list[int]
    excluded: list[int]


@dataclass(frozen=True)
class OneRunResult:
    """What the canaries of a single training prove."""

    count: int
    """Canaries of a trial, included and excluded."""
    clients: list[int]
    """Clients at which they were planted."""
    included: int
    """Canaries included in the first trial, which leads."""
    trials: int
    claimed_epsilon: Real
    """Epsilon of the guarantee towards a participant."""
    canary_mu: Real
    """Mu of one canary under the claimed noise, towards an observer of the aggregates alone."""
    canary_epsilon: Real
    """Epsilon of canary_mu at delta."""
    bounds: Mapping[str, Bound]
    estimate: Annotated[CanaryEstimate, REALS]
    scores: CanaryScores
    """Scores of the canaries in the first trial."""
    score: str = "sums"
    """Where canaries are scored, as in `canaries.score`."""
