"""A training loop's transcript, step by step: the release less the known sum is noise.

A step of DP-SGD releases (S + N(0, (z C)^2 I))/d, where S is the sum of gradients clipped to C. The
release less S/d is the noise. Neighbours differ in one record, which is present or adds nothing.
Steps compose over all engines and accountants of the training.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Contribution, Release
from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.releases import (
    DITHER_SEED,
    MeasuredRounds,
    NoiseLevel,
    Notes,
    believable,
    measured,
    reduced,
    released,
)
from fedsim.audits.results.rows import View
from fedsim.audits.steps import rules, statistics
from fedsim.audits.steps.observation import Observation, ObservedRun
from fedsim.audits.steps.rules import broken
from fedsim.audits.steps.statistics import (
    ALPHA,
    LONGEST_NOISE,
    NoiseSums,
    echo_p_value,
    shape_p_value,
)
from fedsim.audits.steps.theory import epsilon_of, gaussian_steps
from fedsim.audits.steps.watch import Step, step_of
from fedsim.federation.transcripts.records import LOOP, UNITS, Layout, ObservedRound
from fedsim.privacy.accounting import PLD
from fedsim.privacy.identifiability import rho_alpha

GRID = 0.01
"""Share of a sampled epsilon that the accountant's grid may have added; proofs leave it out."""

NO_SUM = "no clipped sum was recorded; without it, the audit cannot separate noise from gradients"
NO_STEP = "no step was recorded; there is nothing to audit"
BAD_STEP = "the release or the clipped sum is missing, not finite, or of another shape"
BAD_DIVISOR = "the recorded divisor is not a number above 0; the step cannot be audited"
ECHO = (
    "the noise repeats itself, also moved or with the other sign, beyond chance: noise is used "
    "again, and hides the gradients of one step alone"
)
UNEVEN = (
    "the noise of the steps is not independent Gaussian noise of the configured sizes: its length "
    "varies from step to step more, or less, than chance explains"
)
ADAPTIVE = (
    "adaptive clipping releases a count of clipped gradients, which it divides by the size of the "
    "drawn batch; no epsilon here covers that. Use fixed clipping"
)
UNTESTED = (
    "the audit cannot tell whether batches are Poisson samples: their sizes or the number of "
    "records were not recorded, or too few were recorded to exclude one fixed size; record more "
    "steps, or call the recorder on the Opacus engine before make_private"
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
        amplified = all(step.sample_rate for step in self._steps) and not broken(seen, "sampler")
        doubts = [UNTESTED] * (amplified and not statistics.tested(self._steps))
        account = _Account(seen, delta, amplified)
        limits = account.limits(self._multipliers(level.least_stds()))
        at_least = account.at_least(self._multipliers(level.most_stds(together=True)))
        found = released(LOOP, level, limits, at_least, confidence, amplified=amplified)
        findings += [*found.findings, *_repeated(level)]
        findings += [Finding(each, severity="caution") for each in doubts]
        return replace(found, findings=findings, unit=unit, doubts=[*doubts, *found.doubts])

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


def _repeated(level: NoiseLevel) -> list[Finding]:
    """Return whether noise is used again, in other places too, or is uneven from step to step."""
    releases = level.releases
    clear = len(noisy_means.clear_of_rounding(releases)) == len(releases)
    if not clear or not all(one.claimed_std and not one.noiseless for one in releases):
        return []
    pairs = list(zip(releases, level.scales, strict=True))
    parts = [release.fingerprint[:LONGEST_NOISE] / scale for release, scale in pairs]
    again = echo_p_value(np.concatenate(parts, dtype=np.float64)[:LONGEST_NOISE])
    energies = [release.energy / scale**2 for release, scale in pairs]
    even = 1.0
    if len({release.size for release in releases}) == 1:
        logs = sum(map(math.log, energies))
        even = shape_p_value(NoiseSums(len(pairs), (releases[0].size,), (sum(energies),), logs))
    # Bonferroni: an equal share of the error for each test.
    wrong = {ECHO: again, UNEVEN: even}
    return [Finding(text) for text, p_value in wrong.items() if p_value < ALPHA / 2]


@dataclass(frozen=True)
class _Account:
    """What steps with these noise multipliers reveal, with the batches that the rules allow.

    Attributes:
        amplified: whether batches are declared Poisson samples, and nothing contradicts it.
    """

    seen: Observation
    delta: float
    amplified: bool

    def limits(self, multipliers: Sequence[float]) -> tuple[float, float]:
        """Return epsilon and the largest advantage, without sampling where it does not amplify."""
        # The divisor would, or may, change with one record fewer.
        if broken(self.seen, "data-dependent-divisor") or 0.0 in multipliers:
            return math.inf, 1.0
        if self.amplified:
            composed = gaussian_steps(multipliers, self._rates)
            return PLD.epsilon(composed, self.delta), rho_alpha(composed)
        mu = self._most_mu(multipliers)
        return gaussian.epsilon(mu, self.delta), gaussian.advantage(mu)

    def at_least(self, multipliers: Sequence[float]) -> float:
        """Return an epsilon that noise of at most these multipliers surely exceeds."""
        if 0.0 in multipliers:
            return math.inf
        proven, rates = 0.0, self._rates if statistics.tested(self.seen.steps) else []
        if not self.amplified:
            proven = gaussian.epsilon(self._least_mu(multipliers), self.delta)
            *_, rate, several = statistics.favoured(self.seen.sampled) or (0.0, True)
            rates = [] if several else [rate] * len(multipliers)
        return max(proven, (1 - GRID) * epsilon_of(multipliers, rates, self.delta) if rates else 0)

    @property
    def _rates(self) -> list[float]:
        return [step.sample_rate or 1.0 for step in self.seen.steps]

    def _most_mu(self, multipliers: Sequence[float]) -> float:
        """Return the signal-to-noise ratio of the record that took part most, over all steps."""
        squares, unknown = defaultdict[int, float](float), self._unknown
        for step, z in zip(self.seen.steps, multipliers, strict=True):
            # Unknown batches: any record may have been in all of them. A record that is several
            # times in a batch changes the sum by as many clipping norms.
            drawn = {0: step.accumulated} if unknown else Counter(step.members)
            for member, times in drawn.items():
                squares[member] += (times / z) ** 2
        return math.sqrt(max(squares.values(), default=0.0))

    def _least_mu(self, multipliers: Sequence[float]) -> float:
        """Return a ratio that every record surely has: that of the sum of all steps."""
        counts = Counter(member for step in self.seen.steps for member in step.members or ())
        # If some records took part more often by chance, they may do so less another time.
        if self._unknown or len(set(counts.values())) != 1:
            return 0.0
        # The sum of all steps moves by count * C, in noise of variance sum z^2 C^2.
        return max(counts.values()) / math.sqrt(sum(z**2 for z in multipliers))

    @property
    def _unknown(self) -> bool:
        return any(step.members is None for step in self.seen.steps)
