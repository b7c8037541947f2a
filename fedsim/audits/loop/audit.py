"""The audit of a training loop: its claim, what theory says about it, and what an attack proves."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.bounds.lower_bounds import clopper_pearson_bound, clopper_pearson_split
from adversaries.bounds.rate_bounds import NoiseFamily, by_scale
from adversaries.errors import InputError
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.child_process.channel import NO_MEASUREMENT, AppFailedError, Log, started
from fedsim.audits.judgement.claim import Claim, Evidence, alarms
from fedsim.audits.judgement.options import check_numbers
from fedsim.audits.judgement.report import AuditReport, concluded
from fedsim.audits.loop.attack import Features, best_score, score_of_steps, separation
from fedsim.audits.loop.running import HONEST, WITHOUT, LoopOrder, LoopTrials
from fedsim.audits.results.conditions import LOOP
from fedsim.audits.results.measured import Decisions
from fedsim.audits.results.rows import View
from fedsim.audits.steps import theory
from fedsim.audits.steps.noise import NoiseSums
from fedsim.audits.steps.observation import Influence, Observation
from fedsim.audits.steps.theory import Judged, MeasuredNoise
from fedsim.common.installation import installed
from fedsim.common.randomness import StreamRole, generator
from fedsim.game.mechanisms.noise_family import noise_family
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring

TRADE_OFF = "trade_off"
"""A further lower bound, for a known mechanism with noise of unknown size."""

LIBRARIES = ("torch", "opacus", "numpy")
TRIALS, RECORDS = 400, 59
"""Default number of judged runs, and of records in D.

59 and half of 58 are prime numbers. Opacus's divisor and rate therefore do not depend on the data
at any batch size below 59, except 1, 2, 29 and 58.
"""

PILOTS, CHOOSING = 10, 16
"""Seeds that a pair's direction is learnt from, and runs that choose the pair."""

CHANCE = 1.5
"""Standard deviations by which so few runs differ by chance in one of the features."""

BATCH = 25
"""Runs of one request."""

ABOVE = (
    "the attack measured epsilon of at least {:.3g}, above the claimed {:.3g}, with {:.0%} "
    "confidence"
)
SUPPORTED = (
    "noise at least {0.at_least:.1%} of the configured noise, at which epsilon is "
    "{0.epsilon:.4g} ({0.confidence:.0%} confidence). A training without noise that happens less "
    "often than once in {1:,} would have been missed. For the change by other records, {2.places} "
    "were replaced one at a time, and half of all records in {2.halves} runs"
)


@dataclass(frozen=True, kw_only=True)
class LoopDetails:
    """What the audit of a training loop alone has."""

    data: str
    target: str
    worlds: str
    neighbouring: Neighbouring
    records: int
    runs: int
    """Number of all runs of the loop."""
    provable: float
    """Largest lower bound that so many trials could prove, at the confidence of an alarm."""
    noise: MeasuredNoise | None
    least_noise: str
    """Part of the noise that is less than configured, and gives epsilon; "" for none."""
    influence: Influence
    decisions: Decisions


LoopReport = AuditReport[LoopDetails]


@dataclass(frozen=True, kw_only=True)
class MeasuredLoop:
    """What the runs of a loop show, before any claim.

    Attributes:
        delta: of the claim that the runs were made for.
        worlds: bool [T] of the judged runs, with their scores [T].
        curve: scores of steps [T] and the noise family of a known mechanism; None without one.
        pair: name of the two worlds.
        runs: number of all runs.
    """

    order: LoopOrder
    observation: Observation
    delta: float
    worlds: Bools
    scores: Floats
    curve: tuple[Floats, NoiseFamily] | None
    confidence: float
    pair: str
    runs: int

    def bounds(self, confidence: float) -> dict[str, EpsilonBound]:
        return _bounds(self.worlds, self.scores, self.curve, self.delta, confidence)


def judged(measured: MeasuredLoop, claim: Claim | None) -> LoopReport:
    """Return the report of a loop; the claim is at the delta of the measurement."""
    seen, order = measured.observation, measured.order
    worlds, delta, confidence = measured.worlds, measured.delta, measured.confidence
    noise, found = theory.measured(seen, delta, confidence), theory.judged(seen, delta)
    view = View(
        observer="loop",
        limit=found.limit,
        worlds=worlds,
        scores=measured.scores,
        trials=len(worlds),
        bounds=lambda level: {name: one.epsilon for name, one in measured.bounds(level).items()},
        noise=None if noise is None else noise.ratio,
        detects=None if noise is None else [noise.seen_below],
        note="" if noise is not None else "the noise itself was not observed",
    )
    won = np.where(worlds, 1.0, -1.0)  # an attack that wins all trials
    most = _bounds(worlds, won, None, delta, ALARM_CONFIDENCE)
    decided = estimators.advantage(worlds, measured.scores, confidence)
    bounds, above = measured.bounds(confidence), ""
    shown = max(each.epsilon for each in bounds.values())
    if claim is not None and shown > claim.epsilon:
        above = ABOVE.format(shown, claim.epsilon, confidence)
    details = LoopDetails(
        data=order.data,
        target=order.target,
        worlds=measured.pair,
        neighbouring=seen.neighbouring,
        records=seen.records,
        runs=measured.runs,
        provable=max(each.epsilon for each in most.values()),
        noise=noise,
        least_noise=seen.noise_off[0].strip(",") if seen.noise_off else "",
        influence=seen.influence,
        decisions=Decisions.of(decided, len(worlds), order.seed, bounds),
    )
    return concluded(
        [view],
        loop_evidence(found, noise, seen.influence, above),
        kind=LOOP,
        name=order.function,
        unit="record",
        claim=claim,
        findings=found.findings,
        delta=delta,
        confidence=confidence,
        details=details,
        versions={"fedsim": fedsim.__version__} | installed(LIBRARIES),
    )


def loop_evidence(
    found: Judged, noise: MeasuredNoise | None, influence: Influence, above: str
) -> Evidence:
    """Return what speaks for and against a claim about a loop.

    above: what the attack shows above the claim, in words; "" for nothing.
    """
    unsure = [*found.unsure, *theory.short(noise)]
    rare = 0 if noise is None else int(1 / noise.missed_below)
    return Evidence(
        broken=alarms(found.findings) > 0 or bool(above),
        unknown=found.unknown,
        unsure=unsure,
        against=[above] if above else [],
        in_favour=[] if unsure else [SUPPORTED.format(noise, rare, influence)],
    )


def audit_loop(
    function: str,
    *,
    data: str = "digits",
    records: int = RECORDS,
    target: str = "crafted",
    trials: int = TRIALS,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    seed: int = 0,
    time_limit: float = 3600.0,
    log: Log = None,
    progress: Callable[[int], None] = lambda done: None,
) -> LoopReport:
    check_numbers(trials, confidence, seed, time_limit)
    if target not in ("crafted", "real"):
        raise InputError(f"--target is '{target}'; give crafted or real")
    order = LoopOrder(function, data, records, target, neighbouring.value, seed)
    module = "fedsim.audits.loop.running"
    with started(module, "loop", time_limit, order, log=log) as channel:
        loop = channel.served(LoopTrials)
        measured, claim = measure(loop, order, trials, claim, confidence, progress)
        return judged(measured, claim)


def measure(
    loop: LoopTrials,
    order: LoopOrder,
    trials: int,
    claim: Claim | None,
    confidence: float,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[MeasuredLoop, Claim | None]:
    """Return what the runs show, and the claim: the given one, else the loop's own."""
    runs = _Runs(loop, order.seed)
    pair = runs.choose_pair()
    observation = runs.observed(pair)
    statement = observation.present[0].statement
    if claim is None and statement is not None and math.isfinite(statement.epsilon):
        claim = statement.claim("the loop's accountant, at the end of the run", "record")
    delta = ASSUMED if claim is None else claim.delta
    pilots = runs.measured(pair, max(40, trials // 4))
    worlds, features = runs.measured(pair, trials, progress)
    while not runs.noise.enough(confidence):  # these runs only measure the noise
        runs.measured(pair, BATCH)
    varies = any(len(np.unique(features[worlds == world], axis=0)) > 1 for world in (0, 1))
    observation = replace(observation, more=runs.noise, varies=varies)
    # The curve holds for one unknown scale of all the noise.
    composed = theory.mechanism(observation) if observation.one_scale else None
    curve = None
    if composed is not None:
        curve = score_of_steps(*pilots).of(features), noise_family(composed)
    measured = MeasuredLoop(
        order=order,
        observation=observation,
        delta=delta,
        worlds=worlds,
        scores=best_score(*pilots, delta).of(features),
        curve=curve,
        confidence=confidence,
        pair=loop.names[pair],
        runs=loop.runs,
    )
    return measured, claim


def _bounds(
    worlds: Bools,
    scores: Floats,
    curve: tuple[Floats, NoiseFamily] | None,
    delta: float,
    confidence: float,
) -> dict[str, EpsilonBound]:
    """Return the lower bounds that judged runs prove, which hold together with `confidence`.

    The trade-off curve has its own score and threshold: counts prove most epsilon far in the tails,
    where they say little about a curve.
    """
    # Bonferroni: an equal share of the error for each bound, so that the largest may be stated.
    level = 1 - (1 - confidence) / (2 + (curve is not None))
    bounds = {
        "clopper_pearson": clopper_pearson_bound(worlds, scores, delta, level),
        "clopper_pearson_split": clopper_pearson_split(worlds, scores, delta, level),
    }
    if curve is not None:
        of_steps, family = curve
        bounds[TRADE_OFF] = by_scale(clopper_pearson_bound(worlds, of_steps, delta, level), family)
    return bounds


class _Runs:
    """Runs of a loop, each with its own seed; `noise`: that of all attacked runs."""

    def __init__(self, loop: LoopTrials, seed: int) -> None:
        self._loop, self._seed, self._begun = loop, seed, 0
        self.noise = NoiseSums()

    def choose_pair(self) -> int:
        """Return the pair of worlds that pilots tell apart best."""
        names, apart = self._loop.names, list[float]()
        for pair in range(len(names)):
            distance = self._loop.pilot(pair, self._seeds(PILOTS))
            if len(names) == 1:
                return pair
            measured = separation(*self.measured(pair, CHOOSING))
            # The largest of several features exceeds 0 by chance, which must not choose the pair.
            apart.append(max(distance, measured - CHANCE))
        return int(np.argmax(apart))

    def observed(self, pair: int) -> Observation:
        found = self._loop.honest(pair, self._seeds(HONEST))
        if len(found.runs) != HONEST + 3 * WITHOUT:
            raise AppFailedError(NO_MEASUREMENT.format("loop"))
        return found

    def measured(
        self, pair: int, count: int, progress: Callable[[int], None] = lambda done: None
    ) -> tuple[Bools, Floats]:
        """Return the worlds and features of runs, and add their noise."""
        drawn = generator(self._seed, StreamRole.WORLD, trial=self._begun)
        worlds, seeds = drawn.permutation(np.arange(count) % 2 == 0), self._seeds(count)
        rows = list[Features]()
        for start in range(0, count, BATCH):
            part = slice(start, start + BATCH)
            answered, noise = self._loop.features(pair, worlds[part].tolist(), seeds[part])
            if len(answered) != min(BATCH, count - start):
                raise AppFailedError(NO_MEASUREMENT.format("loop"))
            rows += answered
            self.noise += noise
            progress(len(rows))
        return worlds, np.array(rows)

    def _seeds(self, count: int) -> list[int]:
        numbers = range(self._begun, self._begun + count)
        self._begun += count
        streams = (generator(self._seed, StreamRole.NOISE, trial=each) for each in numbers)
        return [int(stream.integers(2**32)) for stream in streams]
