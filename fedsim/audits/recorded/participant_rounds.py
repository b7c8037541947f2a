"""A participant's transcript, round by round: the canaries that it planted."""

import math

import numpy as np

from adversaries.bounds import canaries
from adversaries.bounds.canaries import vector
from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.noise_level import OpenEstimate
from fedsim.audits.recorded.releases import Asked, CanaryReport, MeasuredRounds, Notes
from fedsim.audits.results.view import View
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

NOTHING_MEASURED = (
    "a participant sees only aggregates of unknown updates, which do not show the noise; attach "
    "canary_mod, or record at the server"
)
ONLY_CANARIES = "canaries may disprove a claim, but cannot support it; record at the server as well"
NO_LIMIT = "canaries measure from outside what one update reveals, and set no limit"


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
            view = View(observer="participant", detects=None, note=NOTHING_MEASURED)
            return MeasuredRounds(views=[view], unmeasured=NOTHING_MEASURED)
        coins, scores = (np.array(each) for each in zip(*self._scored, strict=True))
        rounds = len(scores)

        def bounds(confidence: float) -> dict[str, float]:
            # The mu of k equal releases is sqrt(k) times that of one.
            low = max(0.0, canaries.effect(coins, scores, confidence).interval.low)
            return {"canaries": gaussian.epsilon(low * math.sqrt(rounds), options.delta)}

        view = View(
            observer="participant", trials=rounds, bounds=bounds, detects=None, note=NO_LIMIT
        )
        effect = canaries.effect(coins, scores, options.confidence)
        shown = effect.mu if effect.reason is None else None
        mu = OpenEstimate(shown, *effect.interval.ends)
        canary = CanaryReport(rounds=rounds, mu=mu, reason=effect.reason)
        return MeasuredRounds(views=[view], canary=canary, unmeasured=ONLY_CANARIES)

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
