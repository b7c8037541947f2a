"""A participant's transcript, round by round: its own noise, and the canaries that it planted."""

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
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded import left_over, transcript_release
from fedsim.audits.recorded.filter_rounds import FILTER, ShareRounds, SvtRounds
from fedsim.audits.recorded.left_over import Claims, Dither, Layout, Rounding
from fedsim.audits.recorded.recorded_noise import Asked, Measured, Notes, claimed_local_std, number
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

TOWARDS = "the server, which sees this client's noised update by itself"

NOTHING_MEASURED = (
    "a participant sees aggregates of unknown updates, which show no noise; attach canary_mod, "
    "record at the server, or record a local mechanism with recording_mod(local_dp=...)"
)


SELECTION = (
    "the audit measures SVTPrivacy's noise on the numbers that it sends, but not what its choice "
    "of numbers reveals: a claim can be disproved, and not supported"
)


NO_NOISE = (
    "PercentilePrivacy cuts and clips numbers, and adds no noise: epsilon of what it sends is "
    "infinite"
)

UNCLIPPED = (
    "the noise on the updates moves with them (p = {:.1g}): they were not clipped to the declared "
    "norm, or the noise follows them"
)

UNDECLARED = (
    "the noise of {} cannot be read. If it clips the whole update (L2) and adds Gaussian noise, "
    "declare that: NVFlareFilter(..., clipping_norm=, noise_std=)"
)


class ParticipantRounds:
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

    def measured(self, options: Asked) -> Measured:
        findings = options.findings
        release = canary = None
        if self._local:
            release = transcript_release.measured(self._local, TOWARDS, options)
            findings += _understated(release, options.mechanism)
            unlikely = noisy_means.fit(self._local)
            if unlikely < 1 - ALARM_CONFIDENCE:
                findings.append(Finding("alarm", "", UNCLIPPED.format(unlikely)))
        if self._scored:
            canary = canary_measured(self._scored, options.delta, options.confidence)
        if self._unread:
            share = self._share.measured() if self._unread == {FILTER} else None
            if share is not None:
                why, filtered = share
            elif self._unread == {"PercentilePrivacy"}:
                identified = {"epsilon": math.inf, "by": "the class's name"}
                why, filtered = NO_NOISE, {"filter": "PercentilePrivacy", "identified": identified}
            else:
                why, filtered = UNDECLARED.format(" and ".join(sorted(self._unread))), None
            findings.append(Finding("caution", "", why))
            return Measured(None, canary, why, "client", filtered)
        filtered = self._svt.measured(options)
        if filtered is not None:
            return Measured(release, canary, SELECTION, filtered=filtered)
        if release is None and canary is None:
            findings.append(Finding("note", "", NOTHING_MEASURED))
        return Measured(release, canary, "" if release else NOTHING_MEASURED)

    def _score(self, observed: ObservedRound, canary: Canary, after: Arrays) -> None:
        if vector(after).shape != vector(observed.model).shape:
            self._notes.add("alarm", "the aggregate has other shapes", observed.round)
            return
        score = canaries.score(observed.model, after, canary.seed)
        if not math.isfinite(score):
            self._notes.add("alarm", "the aggregate is not finite", observed.round)
            return
        self._scored.append(Scored(observed.round, canary.coin, score))

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
            # Clipping, restoring and noise each round in the model's precision.
            Rounding(units, 3, self._dither.draw(units)),
            Claims(norm, claimed_local_std(observed.mechanism)),
            change,
        )
        self._local.append(release)


def _understated(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> list[Finding]:
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
    """A canary round with a known outcome."""

    round: int
    coin: bool
    score: float


def canary_measured(scored: Sequence[Scored], delta: float, confidence: float) -> dict[str, Any]:
    """Return the measurement by a client's canaries, as report.json has it."""
    coins = np.array([one.coin for one in scored])
    scores = np.array([one.score for one in scored])
    effect = canaries.effect(coins, scores, confidence)
    odds = canaries.prequential_log_odds(coins, scores)
    right, guesses, proven = canaries.success_bound(coins, odds, delta, confidence)
    one = {"point": effect.mu, "low": effect.interval.low, "high": effect.interval.high}
    if effect.reason:
        one["point"] = None  # type: ignore[assignment]
    rounds = math.sqrt(len(scored))
    least = canaries.effect(coins, scores, ALARM_CONFIDENCE).interval.low * rounds
    composed = {name: None if mu is None else max(0.0, mu) * rounds for name, mu in one.items()}
    return {
        "towards": "any observer of the global models, such as a participant",
        "rounds": len(scored),
        "loud": int(coins.sum()),
        "mu": one | {"confidence": confidence},
        "reason": effect.reason,
        "p_value": effect.p_value,
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
            "mu: scores are normal with one variance. Other clients' updates hide the canary too, "
            "so that mu is what an outsider faces, at most that of the noise alone",
            "all rounds: each is as loud as the measured ones, and all are about one secret",
            "proven of one round: only that the coin is fair",
        ],
    }


def _epsilons(mu: Mapping[str, float | None], delta: float) -> dict[str, float | None]:
    return {
        name: None if value is None else gaussian.epsilon(max(0.0, value), delta)
        for name, value in mu.items()
    }
