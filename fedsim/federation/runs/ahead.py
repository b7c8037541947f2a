"""The cost of trainings that are still to run, beside what was spent."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fedsim.configuration.objects import Scheme
from fedsim.game.mechanisms.privacy import Counts, epsilon_of, times, within
from fedsim.privacy.releases import Rounds


@dataclass(frozen=True)
class Ahead:
    """Trainings still to run, by client and round (None: not joined), beside what is spent."""

    trainings: int
    spent: Sequence[Counts]
    courses: Sequence[Sequence[Rounds | None]] = ()

    def after(self, kind: Rounds, rounds: int) -> list[Counts]:
        """Return the final rounds of every client; equal accounts appear once."""
        alike = Counter({kind: rounds})
        more = [Counter(filter(None, course[:rounds])) for course in self.courses]
        final = [
            counts + times(own, self.trainings)
            for counts, own in zip(self.spent, more or [alike] * len(self.spent), strict=True)
        ]
        return list({frozenset(counts.items()): counts for counts in final}.values())

    def epsilon(self, scheme: Scheme, kind: Rounds, rounds: int) -> float:
        """Return the final epsilon of the worst client, at the configured vantage."""
        vantage = scheme.federation.vantage
        return max(epsilon_of(scheme, counts, vantage) for counts in self.after(kind, rounds))


def affordable(scheme: Scheme, kind: Rounds, most: int, ahead: Ahead) -> int:
    """Return the number of rounds that keep epsilon within privacy.stop-at."""
    limit = scheme.privacy.stop_at

    def affords(rounds: int) -> bool:
        return all(within(scheme, counts, limit) for counts in ahead.after(kind, rounds))

    if affords(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affords(middle) else (low, middle)
    return low
