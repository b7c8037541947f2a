"""A server's transcript, round by round: every update is known, and what is left over is noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Contribution, Release
from adversaries.statistics.canaries import vector
from fedsim.audits.judgement.finding import Finding
from fedsim.audits.recorded import declaration, left_over, transcript_release, weighting
from fedsim.audits.recorded.left_over import Claims, Dither, Layout, Rounding
from fedsim.audits.recorded.recorded_noise import claimed_std, number
from fedsim.audits.recorded.transcript_findings import Asked, Measured, Notes
from fedsim.audits.recorded.transcript_release import EXCESS
from fedsim.audits.recorded.weighting import WEIGHTINGS, Weighting
from fedsim.federation.transcripts.records import ObservedRound

Floats = npt.NDArray[np.float64]

TOWARDS = (
    "whoever sees the aggregates and knows all other clients' updates (the server itself sees "
    "every update without noise)"
)

NO_MEAN = (
    "{} does not release the plain mean of the updates by Flower's own code: what is left over is "
    "not noise alone, and neither noise nor beliefs are measured; if it is a mean of clipped "
    "updates plus Gaussian noise, declare it: record(..., clipping_norm=, noise_multiplier=)"
)

NO_COUNT_NOISE = (
    "adaptive clipping releases a count of clipped updates, and no noise on it was recorded: "
    "epsilon has no upper limit that is known"
)

BAD_REPLY = "node {} sent numbers that are not finite, or other shapes; the round cannot be audited"

UNCLIPPED = (
    "node {} sent an update longer than the clipping norm, and nobody clipped it: is "
    "fixedclipping_mod missing?"
)


@dataclass(frozen=True)
class _Seen:
    """A round that can be audited: the model before and after it [P], and who replied.

    norm: what updates are clipped to, None if nothing is known to clip; by_server: whether the
        server clips them, after they were recorded
    """

    observed: ObservedRound
    layout: Layout
    before: Floats
    after: Floats
    norm: float | None
    by_server: bool

    def update(self, node: int) -> Floats | None:
        """Return a node's update [P] as it is averaged, None if its reply is no such model."""
        sent = self.layout.vector(self.observed.replies[node].arrays)
        if sent is None or not left_over.believable(sent):
            return None
        return noisy_means.clipped(sent - self.before, self.norm if self.by_server else None)


class ServerRounds:
    """What a server's transcript gives, round by round."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._weighting = Weighting()
        self._dither = Dither()

    def observe(self, observed: ObservedRound) -> None:
        """Take in the next round: subtract the mean of the updates, and keep what is left over."""
        seen = self._seen(observed)
        if seen is None:
            return
        weights = weighting.weights(observed)
        means = self._means(seen, weights)
        if means is not None:
            self._weighting.add(self._reduced(seen, weights, means), means)

    def measured(self, asked: Asked) -> Measured:
        """Return what all rounds so far say of the noise; append what is wrong."""
        findings = asked.findings
        name, basis = self._weighting.chosen(asked.mechanism.get("aggregation"))
        releases = self._weighting.releases(name)
        if not releases:
            findings.append(Finding("note", "", "no round released an aggregate; nothing to audit"))
            return Measured(unmeasured="no round released an aggregate")
        if why := _no_mean(releases, asked.mechanism):
            findings.append(Finding("caution", "", why))
            return Measured(unmeasured=why)
        declared = asked.mechanism.get("aggregation") == "declared"
        release = transcript_release.measured(releases, TOWARDS, asked, declared=declared)
        against = self._weighting.against
        release |= {
            "weighting": name,
            "weighting_basis": basis,
            "weighting_evidence": {f"against_{name}": against[name] for name in WEIGHTINGS},
        }
        if release["claimed_noise_multiplier"]:
            findings += self._weighting.imbalance(name, asked.mechanism)
        return Measured(release)

    def _seen(self, observed: ObservedRound) -> _Seen | None:
        """Return a round that can be audited; None, with a note why, for others."""
        if observed.aggregate is None or not observed.replies:
            text = "no aggregate: the round released nothing"
            self._notes.add("note", text, observed.round)
            return None
        layout = Layout.of(observed.model)
        before, after = vector(observed.model), layout.vector(observed.aggregate)
        if not before.size:
            text = "the model has no floating-point parameters"
            self._notes.add("alarm", text, observed.round)
            return None
        if after is None or not left_over.believable(after, before):
            text = "the model or its aggregate is not finite, or they differ in shape"
            self._notes.add("alarm", text, observed.round)
            return None
        norm = number(observed.mechanism, "clipping_norm")
        by_server = observed.mechanism.get("clipping") == "server"
        return _Seen(observed, layout, before, after, norm, by_server)

    def _means(
        self, seen: _Seen, weights: Mapping[str, Mapping[int, float]]
    ) -> dict[str, Floats] | None:
        """Return the mean of the updates [P] under each weighting; None if one is invalid."""
        means = {name: np.zeros_like(seen.before) for name in weights}
        for node in seen.observed.replies:
            update = seen.update(node)
            if update is None:
                self._notes.add("alarm", BAD_REPLY.format(node), seen.observed.round)
                return None
            if seen.norm and math.sqrt(update @ update) > seen.norm * (1 + EXCESS):
                self._notes.add("alarm", UNCLIPPED.format(node), seen.observed.round)
            for name in means:
                means[name] += weights[name][node] * update
        return means

    def _reduced(
        self,
        seen: _Seen,
        weights: Mapping[str, Mapping[int, float]],
        means: Mapping[str, Floats],
    ) -> dict[str, Release]:
        """Return the release under each weighting.

        Every update is worked out a second time, rather than all of them kept in memory.
        """
        observed = seen.observed
        noises = {name: seen.after - seen.before - mean for name, mean in means.items()}
        parts: dict[str, dict[int, Contribution]] = {name: {} for name in means}
        for node in observed.replies:
            update = seen.update(node)
            assert update is not None  # or there were no means
            for name, noise in noises.items():
                parts[name][node] = left_over.contribution(weights[name][node], update, noise)
        units = seen.layout.units(seen.before, seen.after)
        # Each of n updates is restored, weighted and summed in the model's precision: the partial
        # sums make up n/3 roundings of the whole; then come noise and what clients round.
        rounding = Rounding(units, len(observed.replies) / 3 + 3, self._dither.draw(units))
        claims = Claims(seen.norm, claimed_std(observed.mechanism), self._count_std(observed))
        return {
            name: left_over.reduced(
                observed.round, noise, parts[name], seen.layout, rounding, claims, means[name]
            )
            for name, noise in noises.items()
        }

    def _count_std(self, observed: ObservedRound) -> float | None:
        """Return the noise on the count that adaptive clipping releases, None if it is fixed."""
        mechanism = observed.mechanism
        before, after = (number(mechanism, f"{of}clipping_norm") for of in ("", "noise_"))
        moved = after is not None and before != after
        named = "AdaptiveClipping" in str(mechanism.get("strategy"))
        if not (mechanism.get("adaptive") is True or moved or named):
            return None
        found = number(mechanism, "clipped_count_std")
        if not found:
            self._notes.add("alarm", NO_COUNT_NOISE, observed.round)
        return found or 0.0


def _no_mean(releases: Sequence[Release], mechanism: Mapping[str, Any]) -> str:
    """Say why what is left over of the aggregates is not noise alone, "" if it is."""
    if all(release.noiseless for release in releases):
        return ""  # nothing is left over: it is the mean, whoever made it
    aggregation = mechanism.get("aggregation")
    if aggregation == "other":
        named = [str(mechanism.get(name)) for name in ("strategy", "inner_strategy")]
        return NO_MEAN.format(" > ".join(dict.fromkeys(named)))
    return declaration.misfit(releases) if aggregation == "declared" else ""
