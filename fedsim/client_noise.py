"""Signs that a client's training is differentially private by itself, and what it reports of that.

Such a guarantee is of the client's records, and its noise is part of the update before anybody else
sees it: neither a server's transcript nor an app's trials, in which no training is run, can measure
it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


def reported_epsilon(metrics: Mapping[str, Any]) -> float | None:
    """Return the largest epsilon among a client's metrics, None if it reports none."""
    found = [
        float(value)
        for name, value in metrics.items()
        if {"epsilon", "eps"} & set(re.split(r"[^a-z]+", name.lower()))
        and isinstance(value, int | float)
        and value >= 0
    ]
    return max(found, default=None)


@dataclass(frozen=True)
class Reported:
    """What the clients of a run reported of their own epsilon.

    clients: how many did; largest: of a single report; total: the largest that one client's reports
        come to; kept: whether that client's rose in every round, as those of one engine do
    """

    clients: int
    largest: float
    total: float
    kept: bool

    def __str__(self) -> str:
        basis = (
            "its reports rise in every round, and are taken as one engine's, whose last word counts"
            if self.kept
            else "a new engine in every round counts that round alone: reports add up, and "
            "their deltas too (basic composition)"
        )
        return (
            f"{self.clients} clients report an epsilon of their own, which is of their records: up "
            f"to {self.largest:.4g} in one report, {self.total:.4g} in all rounds of a client "
            f"({basis}); nothing here can check it"
        )


def composed(reports: Iterable[Sequence[float]]) -> Reported | None:
    """Return what the reports of every client, round by round, come to; None without any."""
    found = []
    for series in reports:
        kept = len(series) > 1 and all(a < b for a, b in pairwise(series))
        found.append((series[-1] if kept else sum(series), kept, max(series)))
    if not found:
        return None
    total, kept, _ = max(found)
    return Reported(len(found), max(largest for *_, largest in found), total, kept)
