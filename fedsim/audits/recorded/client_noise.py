"""Signs that a client's own training is differentially private, and the epsilon that it reports.

Such a guarantee is about the client's records, and its noise is in the update before the recorder
sees it. Neither a server's transcript nor an app's trials, which do not train, can measure it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from fedsim.audits.recorded.recorded_noise import number
from fedsim.federation.transcripts.records import ObservedRound

LEAST = 1e-4
"""Smallest epsilon; smaller numbers may be an optimiser's eps, such as 1e-8."""


class Epsilon(NamedTuple):
    """One client's reported epsilon of one round.

    Attributes:
        value: at least `LEAST`, at a delta that the client chose.
        metric: its name among the client's metrics.
    """

    value: float
    metric: str


def reported_epsilon(metrics: Mapping[str, Any]) -> Epsilon | None:
    """Return the largest epsilon among a client's metrics; None without one."""
    reported = [
        Epsilon(float(value), name)
        for name, value in metrics.items()
        if {"epsilon", "eps"} & set(re.split(r"[^a-z]+", name.lower()))
        and isinstance(value, int | float)
        and value >= LEAST
    ]
    return max(reported, default=None)


def epsilons_of(observed: ObservedRound, node: int | None) -> dict[int, Epsilon]:
    """Return the clients' own epsilons of a round, by node.

    node: the participant whose transcript it is; None for the server's.
    """
    reported = {node: reported_epsilon(reply.metrics) for node, reply in observed.replies.items()}
    if not reported:
        value = number(observed.mechanism, "client_epsilon")
        named = str(observed.mechanism.get("client_epsilon_metric", "epsilon"))
        reported = {node or 0: None if value is None else Epsilon(value, named)}
    return {node: epsilon for node, epsilon in reported.items() if epsilon is not None}


@dataclass(frozen=True)
class Reported:
    """The clients' own epsilons of a run.

    Attributes:
        total: largest epsilon of one client's reports over its rounds.
        kept: whether that client's reports rise in every round, as those of one engine do. The last
            is then its total; else the reports are summed.
        metrics: names under which clients report, sorted.
    """

    clients: int
    largest: float
    total: float
    kept: bool
    metrics: tuple[str, ...]

    @property
    def named(self) -> str:
        """The metrics, as a message quotes them."""
        return ", ".join(map(repr, self.metrics))

    def __str__(self) -> str:
        basis = (
            "its reports rise in every round, as one engine's do, so that the last one counts"
            if self.kept
            else "a new engine in every round counts only that round, so that reports and their "
            "deltas add up (basic composition)"
        )
        return (
            f"{self.clients} clients report an epsilon of their own ({self.named}) for their "
            f"records: up to {self.largest:.4g} in one report, {self.total:.4g} in all rounds of a "
            f"client ({basis}); this audit cannot check it"
        )


def composed(reports: Iterable[Sequence[Epsilon]]) -> Reported | None:
    """Return the total of every client's reports, round by round; None without any."""
    clients, names = [], set[str]()
    for each in reports:
        series = [one.value for one in each]
        names |= {one.metric for one in each}
        kept = len(series) > 1 and all(a < b for a, b in pairwise(series))
        clients.append((series[-1] if kept else sum(series), kept, max(series)))
    if not clients:
        return None
    total, kept, _ = max(clients)
    largest = max(largest for *_, largest in clients)
    return Reported(len(clients), largest, total, kept, tuple(sorted(names)))
