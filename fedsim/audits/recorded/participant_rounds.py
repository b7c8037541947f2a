"""A participant's transcript, round by round: its own noise, and the canaries that it planted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.bounds import canaries
from adversaries.bounds.canaries import vector
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded import noise_level, transcript_release
from fedsim.audits.recorded.noise_level import Claims, Dither, Rounding
from fedsim.audits.recorded.recorded_noise import Asked, MeasuredRounds, Notes, claimed_local_std
from fedsim.audits.recorded.recorded_report import (
    CanaryReport,
    OpenEstimate,
    ReleaseReport,
)
from fedsim.audits.steps.step import number
from fedsim.federation.transcripts.layout import Layout
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

TOWARDS = "the server, which sees this client's noised update by itself"

NOTHING_MEASURED = (
    "a participant sees only aggregates of unknown updates, which do not show the noise; attach "
    "canary_mod, record at the server, or record a local mechanism with "
    "recording_mod(local_dp=...)"
)


UNCLIPPED = (
    "the noise moves with the updates (p = {:.1g}): the updates were not clipped to the declared "
    "norm, or the noise depends on them"
)


class ParticipantRounds:
    def __init__(self, notes: Notes, node: int) -> None:
        self._notes = notes
        self._node = node
        self._dither = Dither()
        self._local: list[Release] = []
        self._scored: list[ScoredRounds] = []
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
        if observed.unprotected is not None and observed.own:
            self._observe_local(observed, observed.unprotected)

    def measured(self, options: Asked) -> MeasuredRounds:
        findings = options.findings
        release = canary = None
        if self._local:
            release = transcript_release.measured(self._local, TOWARDS, options)
            findings += _understated(release, options.mechanism)
            unlikely = noisy_means.fit(self._local)
            if unlikely < 1 - ALARM_CONFIDENCE:
                findings.append(Finding(UNCLIPPED.format(unlikely)))
        if self._scored:
            canary = canary_measured(self._scored, options.delta, options.confidence)
        if release is None and canary is None:
            findings.append(Finding(NOTHING_MEASURED, severity="note"))
        return MeasuredRounds(release, canary, "" if release else NOTHING_MEASURED)

    def _score(self, observed: ObservedRound, canary: Canary, after: Arrays) -> None:
        if vector(after).shape != vector(observed.model).shape:
            text = "the aggregate has other shapes than the model"
            self._notes.add("alarm", text, observed.round)
            return
        score = canaries.score(observed.model, after, canary.seed)
        if not math.isfinite(score):
            self._notes.add("alarm", "the aggregate is not finite", observed.round)
            return
        self._scored.append(ScoredRounds(observed.round, canary.coin, score))

    def _observe_local(self, observed: ObservedRound, unprotected: Arrays) -> None:
        layout = Layout.of(observed.model)
        before = vector(observed.model)
        trained, sent = layout.vector(unprotected), layout.vector(observed.own)
        if not before.size or trained is None or sent is None:
            text = "the update has other shapes than the model"
            self._notes.add("alarm", text, observed.round)
            return
        if not noise_level.believable(before, trained, sent):
            self._notes.add("alarm", "the update is not finite", observed.round)
            return
        norm = number(observed.mechanism, "local_clipping_norm")
        change = noisy_means.clipped(trained - before, norm)
        noise = sent - before - change
        units = layout.units(before, sent)
        release = noise_level.reduced(
            observed.round,
            noise,
            {self._node: noise_level.contribution(1.0, change, noise)},
            layout,
            # Clipping, restoring and noise each round in the model's precision.
            Rounding(units, 3, self._dither.draw(units)),
            Claims(norm, claimed_local_std(observed.mechanism)),
            change,
        )
        self._local.append(release)


def _understated(release: ReleaseReport, mechanism: Mapping[str, Any]) -> list[Finding]:
    claimed = number(mechanism, "local_epsilon")
    delta = number(mechanism, "local_delta")
    multiplier = release.proven.noise_multiplier
    if claimed is None or not delta or not 0 < delta < 1 or multiplier is None:
        return []
    # The most noise that the measurement allows gives the least epsilon.
    high = multiplier.high
    real = gaussian.epsilon(1 / high if high else math.inf, delta)
    if real <= claimed:
        return []
    text = (
        f"LocalDpMod claims epsilon {claimed:g} a round at delta {delta:g}, but its noise and "
        f"clipping give at least {real:.3g}"
    )
    return [Finding(text)]


@dataclass(frozen=True)
class ScoredRounds:
    round: int
    coin: bool
    score: float


def canary_measured(
    scored: Sequence[ScoredRounds], delta: float, confidence: float
) -> CanaryReport:
    coins = np.array([one.coin for one in scored])
    scores = np.array([one.score for one in scored])
    effect = canaries.effect(coins, scores, confidence)
    odds = canaries.prequential_log_odds(coins, scores)
    right, guesses, proven = canaries.success_bound(coins, odds, delta, confidence)
    point = None if effect.reason else effect.mu
    mu = OpenEstimate(point, *effect.interval.ends)
    # The mu of k equal releases is sqrt(k) times that of one.
    rounds = math.sqrt(len(scored))
    least = canaries.effect(coins, scores, ALARM_CONFIDENCE).interval.low * rounds
    return CanaryReport(
        towards="any observer of the global models, such as a participant",
        rounds=len(scored),
        loud=int(coins.sum()),
        mu=mu,
        reason=effect.reason,
        p_value=effect.p_value,
        epsilon_one_round=_epsilons(mu, 1.0, delta),
        epsilon_all_rounds=_epsilons(mu, rounds, delta),
        guesses=guesses,
        right_guesses=right,
        epsilon_proven_one_round=proven,
        epsilon_proven_all_rounds=gaussian.epsilon(max(0.0, least), delta),
        round_numbers=[one.round for one in scored],
        scores=scores.tolist(),
        coins=coins.tolist(),
        log_odds=odds.tolist(),
        belief=expit(odds).tolist(),
        assumptions=[
            "mu: scores are normal with one variance. Other clients' updates hide the canary "
            "too, so that mu describes an outsider, and is at most the mu of the noise alone",
            "all rounds: the canary is as loud in each as in the measured ones, and all are "
            "about one secret",
            "proven of one round: assumes only that the coin is fair",
        ],
    )


def _epsilons(mu: OpenEstimate, factor: float, delta: float) -> OpenEstimate:
    """Return the epsilons of a signal-to-noise ratio and of its ends, each times a factor."""
    point = None if mu.point is None else gaussian.epsilon(max(0.0, mu.point) * factor, delta)
    low, high = (gaussian.epsilon(max(0.0, end) * factor, delta) for end in (mu.low, mu.high))
    return OpenEstimate(point, low, high)
