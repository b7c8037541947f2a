"""A participant's transcript, round by round: the canaries that it planted."""

import math
from collections.abc import Sequence

import numpy as np

from adversaries.bounds import canaries
from adversaries.bounds.canaries import vector
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.noise_level import OpenEstimate
from fedsim.audits.recorded.releases import Asked, CanaryReport, MeasuredRounds, Notes
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

NOTHING_MEASURED = (
    "a participant sees only aggregates of unknown updates, which do not show the noise; attach "
    "canary_mod, or record at the server"
)


class ParticipantRounds:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
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

    def measured(self, options: Asked) -> MeasuredRounds:
        if not self._scored:
            options.findings.append(Finding(NOTHING_MEASURED, severity="note"))
            return MeasuredRounds(unmeasured=NOTHING_MEASURED)
        canary = canary_measured(self._scored, options.delta, options.confidence)
        return MeasuredRounds(canary=canary, unmeasured=NOTHING_MEASURED)

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
        mu=OpenEstimate(effect.mu if shown else None, low, high),
        reason=effect.reason,
        epsilon_all_rounds=OpenEstimate(
            epsilon(effect.mu) if shown else None, epsilon(low), epsilon(high)
        ),
        epsilon_proven_all_rounds=epsilon(least),
    )
