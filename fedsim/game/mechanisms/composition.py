"""Epsilon of several releases about the same records.

Epsilon of *one training* bounds beliefs and advantages: trials are repetitions, each with its own
adversary. Epsilon of *everything released* is what a guarantee may state: with noise from the
operating system, all trainings' rounds add up. Noise from the seed gives no guarantee.
"""

from collections import Counter
from dataclasses import replace
from functools import lru_cache

from fedsim.config.objects import Scheme
from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust.model import Vantage

ROUNDING = 1e-12
"""Relative excess over a limit that is rounding, where noise is calibrated to the limit."""

Counts = Counter[Rounds]
"""Number of rounds of each kind; the kinds have count 1."""


def adds_up(noise_source: str) -> bool:
    """Return whether all trainings of a run are one release, which a guarantee may cover."""
    return noise_source == "system"


def times(counts: Counts, trainings: int) -> Counts:
    """Return the rounds of several trainings."""
    return Counter({kind: count * trainings for kind, count in counts.items()})


def described(scheme: Scheme, counts: Counts) -> Releases:
    """Return the releases of a federation in some rounds."""
    rounds = (replace(kind, count=count) for kind, count in counts.items())
    return replace(privacy.describe(scheme, 0.0), rounds=tuple(rounds))


def epsilon_of(scheme: Scheme, counts: Counts, vantage: Vantage) -> float:
    """Return epsilon of rounds at privacy.delta by privacy.accountant; infinite without noise."""
    if not counts:
        return 0.0
    mechanism = described(scheme, counts).towards(vantage)
    return _epsilon(mechanism, scheme.privacy.delta, scheme.privacy.accountant)


def running_epsilon(scheme: Scheme, counts: Counts, total: Counts, vantage: Vantage) -> float:
    """Return an upper bound on epsilon after some rounds of a training, exact at its end.

    Counts are rounded up by `rounded_up`. Where records are sampled, and so are the clients that
    add noise, all rounds count as the one with the least noise, for fewer slow evaluations.
    """
    if counts == total:
        return epsilon_of(scheme, counts, vantage)
    within_total = counts <= total
    if scheme.participation.varying and scheme.participation.secret:
        shares = [kind.participants for kind in (*counts, *total)]
        fewest = min((share for share in shares if share is not None), default=None)
        alike: Counts = Counter()
        for kind, count in counts.items():
            alike[replace(kind, participants=fewest)] += count
        counts = alike
    elif not within_total:
        return epsilon_of(scheme, counts, vantage)
    more = Counter({kind: rounded_up(count) for kind, count in counts.items()})
    bound = epsilon_of(scheme, more, vantage)
    return min(bound, epsilon_of(scheme, total, vantage)) if within_total else bound


def at_vantages(scheme: Scheme, counts: Counts, total: Counts) -> dict[str, float]:
    """Return the `running_epsilon` of every vantage, by name."""
    return {vantage.value: running_epsilon(scheme, counts, total, vantage) for vantage in Vantage}


def within(scheme: Scheme, counts: Counts, limit: float) -> bool:
    """Return whether some rounds keep epsilon within a limit at the configured vantage."""
    return epsilon_of(scheme, counts, scheme.federation.vantage) <= limit * (1 + ROUNDING)


def rounded_up(count: int) -> int:
    """Return a count of rounds, rounded up by at most 1/16 if it is above 16."""
    unit = 1 << max(0, count.bit_length() - 5)
    return -(-count // unit) * unit


@lru_cache(maxsize=8192)
def _epsilon(mechanism: Mechanism, delta: float, accountant_name: str) -> float:
    return accountant(accountant_name).epsilon(mechanism, delta)
