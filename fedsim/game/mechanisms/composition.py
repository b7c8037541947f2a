"""What several releases about the same records come to: epsilon of rounds that add up.

Two numbers are never to be confused. Epsilon of *one training* is what beliefs and advantages are
compared with: the trials of a campaign are repetitions, each with an adversary of its own. Epsilon
of *everything released* is what a guarantee may state: where the noise is the operating system's
all trainings left something of the same people, and their rounds add up over trials, batches of
trials and attempts. Noise from the seed is no guarantee, to however few trainings.
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
"""Relative excess over a limit that is rounding, where noise is calibrated to it."""

Counts = Counter[Rounds]
"""How many rounds of each kind; the kinds have count 1."""


def adds_up(noise_source: str) -> bool:
    """Return whether all trainings of a run are one release, about which a guarantee may speak."""
    return noise_source == "system"


def times(counts: Counts, trainings: int) -> Counts:
    """Return the rounds of several trainings."""
    return Counter({kind: count * trainings for kind, count in counts.items()})


def described(scheme: Scheme, counts: Counts) -> Releases:
    """Return what a federation releases in some rounds."""
    rounds = (replace(kind, count=count) for kind, count in counts.items())
    return replace(privacy.describe(scheme, 0.0), rounds=tuple(rounds))


def epsilon_of(scheme: Scheme, counts: Counts, vantage: Vantage) -> float:
    """Return epsilon of rounds, at privacy.delta by privacy.accountant; infinite without noise."""
    if not counts:
        return 0.0
    mechanism = described(scheme, counts).towards(vantage)
    return _epsilon(mechanism, scheme.privacy.delta, scheme.privacy.accountant)


def running_epsilon(scheme: Scheme, counts: Counts, total: Counts, vantage: Vantage) -> float:
    """Return an upper bound on the epsilon of rounds on the way to others, exact at their end.

    Counts are rounded up, as `rounded_up` says, so that a long training needs few evaluations.
    Where records are sampled, and clients that add the noise, all rounds count as that of least
    noise: no two clients' rounds are alike, and every evaluation takes a while.
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
    found = epsilon_of(scheme, more, vantage)
    return min(found, epsilon_of(scheme, total, vantage)) if within_total else found


def at_vantages(scheme: Scheme, counts: Counts, total: Counts) -> dict[str, float]:
    """Return the `running_epsilon` of every vantage by its name."""
    return {vantage.value: running_epsilon(scheme, counts, total, vantage) for vantage in Vantage}


def within(scheme: Scheme, counts: Counts, limit: float) -> bool:
    """Return whether some rounds keep epsilon within a limit at the configured vantage."""
    return epsilon_of(scheme, counts, scheme.federation.vantage) <= limit * (1 + ROUNDING)


def rounded_up(count: int) -> int:
    """Return a count of rounds, rounded up if it is above 16, by at most 1/16.

    To the next multiple of a power of two, so that there are 16 values between a number and its
    double.

    count: at least 0.
    """
    unit = 1 << max(0, count.bit_length() - 5)
    return -(-count // unit) * unit


@lru_cache(maxsize=8192)
def _epsilon(mechanism: Mechanism, delta: float, accountant_name: str) -> float:
    return accountant(accountant_name).epsilon(mechanism, delta)
