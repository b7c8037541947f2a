"""Signs that a client's training is differentially private by itself, and what it reports of that.

Such a guarantee is of the client's records, and its noise is part of the update before anybody else
sees it: neither a server's transcript nor an app's trials, in which no training is run, can measure
it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from fedsim.audits.recorded.recorded_noise import number
from fedsim.federation.transcripts.records import ObservedRound

LEAST = 1e-4
"""Smaller numbers are no epsilon of privacy: an optimiser's eps, such as 1e-8, may be."""


class Epsilon(NamedTuple):
    """What one client reported in one round.

    Attributes:
        value: at least `LEAST`; at whatever delta the client chose.
        metric: the name that it has among the client's metrics.
    """

    value: float
    metric: str


def reported_epsilon(metrics: Mapping[str, Any]) -> Epsilon | None:
    """Return the largest epsilon among a client's metrics, None if it reports none."""
    found = [
        Epsilon(float(value), name)
        for name, value in metrics.items()
        if {"epsilon", "eps"} & set(re.split(r"[^a-z]+", name.lower()))
        and isinstance(value, int | float)
        and value >= LEAST
    ]
    return max(found, default=None)


def epsilons_of(observed: ObservedRound, node: int | None) -> dict[int, Epsilon]:
    """Return what clients report of their own epsilon in a round, by node.

    Args:
        node: whose transcript it is, None for the server's.
    """
    heard = {node: reported_epsilon(reply.metrics) for node, reply in observed.replies.items()}
    if not heard:
        value = number(observed.mechanism, "client_epsilon")
        named = str(observed.mechanism.get("client_epsilon_metric", "epsilon"))
        heard = {node or 0: None if value is None else Epsilon(value, named)}
    return {node: epsilon for node, epsilon in heard.items() if epsilon is not None}


@dataclass(frozen=True)
class Reported:
    """What the clients of a run reported of their own epsilon.

    Attributes:
        total: the largest epsilon that one client's reports come to over its rounds.
        kept: whether that client's rose in every round, as those of one engine do, so that the last
            is its total; else they are summed.
        metrics: the names that clients report it under, sorted.
    """

    clients: int
    largest: float
    total: float
    kept: bool
    metrics: tuple[str, ...]

    @property
    def named(self) -> str:
        """The metrics, as a message has them."""
        return ", ".join(map(repr, self.metrics))

    def __str__(self) -> str:
        basis = (
            "its reports rise in every round, and are taken as one engine's, whose last word counts"
            if self.kept
            else "a new engine in every round counts that round alone: reports add up, and "
            "their deltas too (basic composition)"
        )
        return (
            f"{self.clients} clients report an epsilon of their own ({self.named}), which is of "
            f"their records: up to {self.largest:.4g} in one report, {self.total:.4g} in all "
            f"rounds of a client ({basis}); nothing here can check it"
        )


def composed(reports: Iterable[Sequence[Epsilon]]) -> Reported | None:
    """Return what the reports of every client, round by round, come to; None without any."""
    found, names = [], set[str]()
    for each in reports:
        series = [one.value for one in each]
        names |= {one.metric for one in each}
        kept = len(series) > 1 and all(a < b for a, b in pairwise(series))
        found.append((series[-1] if kept else sum(series), kept, max(series)))
    if not found:
        return None
    total, kept, _ = max(found)
    largest = max(largest for *_, largest in found)
    return Reported(len(found), largest, total, kept, tuple(sorted(names)))
