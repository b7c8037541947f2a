"""How replies are weighted in a recorded mean, and what says so."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.finding import Finding, Severity
from fedsim.audits.recorded.recorded_noise import number
from fedsim.audits.recorded.transcript_release import EXCESS
from fedsim.federation.transcripts.records import ObservedRound

Floats = npt.NDArray[np.float64]

WEIGHTINGS = ("uniform", "examples")

EVIDENCE = -math.log(1 - ALARM_CONFIDENCE)
"""The logarithm of an e-value that counts as proof: larger ones are that rare by chance."""

WEIGHTED = (
    "the mean is weighted by num-examples: a client weighs up to {heaviest:.3g}, while the noise "
    "presumes {presumed:.3g} of each, so that this client is protected less than configured"
)

FEWER = (
    "fewer clients replied than num_sampled_clients: each weighs up to {heaviest:.3g}, while the "
    "noise presumes {presumed:.3g}"
)


def weights(observed: ObservedRound) -> dict[str, dict[int, float]]:
    """Return each node's weight in the mean, by weighting.

    "examples" is not among them where some node did not say how many it has.
    """
    found = {"uniform": dict.fromkeys(observed.replies, 1 / len(observed.replies))}
    examples = {node: reply.num_examples for node, reply in observed.replies.items()}
    total = sum(count or 0.0 for count in examples.values())
    if None not in examples.values() and 0 < total < math.inf:
        found["examples"] = {node: (count or 0.0) / total for node, count in examples.items()}
    return found


class Weighting:
    """The releases of all rounds under either way to weight, and what speaks against either."""

    def __init__(self) -> None:
        self.against = dict.fromkeys(WEIGHTINGS, 0.0)
        self._releases: dict[str, list[Release]] = {name: [] for name in WEIGHTINGS}

    def add(self, releases: Mapping[str, Release], means: Mapping[str, Floats]) -> None:
        """Take in a round.

        Args:
            releases: by each weighting that is possible; "examples" may be missing.
            means: of the updates [P], by the same names: their distance is what tells them apart.
        """
        for name, release in releases.items():
            self._releases[name].append(release)
        if len(releases) < len(WEIGHTINGS):
            return
        apart = means["uniform"] - means["examples"]
        gap = float(apart @ apart)
        for name, other in (WEIGHTINGS, WEIGHTINGS[::-1]):
            one = releases[name]
            said = noisy_means.evidence_against(one.energy, releases[other].energy, gap, one.size)
            # What rounding may have left says nothing against the weights that left it.
            self.against[name] += min(said, 0.0) if one.noiseless else said

    def chosen(self, aggregation: Any) -> tuple[str, str]:
        """Return how replies are weighted, and what says so.

        FedAvg's own code, and a declared plain mean, are believed unless the aggregates prove them
        wrong.

        Args:
            aggregation: what the mechanism says of it: "mean", "declared" or other.
        """
        uniform, examples = (self._releases[name] for name in WEIGHTINGS)
        if len(uniform) != len(examples):
            return "uniform", "some node did not say how many examples it has"
        if aggregation == "mean" and self.against["examples"] <= EVIDENCE:
            return "examples", "FedAvg's own code"
        if aggregation == "declared" and self.against["uniform"] <= EVIDENCE:
            return "uniform", "what was declared"
        likelier = self.against["uniform"] > self.against["examples"]
        return ("examples" if likelier else "uniform"), "the aggregate"

    def releases(self, name: str) -> Sequence[Release]:
        """Return the releases of all rounds under one weighting."""
        return self._releases[name]

    def imbalance(self, name: str, mechanism: Mapping[str, Any]) -> list[Finding]:
        """Return what is wrong if a client weighs more than the 1/n that the noise presumes."""
        presumed = 1 / max(1.0, number(mechanism, "num_sampled_clients") or 1.0)
        parts = [list(release.contributions.values()) for release in self._releases[name]]
        heaviest = max(part.weight for round in parts for part in round)
        if heaviest <= presumed * (1 + EXCESS):
            return []
        severity: Severity = "alarm"
        if all(len({part.weight for part in round}) == 1 for round in parts):
            text = FEWER
        elif self.against["uniform"] > EVIDENCE:
            text = f"{WEIGHTED}; the aggregates prove it"
        else:
            text, severity = f"{WEIGHTED}; by FedAvg's code, too few rounds to see it", "caution"
        return [Finding(severity, "", text.format(heaviest=heaviest, presumed=presumed))]
