"""A server's transcript, round by round: every update is known, so that the rest is noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Contribution, Release
from adversaries.bounds.canaries import vector
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.releases import (
    DITHER_SEED,
    EXCESS,
    JUDGED,
    MeasuredRounds,
    Notes,
    believable,
    claimed_std,
    measured,
    reduced,
    updates_measured,
)
from fedsim.audits.results.rows import Limit, View
from fedsim.audits.steps.watch import number
from fedsim.federation.transcripts.records import Layout, ObservedRound

MOVED = (
    "the model that was sent is not the one that the round before released: the server changed it "
    "in between. If it took noise away, clients see less noise than was measured"
)
SERVER_SEES = "the server sees every update, and noise that clients add themselves is not recorded"
NO_ROUND = "no round released an aggregate; nothing to audit"
NO_AGGREGATE = "no aggregate: the round released nothing"
NO_NUMBERS = "the model has no floating-point parameters"
BAD_AGGREGATE = "the model or its aggregate is not finite, or they differ in shape"
BAD_REPLY = "node {} sent numbers that are not finite, or other shapes; the round cannot be audited"
UNCLIPPED = (
    "node {} sent an update longer than the clipping norm, and it was not clipped: is "
    "fixedclipping_mod missing?"
)
WEIGHTED = (
    "num-examples weights the mean: a client has a weight of up to {:.3g}, while the noise "
    "assumes {:.3g} for each. This client is protected less than configured"
)
FEWER = (
    "fewer clients replied than num_sampled_clients: each has a weight of up to {:.3g}, while the "
    "noise assumes {:.3g}"
)
MEND_FEWER = "set num_sampled_clients to the fewest replies, and refuse rounds with fewer"


@dataclass(frozen=True)
class _Seen:
    """A round that can be audited: the model before and after it [P], and its replies.

    norm: clipping norm of updates, None if no clipping is known. by_server: whether the server
    clips them after they were recorded.
    """

    observed: ObservedRound
    layout: Layout
    before: Floats
    after: Floats
    norm: float | None
    by_server: bool

    def update(self, node: int) -> Floats | None:
        """Return a node's update [P] as it is averaged; None if its reply is not such a model."""
        sent = self.layout.vector(self.observed.replies[node].arrays)
        if sent is None or not believable(sent):
            return None
        return noisy_means.clipped(sent - self.before, self.norm if self.by_server else None)


class ServerRounds:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._releases = list[Release]()
        self._random = np.random.default_rng(DITHER_SEED)
        self._last: ObservedRound | None = None
        self._clients = 1.0

    def observe(self, observed: ObservedRound) -> None:
        if self._moved(observed):
            self._notes.add("caution", MOVED, observed.round, "moved-model")
        self._last = observed
        clients = number(observed.mechanism, "num_sampled_clients")
        self._clients = max(self._clients, clients or 1.0)
        view = self._seen(observed)
        if view is None:
            return
        weighted = weights(observed)
        mean = self._mean(view, weighted)
        if mean is not None:
            self._releases.append(self._reduced(view, weighted, mean))

    def measured(
        self, mechanism: Mapping[str, Any], delta: float, confidence: float
    ) -> MeasuredRounds:
        """Return what all rounds show; mechanism: as recorded, the last value of each name."""
        releases, notes = self._releases, self._notes.findings()
        moved = [MOVED] if any(each.rule == "moved-model" for each in notes) else []
        why = _no_mean(releases, mechanism) if releases else NO_ROUND
        if why:
            notes.append(Finding(why, severity="caution" if releases else "note"))
            view = View(observer="participant", detects=None, note=why)
            return MeasuredRounds(views=[view], findings=notes, unmeasured=why, doubts=moved)
        found = updates_measured(measured(releases, confidence), delta, confidence)
        notes += found.findings
        if all(release.claimed_std and release.clipping_norm for release in releases):
            notes += _imbalance(releases, 1 / self._clients)
        everything = Limit.of_epsilon(math.inf, 1.0, "measured")
        server = View(observer="server", limit=everything, detects=None, note=SERVER_SEES)
        return replace(
            found, views=[server, *found.views], findings=notes, doubts=[*moved, *found.doubts]
        )

    def _moved(self, observed: ObservedRound) -> bool:
        """Return whether the model that was sent differs from what the round before released."""
        last = self._last
        if last is None or last.aggregate is None or observed.round != last.round + 1:
            return False
        sent, released = observed.model, last.aggregate
        return bool(sent) and not all(
            name in sent and np.array_equal(sent[name], array, equal_nan=array.dtype.kind == "f")
            for name, array in released.items()
        )

    def _seen(self, observed: ObservedRound) -> _Seen | None:
        if observed.aggregate is None or not observed.replies:
            self._notes.add("note", NO_AGGREGATE, observed.round)
            return None
        layout = Layout.of(observed.model)
        before, after = vector(observed.model), layout.vector(observed.aggregate)
        if not before.size:
            self._notes.add("alarm", NO_NUMBERS, observed.round)
            return None
        if after is None or not believable(after, before):
            self._notes.add("alarm", BAD_AGGREGATE, observed.round)
            return None
        norm = number(observed.mechanism, "clipping_norm")
        by_server = observed.mechanism.get("clipping") == "server"
        return _Seen(observed, layout, before, after, norm, by_server)

    def _mean(self, view: _Seen, weights: Mapping[int, float]) -> Floats | None:
        """Return the mean of the updates [P]; None if a reply is missing."""
        mean = np.zeros_like(view.before)
        for node in view.observed.replies:
            update = view.update(node)
            if update is None:
                self._notes.add("alarm", BAD_REPLY.format(node), view.observed.round)
                return None
            if view.norm and math.sqrt(update @ update) > view.norm * (1 + EXCESS):
                text = UNCLIPPED.format(node)
                self._notes.add("alarm", text, view.observed.round, "client-clipping")
            mean += weights[node] * update
        return mean

    def _reduced(self, view: _Seen, weights: Mapping[int, float], mean: Floats) -> Release:
        """Return the release of a round.

        Each update is computed a second time, so that memory does not hold all of them.
        """
        observed, noise = view.observed, view.after - view.before - mean
        parts: dict[int, Contribution] = {}
        for node in observed.replies:
            update = view.update(node)
            assert update is not None  # `_mean` has refused other replies
            part = weights[node] * update
            parts[node] = Contribution(
                weights[node], float(np.linalg.norm(part)), float(noise @ part)
            )
        units = view.layout.units(view.before, view.after)
        # Each of n updates is restored, weighted and summed in the model's precision. The partial
        # sums make up n/3 roundings of the whole; noise and the clients' rounding come on top.
        times = len(observed.replies) / 3 + 3
        configured = view.norm, claimed_std(observed.mechanism)
        rounded = view.layout, units, times
        return reduced(self._random, observed.round, noise, parts, *rounded, *configured)


def _no_mean(releases: Sequence[Release], mechanism: Mapping[str, Any]) -> str:
    """Return why the rest of the aggregates may not be noise alone; "" if it is."""
    # Earlier recordings call a mean of adaptive noise "mean", with "adaptive" beside it.
    mean = mechanism.get("aggregation") == "mean" and mechanism.get("adaptive") is not True
    # Without a rest, the aggregate is the mean, by whatever code.
    if mean or all(release.noiseless for release in releases):
        return ""
    return JUDGED.format(mechanism.get("strategy", "the strategy"))


def weights(observed: ObservedRound) -> dict[int, float]:
    """Return each node's weight in the mean: Flower's code weights by numbers of examples."""
    counts = {node: reply.num_examples or 0.0 for node, reply in observed.replies.items()}
    total = sum(counts.values())
    known = all(reply.num_examples is not None for reply in observed.replies.values())
    if not known or not 0 < total < math.inf:
        return dict.fromkeys(counts, 1 / len(counts))
    return {node: count / total for node, count in counts.items()}


def _imbalance(releases: Sequence[Release], presumed: float) -> list[Finding]:
    """Return what contradicts that every client has the weight that the noise presumes."""
    parts = [list(release.contributions.values()) for release in releases]
    heaviest = max(part.weight for round in parts for part in round)
    if heaviest <= presumed * (1 + EXCESS):
        return []
    text, rule, mend = WEIGHTED, "weighted-average", "weight all clients alike"
    if all(len({part.weight for part in round}) == 1 for round in parts):
        text, rule, mend = FEWER, "sampled-clients", MEND_FEWER
    return [Finding(text.format(heaviest, presumed), mend, rule=rule)]
