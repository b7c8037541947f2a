"""From a recorded transcript to a report: what its vantage point learnt of each owner.

`Auditor` takes rounds one by one, keeps a few numbers of each, and can report at any time: the same
for a file and for a federation that is still running.

- The *server's* transcript has every update. What is left over of the aggregate is the noise, so
  its size is measured, and so is what the aggregate tells about one owner to somebody who knows all
  others.
- A *participant's* transcript with a local mechanism has its update before and after the noise: the
  same, towards the server.
- A participant's transcript with *canaries* measures the privacy of one update through whatever the
  server does, by a coin that only this client knows.

The unit of privacy is an owner's whole update of a round; neighbours differ in whether the owner's
update, or no change, is in the mean, under weights and a number of owners that stay as they are.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import FINGERPRINT, Contribution, Release
from adversaries.errors import InputError
from adversaries.statistics import canaries, gaussian
from adversaries.statistics.canaries import vector
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.common.strict_json import strict_json
from fedsim.transcript_audit import (
    client_noise,
    declaration,
    left_over,
    transcript_canary,
    transcript_claim,
    transcript_release,
)
from fedsim.transcript_audit.client_noise import Epsilon
from fedsim.transcript_audit.recorded_noise import (
    NUMBERS,
    claimed_local_std,
    claimed_std,
    number,
    unbelievable,
)
from fedsim.transcript_audit.transcript_canary import Scored
from fedsim.transcript_audit.transcript_claim import Claimed, Evidence
from fedsim.transcript_audit.transcript_findings import finding
from fedsim.transcript_audit.transcript_release import EXCESS, SIMULATION_SEED
from fedsim.transcripts.reader import Reader
from fedsim.transcripts.records import Arrays, Facts, ObservedRound, Transcript

Floats = npt.NDArray[np.float64]

LARGEST = 1e30
"""Parameters this large, and NaN, are refused: their squares, over those of noise, overflow."""

EVIDENCE = -math.log(1 - ALARM_CONFIDENCE)
"""The logarithm of an e-value that counts as proof: larger ones are that rare by chance."""

WEIGHTINGS = ("uniform", "examples")

NOTHING_MEASURED = (
    "a participant sees aggregates of unknown updates, from which no noise can be measured; attach "
    "canary_mod, record at the server, or record a local mechanism with recording_mod(local_dp=...)"
)

NO_MEAN = (
    "{} does not release the plain mean of the updates by Flower's own code: what is left over is "
    "not noise alone, and neither noise nor beliefs are measured; if it is a mean of clipped "
    "updates plus Gaussian noise, declare it: record(..., clipping_norm=, noise_multiplier=)"
)
WEIGHTED = (
    "the mean is weighted by num-examples: an owner weighs up to {heaviest:.3g}, while the noise "
    "presumes {presumed:.3g} of each, so that this owner is protected less than configured"
)

NO_COUNT_NOISE = (
    "adaptive clipping releases a count of clipped updates, and no noise on it was recorded: "
    "epsilon has no upper limit that is known"
)

UNBELIEVABLE = "the recorded {} is no number from 1e-30 to 1e30, nor 0: it is taken as not recorded"

FEWER = (
    "fewer owners replied than num_sampled_clients: each weighs up to {heaviest:.3g}, while the "
    "noise presumes {presumed:.3g}"
)


class Auditor:
    """Reads a transcript round by round. Not for several threads."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.rounds = 0
        self._last_round = -1
        self._releases: dict[str, list[Release]] = {name: [] for name in WEIGHTINGS}
        self._against = dict.fromkeys(WEIGHTINGS, 0.0)
        self._local: list[Release] = []
        self._scored: list[Scored] = []
        self._pending: ObservedRound | None = None
        self._mechanism: dict[str, Any] = {}
        self._findings: dict[tuple[str, str], list[int]] = {}
        self._reported: dict[int, list[Epsilon]] = {}
        self._dither = np.random.default_rng([SIMULATION_SEED, 0, 1])  # no bystanders'

    def observe(self, observed: ObservedRound) -> None:
        """Take in the next round."""
        self._mechanism |= {
            # Strict JSON has no NaN.
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in observed.mechanism.items()
        }
        for name in NUMBERS:
            if unbelievable(observed.mechanism.get(name)):
                self._note("caution", UNBELIEVABLE.format(name), observed.round)
        self._hear(observed)
        if observed.model or observed.replies:
            self.rounds += 1
            if observed.round <= self._last_round:
                self._note(
                    "caution",
                    "rounds were repeated: the recorded run was begun again, and every "
                    "attempt counts",
                    observed.round,
                )
            self._last_round = observed.round
        if self.facts.vantage == "server":
            self._observe_server(observed)
        else:
            self._observe_participant(observed)

    def report(
        self,
        delta: float,
        confidence: float,
        claimed_epsilon: float | None = None,
        claimed_unit: str | None = None,
        missing: str = "the run goes on",
    ) -> dict[str, Any]:
        """Return the report so far, as strict JSON values; infinity is null, said beside it.

        delta: at which every epsilon is stated; confidence: of every interval; claimed_unit: of
        `transcript.UNITS`, None for what was declared; missing: why rounds may be missing, of which
        a claim speaks too. Raises InputError for values out of range.
        """
        check(delta, confidence, claimed_epsilon, claimed_unit)
        findings = [
            {"severity": severity, "text": text, "rounds": rounds}
            for (severity, text), rounds in self._findings.items()
        ]
        release = canary = None
        reported = client_noise.composed(self._reported.values())
        if self.facts.vantage == "server":
            release = self._server_release(delta, confidence, findings)
        else:
            if self._local:
                towards = "the server, which sees this owner's noised update by itself"
                release = transcript_release.measured(
                    self._local, towards, delta, confidence, findings
                )
                self._check_local(release, findings)
            if self._scored:
                canary = transcript_canary.measured(self._scored, delta, confidence)
            if not self._local and not self._scored:
                findings.append(finding("note", NOTHING_MEASURED))
        if reported is not None:
            short = claimed_epsilon is not None and reported.total > claimed_epsilon
            findings.append(finding("caution" if short else "note", str(reported)))
        claim = None
        if claimed_epsilon is not None:
            evidence = Evidence(
                self._mechanism,
                release,
                canary,
                self._unmeasured(),
                reported,
                missing,
                any(one["severity"] == "alarm" for one in findings),
            )
            claimed = Claimed(claimed_epsilon, delta, claimed_unit)
            claim = transcript_claim.judge(claimed, evidence, findings)
        finite: dict[str, Any] = strict_json(
            {
                "kind": "transcript audit",
                "facts": asdict(self.facts),
                "rounds": self.rounds,
                "delta": delta,
                "confidence": confidence,
                "claim": claim,
                "reported": None if reported is None else asdict(reported),
                "mechanism": self._mechanism,
                "release": release,
                "canary": canary,
                "findings": findings,
            }
        )
        return finite

    def _hear(self, observed: ObservedRound) -> None:
        """Take in what clients report of their own epsilon."""
        heard = {
            node: client_noise.reported_epsilon(reply.metrics)
            for node, reply in observed.replies.items()
        }
        value = number(observed.mechanism, "client_epsilon")
        named = str(observed.mechanism.get("client_epsilon_metric", "epsilon"))
        own = None if value is None else Epsilon(value, named)
        for node, epsilon in (heard or {self.facts.node or 0: own}).items():
            if epsilon is not None:
                self._reported.setdefault(node, []).append(epsilon)

    def _unmeasured(self) -> str:
        """Say why there is no release."""
        if self.facts.vantage != "server":
            return NOTHING_MEASURED
        return self._no_mean() or "no round released an aggregate"

    def _note(self, severity: str, text: str, round: int) -> None:
        self._findings.setdefault((severity, text), []).append(round)

    def _observe_server(self, observed: ObservedRound) -> None:
        if observed.aggregate is None or not observed.replies:
            self._note("note", "no aggregate: the round released nothing", observed.round)
            return
        names = [name for name, array in observed.model.items() if array.dtype.kind == "f"]
        shapes = [observed.model[name].shape for name in names]
        before, after = vector(observed.model), left_over.aligned(observed.aggregate, names, shapes)
        if not before.size:
            self._note("alarm", "the model has no floating-point parameters", observed.round)
            return
        if after is None or not max(np.abs(after).max(), np.abs(before).max()) < LARGEST:
            self._note("alarm", "the aggregate is not finite, or has other shapes", observed.round)
            return
        mechanism = observed.mechanism
        norm = number(mechanism, "clipping_norm")
        server_clips = mechanism.get("clipping") == "server"

        def change(node: int) -> Floats | None:
            sent = left_over.aligned(observed.replies[node].arrays, names, shapes)
            if sent is None or not np.abs(sent).max() < LARGEST:
                return None
            return noisy_means.clipped(sent - before, norm if server_clips else None)

        candidates = {name: left_over.weights(observed, name) for name in WEIGHTINGS}
        weightings = {name: weights for name, weights in candidates.items() if weights}
        means = {name: np.zeros_like(before) for name in weightings}
        # Twice over the replies, rather than keeping every update.
        for node in observed.replies:
            update = change(node)
            if update is None:
                self._note(
                    "alarm",
                    f"node {node} sent numbers that are not finite, or other shapes; the round "
                    "cannot be audited",
                    observed.round,
                )
                return
            length = math.sqrt(update @ update)
            if norm and length > norm * (1 + EXCESS):
                self._note(
                    "alarm",
                    f"node {node} sent an update longer than the clipping norm, and nobody "
                    "clipped it: is fixedclipping_mod missing?",
                    observed.round,
                )
            for name in means:
                means[name] += weightings[name][node] * update
        sizes = {name: math.prod(shape) for name, shape in zip(names, shapes, strict=True)}
        lengths = {name: math.sqrt(mean @ mean) for name, mean in means.items()}
        # Each of n updates is restored, weighted and summed in the model's precision: the partial
        # sums make up n/3 roundings of the whole; then come noise and what clients round.
        rounding = len(observed.replies) / 3 + 3
        units = left_over.units_of(before, after, observed.model, names)
        dither = self._dithered(units)
        claimed, count_std = claimed_std(mechanism), self._count_std(observed)
        noises = {name: after - before - mean for name, mean in means.items()}
        parts: dict[str, dict[int, Contribution]] = {name: {} for name in means}
        for node in observed.replies:
            update = change(node)
            assert update is not None  # as before
            for name, noise in noises.items():
                parts[name][node] = left_over.contribution(weightings[name][node], update, noise)
        for name, noise in noises.items():
            release = left_over.reduced(
                observed.round,
                noise,
                dither,
                parts[name],
                sizes,
                units,
                rounding,
                norm,
                claimed,
                count_std,
                lengths[name],
                float(noise @ means[name]) / (lengths[name] or 1.0),
            )
            self._releases[name].append(release)
        if len(means) == len(WEIGHTINGS):
            self._weigh(means)

    def _dithered(self, units: Floats) -> Floats:
        """Return a dither for each coordinate of a fingerprint, even over one unit."""
        return units[:FINGERPRINT] * self._dither.uniform(-0.5, 0.5, units[:FINGERPRINT].size)

    def _weigh(self, means: Mapping[str, Floats]) -> None:
        """Take in what the last release says against either way to weight it."""
        apart = means["uniform"] - means["examples"]
        gap = float(apart @ apart)
        last = {name: self._releases[name][-1] for name in WEIGHTINGS}
        for name, other in (WEIGHTINGS, WEIGHTINGS[::-1]):
            one = last[name]
            said = noisy_means.evidence_against(one.energy, last[other].energy, gap, one.size)
            # What rounding may have left says nothing against the weights that left it.
            self._against[name] += min(said, 0.0) if one.noiseless else said

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
            self._note("alarm", NO_COUNT_NOISE, observed.round)
        return found or 0.0

    def _observe_participant(self, observed: ObservedRound) -> None:
        pending = self._pending
        if pending is not None:
            after = observed.aggregate if observed.round == pending.round else None
            if observed.model and observed.round == pending.round + 1:
                after = observed.model
            if pending.canary is not None and after is not None:
                self._score(pending, after)
        if observed.model:
            self._pending = observed
        if observed.unprotected is not None and observed.own:
            self._observe_local(observed)

    def _score(self, seen: ObservedRound, after: Arrays) -> None:
        canary = seen.canary
        assert canary is not None
        self._pending = None
        if vector(after).shape != vector(seen.model).shape:
            self._note("alarm", "the aggregate has other shapes", seen.round)
            return
        score = canaries.score(seen.model, after, canary.seed)
        if not math.isfinite(score):
            self._note("alarm", "the aggregate is not finite", seen.round)
            return
        self._scored.append(Scored(seen.round, canary.coin, score))

    def _observe_local(self, observed: ObservedRound) -> None:
        names = [name for name, array in observed.model.items() if array.dtype.kind == "f"]
        shapes = [observed.model[name].shape for name in names]
        before = vector(observed.model)
        trained = left_over.aligned(observed.unprotected or {}, names, shapes)
        sent = left_over.aligned(observed.own, names, shapes)
        if not before.size or trained is None or sent is None:
            self._note("alarm", "the update has other shapes than the model", observed.round)
            return
        if not max(np.abs(part).max() for part in (before, trained, sent)) < LARGEST:
            self._note("alarm", "the update is not finite", observed.round)
            return
        norm = number(observed.mechanism, "local_clipping_norm")
        change = noisy_means.clipped(trained - before, norm)
        node, noise = self.facts.node or 0, sent - before - change
        sizes = {name: math.prod(shape) for name, shape in zip(names, shapes, strict=True)}
        units = left_over.units_of(before, sent, observed.model, names)
        self._local.append(
            left_over.reduced(
                observed.round,
                noise,
                self._dithered(units),
                {node: left_over.contribution(1.0, change, noise)},
                sizes,
                units,
                # The update is clipped, restored, and gets its noise in the model's precision.
                3,
                norm,
                claimed_local_std(observed.mechanism),
            )
        )

    def _server_release(
        self, delta: float, confidence: float, findings: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        if not self._releases["uniform"]:
            findings.append(finding("note", "no round released an aggregate; nothing to audit"))
            return None
        weighting, basis = self._weighting()
        towards = (
            "whoever sees the aggregates and knows all other owners' updates (the server itself "
            "sees every update without noise)"
        )
        if why := self._no_mean():
            findings.append(finding("caution", why))
            return None
        release = transcript_release.measured(
            self._releases[weighting],
            towards,
            delta,
            confidence,
            findings,
            declared=self._mechanism.get("aggregation") == "declared",
        )
        release |= {
            "weighting": weighting,
            "weighting_basis": basis,
            "weighting_evidence": {f"against_{name}": self._against[name] for name in WEIGHTINGS},
        }
        if release["claimed_noise_multiplier"]:
            self._check_weights(weighting, findings)
        return release

    def _no_mean(self) -> str:
        """Say why what is left over of the aggregates is not noise alone, "" if it is."""
        aggregation = self._mechanism.get("aggregation")
        releases = self._releases[self._weighting()[0]]
        if not releases or all(release.noiseless for release in releases):
            return ""  # nothing is left over: it is the mean, whoever made it
        if aggregation == "other":
            named = [str(self._mechanism.get(name)) for name in ("strategy", "inner_strategy")]
            return NO_MEAN.format(" > ".join(dict.fromkeys(named)))
        return declaration.misfit(releases) if aggregation == "declared" else ""

    def _weighting(self) -> tuple[str, str]:
        """Return how replies are weighted, and what says so.

        FedAvg's own code, and a declared plain mean, are believed unless the aggregates prove them
        wrong.
        """
        uniform, examples = (self._releases[name] for name in WEIGHTINGS)
        if len(uniform) != len(examples):
            return "uniform", "some node did not say how many examples it has"
        aggregation = self._mechanism.get("aggregation")
        if aggregation == "mean" and self._against["examples"] <= EVIDENCE:
            return "examples", "FedAvg's own code"
        if aggregation == "declared" and self._against["uniform"] <= EVIDENCE:
            return "uniform", "what was declared"
        likelier = self._against["uniform"] > self._against["examples"]
        return ("examples" if likelier else "uniform"), "the aggregate"

    def _check_weights(self, weighting: str, findings: list[dict[str, Any]]) -> None:
        """Look for owners that weigh more in the mean than the 1/n that the noise presumes."""
        presumed = 1 / max(1.0, number(self._mechanism, "num_sampled_clients") or 1.0)
        releases = self._releases[weighting]
        heaviest = max(part.weight for one in releases for part in one.contributions.values())
        if heaviest <= presumed * (1 + EXCESS):
            return
        if all(len({part.weight for part in one.contributions.values()}) == 1 for one in releases):
            text, severity = FEWER, "alarm"
        elif self._against["uniform"] > EVIDENCE:
            text, severity = f"{WEIGHTED}; the aggregates prove it", "alarm"
        else:
            text, severity = f"{WEIGHTED}; by FedAvg's code, too few rounds to see it", "caution"
        findings.append(finding(severity, text.format(heaviest=heaviest, presumed=presumed)))

    def _check_local(self, release: Mapping[str, Any], findings: list[dict[str, Any]]) -> None:
        """Compare the epsilon that LocalDpMod was given with that of the noise it added."""
        claimed = number(self._mechanism, "local_epsilon")
        delta = number(self._mechanism, "local_delta")
        multiplier = release["proven"]["noise_multiplier"]
        if claimed is None or not delta or not 0 < delta < 1 or multiplier is None:
            return
        high = multiplier["high"]
        real = gaussian.epsilon(1 / high if high else math.inf, delta)
        if real > claimed:
            findings.append(
                finding(
                    "alarm",
                    f"LocalDpMod claims epsilon {claimed:g} a round at delta {delta:g}; noise and "
                    f"clipping give at least {real:.3g}",
                )
            )


def audit(
    transcript: Transcript | Reader,
    delta: float = 1e-5,
    confidence: float = 0.95,
    claimed_epsilon: float | None = None,
    claimed_unit: str | None = None,
) -> dict[str, Any]:
    """Return the report of a whole transcript. Raises InputError for values out of range.

    A `Reader` is read to its end, one round in memory at a time.
    """
    check(delta, confidence, claimed_epsilon, claimed_unit)
    auditor = Auditor(transcript.facts)
    rounds = transcript.rounds() if isinstance(transcript, Reader) else transcript.rounds
    for observed in rounds:
        auditor.observe(observed)
    report = auditor.report(delta, confidence, claimed_epsilon, claimed_unit, _missing(transcript))
    report["transcript"] = {
        "ended": transcript.ended,
        "incomplete": transcript.incomplete,
        "torn_bytes": transcript.torn,
    }
    if transcript.incomplete:
        text = f"the transcript is incomplete: {transcript.incomplete}"
        report["findings"].insert(0, finding("caution", text))
    if transcript.torn:
        text = "the last round was not finished when the recorder stopped; it was dropped"
        report["findings"].append(finding("note", text))
    return report


def _missing(transcript: Transcript | Reader) -> str:
    """Return why rounds may be missing of a transcript that was read to its end."""
    if transcript.incomplete:
        return f"the transcript is incomplete ({transcript.incomplete})"
    # No client is told that a run has ended.
    if transcript.torn or (transcript.facts.vantage == "server" and not transcript.ended):
        return "the transcript does not say that the run has ended"
    return ""


def check(
    delta: float,
    confidence: float,
    claimed_epsilon: float | None,
    claimed_unit: str | None = None,
) -> None:
    """Raise InputError for values that no report can be stated at."""
    for name, value in (("delta", delta), ("confidence", confidence)):
        if not 0 < value < 1:
            raise InputError(f"{name} is {value}; it must lie between 0 and 1")
    if claimed_epsilon is not None and not 0 <= claimed_epsilon < math.inf:
        raise InputError(f"the claimed epsilon is {claimed_epsilon}; give a number of at least 0")
    if claimed_unit is not None and claimed_epsilon is None:
        raise InputError("a claimed unit is of a claim; give --claimed-epsilon with it")
