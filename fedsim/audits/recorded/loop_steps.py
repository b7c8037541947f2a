"""A training loop's transcript, step by step: the release less the known sum is noise.

A step of DP-SGD releases (S + N(0, (z C)^2 I))/d, where S is the sum of gradients clipped to C. The
release less S/d is the noise. Neighbours differ in one record, which is present or adds nothing.
Steps compose over all engines and accountants of the training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from adversaries.attacks.noisy_means import Contribution, Release
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.releases import (
    DITHER_SEED,
    MeasuredRounds,
    Notes,
    believable,
    measured,
    reduced,
    released,
)
from fedsim.audits.results.rows import View
from fedsim.audits.steps import rules, theory
from fedsim.audits.steps.observation import Observation, ObservedRun
from fedsim.audits.steps.watch import Step, step_of
from fedsim.federation.transcripts.records import LOOP, UNITS, Layout, ObservedRound

NO_SUM = "no clipped sum was recorded; without it, the audit cannot separate noise from gradients"
NO_STEP = "no step was recorded; there is nothing to audit"
BAD_STEP = "the release or the clipped sum is missing, not finite, or of another shape"
BAD_DIVISOR = "the recorded divisor is not a number above 0; the step cannot be audited"
ADAPTIVE = (
    "adaptive clipping releases a count of clipped gradients, which it divides by the size of the "
    "drawn batch; no epsilon here covers that. Use fixed clipping"
)


class LoopSteps:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._random = np.random.default_rng(DITHER_SEED)
        self._steps: list[Step] = []
        self._releases: list[Release] = []
        self._unsummed = False

    def observe(self, observed: ObservedRound) -> None:
        place = len(self._steps) + 1
        step = step_of(place, observed)
        if step is None:
            self._notes.add("alarm", BAD_DIVISOR, place)
            return
        self._steps.append(step)
        summed = next(iter(observed.replies.values())).arrays if observed.replies else {}
        if not summed:
            self._unsummed = True
            return
        layout = Layout.of(observed.aggregate or {})
        after, total = (layout.vector(arrays) for arrays in (observed.aggregate or {}, summed))
        if not layout.shapes or not believable(after, total):
            self._notes.add("alarm", BAD_STEP, place)
            return
        assert after is not None and total is not None  # `believable` refuses None
        self._releases.append(self._reduced(step, layout, after, total / step.divisor))

    def measured(
        self, mechanism: Mapping[str, Any], delta: float, confidence: float
    ) -> MeasuredRounds:
        """Return what all steps show; mechanism: as recorded, the last value of each name."""
        declared = mechanism.get("unit")
        unit = str(declared) if declared in UNITS else "record"
        why = NO_STEP if not self._steps else NO_SUM if self._unsummed else ""
        why = why or ("" if len(self._releases) == len(self._steps) else BAD_STEP)
        why = why or (ADAPTIVE if any(step.adaptive for step in self._steps) else "")
        seen = Observation((ObservedRun(tuple(self._steps)),), recorded=True)
        findings = [*self._notes.findings(), *rules.findings(seen)]
        if why:
            findings.append(Finding(why, severity="caution"))
            view = View(observer=LOOP, detects=None, note=why)
            return MeasuredRounds(views=[view], findings=findings, unmeasured=why, unit=unit)
        level = measured(self._releases, confidence)
        most = self._multipliers(level.most_stds(together=True))
        seen = replace(seen, shown=tuple(self._multipliers(level.least_stds())))
        shown, at_least = theory.judged(seen, delta), theory.surely(seen, most, delta)
        assert shown.limit is not None  # recorded steps always compose
        sampled = rules.amplified(seen)
        found = released(LOOP, level, shown.limit, at_least, confidence, amplified=sampled)
        findings += found.findings
        findings += [Finding(each, severity="caution") for each in shown.unsure]
        return replace(found, findings=findings, unit=unit, doubts=shown.unsure)

    def _reduced(self, step: Step, layout: Layout, after: Floats, mean: Floats) -> Release:
        norm = None if step.clipping_norm is None else step.clipping_norm / step.divisor
        std = None
        if norm is not None and step.noise_multiplier is not None:
            std = step.noise_multiplier * norm
        parts = {0: Contribution(1 / step.divisor, norm or 0.0, 0.0)}
        # Noise and division round in the gradient's precision.
        rounded = layout, layout.units(mean, after), 3.0
        return reduced(self._random, step.place, after - mean, parts, *rounded, norm, std)

    def _multipliers(self, stds: Sequence[float]) -> list[float]:
        """Return every step's noise over one record's largest change."""
        return [
            std / release.clipping_norm if release.clipping_norm else 0.0
            for release, std in zip(self._releases, stds, strict=True)
        ]
