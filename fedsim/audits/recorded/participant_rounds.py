"""A participant's transcript, round by round: its own noise, and the canaries that it hid."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.statistics import canaries, gaussian
from adversaries.statistics.canaries import vector
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.judge import Finding
from fedsim.audits.recorded import left_over, transcript_release
from fedsim.audits.recorded.filter_rounds import FILTER, ShareRounds, SvtRounds
from fedsim.audits.recorded.left_over import Claims, Dither, Layout, Rounding
from fedsim.audits.recorded.recorded_noise import claimed_local_std, number
from fedsim.audits.recorded.transcript_findings import Asked, Measured, Notes
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

TOWARDS = "the server, which sees this client's noised update by itself"

NOTHING_MEASURED = (
    "a participant sees aggregates of unknown updates, from which no noise can be measured; attach "
    "canary_mod, record at the server, or record a local mechanism with recording_mod(local_dp=...)"
)


SELECTION = (
    "of SVTPrivacy the noise of what it sends is measured, and what its choice of numbers tells is "
    "not: a claim can be disproved, and not supported"
)


NO_NOISE = (
    "PercentilePrivacy cuts and clips numbers, and adds no noise: of what it sends epsilon is "
    "infinite"
)

UNCLIPPED = (
    "what was added to the updates moves with them (p = {:.1g}): they were not clipped to the norm "
    "that was declared, or the noise follows them"
)

UNDECLARED = (
    "what {} adds cannot be read: if it clips the whole update (L2) and adds Gaussian noise, say "
    "so: NVFlareFilter(..., clipping_norm=, noise_std=)"
)


class ParticipantRounds:
    """What a participant's transcript gives, round by round; node: whose it is."""

    def __init__(self, notes: Notes, node: int) -> None:
        self._notes = notes
        self._node = node
        self._dither = Dither()
        self._local: list[Release] = []
        self._svt = SvtRounds(notes)
        self._share = ShareRounds()
        self._unread: set[str] = set()
        self._scored: list[Scored] = []
        self._pending: ObservedRound | None = None

    def observe(self, observed: ObservedRound) -> None:
        """Take in the next round, and with its model the outcome of the one before."""
        pending = self._pending
        if pending is not None:
            after = observed.aggregate if observed.round == pending.round else None
            if observed.model and observed.round == pending.round + 1:
                after = observed.model
            if pending.canary is not None and after is not None:
                self._pending = None
                self._score(pending, pending.canary, after)
        if observed.model:
            self._pending = observed
        named = str(observed.mechanism.get("filter", ""))
        declared = "local_noise_std" in observed.mechanism
        if named == "SVTPrivacy":
            self._svt.observe(observed)
        elif named and not declared:
            self._unread.add(named)
            if named == FILTER:
                self._share.observe(observed)
        elif observed.unprotected is not None and observed.own:
            self._observe_local(observed, observed.unprotected)

    def measured(self, asked: Asked) -> Measured:
        """Return what all rounds so far say of noise and canaries; append what is wrong."""
        findings = asked.findings
        release = canary = None
        if self._local:
            release = transcript_release.measured(self._local, TOWARDS, asked)
            findings += _understated(release, asked.mechanism)
            unlikely = noisy_means.fit(self._local)
            if unlikely < 1 - ALARM_CONFIDENCE:
                findings.append(Finding("alarm", "", UNCLIPPED.format(unlikely)))
        if self._scored:
            canary = canary_measured(self._scored, asked.delta, asked.confidence)
        if self._unread:
            share = self._share.measured() if self._unread == {FILTER} else None
            if share is not None:
                why, known = share
            elif self._unread == {"PercentilePrivacy"}:
                identified = {"epsilon": math.inf, "by": "the class's name"}
                why, known = NO_NOISE, {"filter": "PercentilePrivacy", "identified": identified}
            else:
                why, known = UNDECLARED.format(" and ".join(sorted(self._unread))), None
            findings.append(Finding("caution", "", why))
            return Measured(None, canary, why, "client", known)
        filtered = self._svt.measured(asked)
        if filtered is not None:
            return Measured(release, canary, SELECTION, filtered=filtered)
        if release is None and canary is None:
            findings.append(Finding("note", "", NOTHING_MEASURED))
        return Measured(release, canary, "" if release else NOTHING_MEASURED)

    def _score(self, seen: ObservedRound, canary: Canary, after: Arrays) -> None:
        if vector(after).shape != vector(seen.model).shape:
            self._notes.add("alarm", "the aggregate has other shapes", seen.round)
            return
        score = canaries.score(seen.model, after, canary.seed)
        if not math.isfinite(score):
            self._notes.add("alarm", "the aggregate is not finite", seen.round)
            return
        self._scored.append(Scored(seen.round, canary.coin, score))

    def _observe_local(self, observed: ObservedRound, unprotected: Arrays) -> None:
        layout = Layout.of(observed.model)
        before = vector(observed.model)
        trained, sent = layout.vector(unprotected), layout.vector(observed.own)
        if not before.size or trained is None or sent is None:
            text = "the update has other shapes than the model"
            self._notes.add("alarm", text, observed.round)
            return
        if not left_over.believable(before, trained, sent):
            self._notes.add("alarm", "the update is not finite", observed.round)
            return
        norm = number(observed.mechanism, "local_clipping_norm")
        change = noisy_means.clipped(trained - before, norm)
        noise = sent - before - change
        units = layout.units(before, sent)
        release = left_over.reduced(
            observed.round,
            noise,
            {self._node: left_over.contribution(1.0, change, noise)},
            layout,
            # The update is clipped, restored, and gets its noise in the model's precision.
            Rounding(units, 3, self._dither.draw(units)),
            Claims(norm, claimed_local_std(observed.mechanism)),
            change,
        )
        self._local.append(release)


def _understated(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> list[Finding]:
    """Return what is wrong if the noise gives more than the epsilon that LocalDpMod was given."""
    claimed = number(mechanism, "local_epsilon")
    delta = number(mechanism, "local_delta")
    multiplier = release["proven"]["noise_multiplier"]
    if claimed is None or not delta or not 0 < delta < 1 or multiplier is None:
        return []
    high = multiplier["high"]
    real = gaussian.epsilon(1 / high if high else math.inf, delta)
    if real <= claimed:
        return []
    text = (
        f"LocalDpMod claims epsilon {claimed:g} a round at delta {delta:g}; noise and clipping "
        f"give at least {real:.3g}"
    )
    return [Finding("alarm", "", text)]


@dataclass(frozen=True)
class Scored:
    """A canary round whose outcome was seen.

    Attributes:
        round: its number in the transcript.
        coin: whether the client sent the long canary rather than the short one.
        score: how far the model moved along the canary, as `canaries.score` has it.
    """

    round: int
    coin: bool
    score: float


def canary_measured(scored: Sequence[Scored], delta: float, confidence: float) -> dict[str, Any]:
    """Return what the canaries of a client measured, as report.json has it.

    Args:
        scored: rounds of one client, in order: a belief is judged by those before it.
        confidence: of the intervals and the bound of one round; that of all rounds under "proven"
            holds with `ALARM_CONFIDENCE`.
    """
    coins = np.array([one.coin for one in scored])
    scores = np.array([one.score for one in scored])
    found = canaries.effect(coins, scores, confidence)
    odds = canaries.prequential_log_odds(coins, scores)
    right, guesses, proven = canaries.success_bound(coins, odds, delta, confidence)
    one = {"point": found.mu, "low": found.interval.low, "high": found.interval.high}
    if found.reason:
        one["point"] = None  # type: ignore[assignment]
    rounds = math.sqrt(len(scored))
    least = canaries.effect(coins, scores, ALARM_CONFIDENCE).interval.low * rounds
    composed = {name: None if mu is None else max(0.0, mu) * rounds for name, mu in one.items()}
    return {
        "towards": "whoever sees the global models, as any participant does",
        "rounds": len(scored),
        "loud": int(coins.sum()),
        "mu": one | {"confidence": confidence},
        "reason": found.reason,
        "p_value": found.p_value,
        "epsilon_one_round": _epsilons(one, delta),
        "epsilon_all_rounds": _epsilons(composed, delta),
        "guesses": guesses,
        "right_guesses": right,
        "epsilon_proven_one_round": proven,
        "proven": {
            "confidence": ALARM_CONFIDENCE,
            "epsilon_all_rounds": gaussian.epsilon(max(0.0, least), delta),
        },
        "round_numbers": [one.round for one in scored],
        "scores": scores.tolist(),
        "coins": coins.tolist(),
        "log_odds": odds.tolist(),
        "belief": expit(odds).tolist(),
        "assumptions": [
            "mu: scores normal, of one variance; other clients' updates hide the canary too, so mu "
            "is what an outsider faces, at most that of the noise alone",
            "all rounds: each as loud as the rounds measured, and all of them about one secret",
            "proven of one round: nothing but a fair coin",
        ],
    }


def _epsilons(mu: Mapping[str, float | None], delta: float) -> dict[str, float | None]:
    return {
        name: None if value is None else gaussian.epsilon(max(0.0, value), delta)
        for name, value in mu.items()
    }
