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
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.judge import Finding, Severity
from fedsim.audits.recorded import left_over, noise_level, transcript_release
from fedsim.audits.recorded.left_over import Claims, Dither, Layout, Rounding
from fedsim.audits.recorded.recorded_noise import claimed_std, number
from fedsim.audits.recorded.transcript_findings import Asked, Measured, Notes
from fedsim.audits.recorded.transcript_release import EXCESS
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

MISFIT = (
    "what was declared does not fit: what is left over moves with the updates, so that the "
    "aggregate is no mean of updates clipped to this norm; neither noise nor beliefs are measured. "
    "Declare nothing where clipping is adaptive or of single arrays, or an optimiser follows"
)

RATE = (
    "the noise is less than declared, and the mean may be less by the same factor: a server "
    "learning rate below 1, or an optimiser, which cost no privacy, leave over just this; neither "
    "noise nor beliefs are measured. Record a run with a server learning rate of 1"
)

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
        weighted = weights(observed)
        means = self._means(seen, weighted)
        if means is not None:
            self._weighting.add(self._reduced(seen, weighted, means), means)

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
    return misfit(releases) if aggregation == "declared" else ""


def misfit(releases: Sequence[Release]) -> str:
    """Return why noise and beliefs cannot be told from what is left over, "" if they can."""
    # Half of what an alarm may miss for the size of the rate, half for what it then leaves over.
    doubt = (1 - ALARM_CONFIDENCE) / 2
    less = noise_level.measured(releases, ALARM_CONFIDENCE).verdict == "less"
    if less and noisy_means.scaled_fit(releases, 1 - doubt) >= doubt:
        return RATE
    return MISFIT if noisy_means.fit(releases) < 1 - ALARM_CONFIDENCE else ""


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
