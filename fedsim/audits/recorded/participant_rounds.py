"""A participant's transcript, round by round: its own noise, and the canaries that it planted."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.bounds import canaries
from adversaries.bounds.canaries import vector
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded import noise_level
from fedsim.audits.recorded.noise_level import Claims, NoiseLevel, OpenEstimate, Reducer
from fedsim.audits.recorded.recorded_noise import Asked, MeasuredRounds, Notes, claimed_local_std
from fedsim.audits.recorded.releases import CanaryReport, noise_multipliers, updates_measured
from fedsim.audits.steps.step import number
from fedsim.federation.transcripts.layout import Layout
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

NOTHING_MEASURED = (
    "a participant sees only aggregates of unknown updates, which do not show the noise; attach "
    "canary_mod, record at the server, or record a local mechanism with "
    "recording_mod(local_dp=...)"
)
UNCLIPPED = (
    "the noise moves with the updates (p = {:.1g}): the updates were not clipped to the declared "
    "norm, or the noise depends on them"
)
UNDERSTATED = (
    "LocalDpMod claims epsilon {:g} a round at delta {:g}, but its noise and clipping give at "
    "least {:.3g}"
)


class ParticipantRounds:
    def __init__(self, notes: Notes, node: int) -> None:
        self._notes, self._node = notes, node
        self._reducer = Reducer()
        self._local: list[Release] = []
        self._scored: list[tuple[bool, float]] = []  # coin and score of a round
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
            level = noise_level.measured(self._local, options.confidence)
            findings += noise_level.all_findings(level, self._local)
            limits = options.delta, options.confidence
            release = updates_measured(self._local, level, *limits)
            findings += _understated(self._local, level, options.mechanism)
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
        if math.isfinite(score):
            self._scored.append((canary.coin, score))
        else:
            self._notes.add("alarm", "the aggregate is not finite", observed.round)

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
        parts = {self._node: noise_level.contribution(1.0, change, noise)}
        claims = Claims(norm, claimed_local_std(observed.mechanism))
        # Clipping, restoring and noise each round in the model's precision.
        rounded = layout, layout.units(before, sent), 3.0, claims
        self._local.append(self._reducer.reduced(observed.round, noise, parts, *rounded, change))


def _understated(
    releases: Sequence[Release], level: NoiseLevel, mechanism: Mapping[str, Any]
) -> list[Finding]:
    claimed = number(mechanism, "local_epsilon")
    delta = number(mechanism, "local_delta")
    multiplier = noise_multipliers(releases, level.sure_stds(releases))
    if claimed is None or not delta or not 0 < delta < 1 or multiplier is None:
        return []
    # The most noise that the measurement allows gives the least epsilon.
    real = gaussian.epsilon(1 / multiplier.high if multiplier.high else math.inf, delta)
    return [Finding(UNDERSTATED.format(claimed, delta, real))] if real > claimed else []


def canary_measured(
    scored: Sequence[tuple[bool, float]], delta: float, confidence: float
) -> CanaryReport:
    """Return what canaries show: of each round the coin and the score."""
    coins, scores = (np.array(each) for each in zip(*scored, strict=True))
    effect = canaries.effect(coins, scores, confidence)
    # The mu of k equal releases is sqrt(k) times that of one.
    rounds = math.sqrt(len(scored))

    def epsilon(mu: float) -> float:
        return gaussian.epsilon(max(0.0, mu) * rounds, delta)

    low, high = effect.interval.ends
    shown = effect.reason is None
    least = canaries.effect(coins, scores, ALARM_CONFIDENCE).interval.low
    return CanaryReport(
        rounds=len(scored),
        loud=int(coins.sum()),
        mu=OpenEstimate(effect.mu if shown else None, low, high),
        reason=effect.reason,
        epsilon_all_rounds=OpenEstimate(
            epsilon(effect.mu) if shown else None, epsilon(low), epsilon(high)
        ),
        epsilon_proven_all_rounds=epsilon(least),
    )
