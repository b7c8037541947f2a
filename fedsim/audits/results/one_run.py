"""What canaries prove in a single training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from adversaries.statistics.one_run import CanaryEstimate
from fedsim.audits.results.measured import Bound
from fedsim.audits.results.numbers import REALS, Real


@dataclass(frozen=True)
class Spread:
    """Quantiles of an epsilon over the trials, and the share above that of one canary."""

    low: Real
    """5% quantile."""
    median: Real
    """50% quantile."""
    high: Real
    """95% quantile."""
    above: Real
    """A share in [0, 1]."""


@dataclass(frozen=True)
class CanaryScores:
    """Histograms of the scores of canaries that were in the training and that were not."""

    edges: list[Real]
    """Of the bins, rising: one more than there are bins."""
    included: list[int]
    """Canaries in each bin that were in the training."""
    excluded: list[int]
    """Canaries in each bin that were not."""


@dataclass(frozen=True)
class OneRun:
    """What canaries prove in a single training."""

    kind: str
    """What a canary is, as in `canaries.kind`."""
    known_data: bool
    """Whether scores leave out what the data add."""
    unit: str
    """Whom a canary stands for: "record" or "client"."""
    count: int
    """Canaries of a trial, in and out."""
    clients: list[int]
    """Where they were planted."""
    included: int
    """How many took part in the headline's trial."""
    trials: int
    """With canaries."""
    headline_trial: int
    """Which one, from 0, was to lead: chosen in advance."""
    delta: Real
    """Of every epsilon here."""
    confidence: Real
    """Of every bound here, in (0, 1)."""
    claimed_epsilon: Real
    """Of the guarantee towards a participant."""
    canary_mu: Real
    """Of one canary, by the noise claimed, towards whoever sees the aggregates alone."""
    canary_epsilon: Real
    """What canary_mu comes to at delta."""
    bounds: Mapping[str, Bound]
    """Of the headline's trial."""
    estimate: Annotated[CanaryEstimate, REALS]
    """Of the headline's trial."""
    spread: Mapping[str, Spread] | None
    """Over all trials; None for one."""
    scores: CanaryScores
    """Of the canaries' scores in the headline's trial."""
    alarm: str | None
    """What contradicts the claim."""
    note: str
    """What a reader must know of the canaries; "" for nothing."""
