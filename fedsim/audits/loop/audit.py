"""The audit of a training loop: its claim, what theory says about it, and what an attack proves."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

import numpy as np

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.bounds.lower_bounds import clopper_pearson_bound, clopper_pearson_split
from adversaries.bounds.rate_bounds import NoiseFamily, by_scale
from adversaries.errors import InputError
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.child_process.channel import NO_MEASUREMENT, AppFailedError, Log, started
from fedsim.audits.judgement.claim import Claim, Evidence, Judgement, alarms, judge
from fedsim.audits.judgement.options import check_numbers
from fedsim.audits.judgement.report import Decisions, Judged, largest
from fedsim.audits.loop import findings
from fedsim.audits.loop import observation as theory
from fedsim.audits.loop.attack import Features, best_score, score_of_steps, separation
from fedsim.audits.loop.findings import MeasuredNoise
from fedsim.audits.loop.observation import Influence, LoopObservation
from fedsim.audits.loop.running import HONEST, WITHOUT, LoopOrder, LoopTrials
from fedsim.audits.results.rows import Row
from fedsim.audits.steps.noise import NoiseSums
from fedsim.common.installation import installed
from fedsim.common.randomness import StreamRole, generator
from fedsim.federation.runtimes import places
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
MOVED = (
    "one record moved every step that it was in by at least {:.3g} C, with C the clipping norm; "
    "at most 2 C are accounted for"
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
    """The target: "crafted" or "real"."""
    worlds: str
    neighbouring: Neighbouring
    records: int
    runs: int
    """Number of all runs of the loop."""
    provable: float
    """Largest lower bound that so many trials could prove, at the confidence of an alarm."""
    noise: MeasuredNoise | None
    missed_below: float | None
    """Share of trainings without noise that all runs may have missed; None without such runs."""
    influence: Influence
    decisions: Decisions


@dataclass(frozen=True, kw_only=True)
class LoopAudit(Judged):
    """The outcome of the audit of a loop.

    Attributes:
        strict: whether a supported claim must hold at the measured noise, not at the configured.
    """

    kind = "loop audit"
    unit = "record"
    vantage = "loop"

    order: LoopOrder
    observation: LoopObservation
    noise: MeasuredNoise | None
    provable: float
    pair: str
    score: str
    runs: int
    strict: bool = False

    @property
    def judgement(self) -> Judgement:
        if self.claim is None:
            return judge(None, Evidence())
        claim, seen, noise = self.claim, self.observation, self.noise
        unsure = [*findings.doubts(seen), *findings.short(noise, claim, self.strict)]
        against, refuting = list[str](), list[str]()
        if (bound := self.lower_bound.epsilon) > claim.epsilon:
            against.append(ABOVE.format(bound, claim.epsilon, self.confidence))
        if theory.refuted(seen, self.delta, claim.epsilon):
            refuting.append(MOVED.format(seen.influence.always))
        rare = 0 if noise is None else int(1 / noise.missed_below)
        evidence = Evidence(
            refuted=self.proven.epsilon > claim.epsilon or bool(refuting),
            refuting=refuting,
            broken=alarms(self.objections) > 0 or bool(against),
            unknown=findings.unknown(seen, self.epsilon),
            exceeded=not self.allowed,
            unsure=unsure,
            against=against,
            in_favour=[] if unsure else [SUPPORTED.format(noise, rare, seen.influence)],
        )
        return judge(claim, evidence)

    @property
    def name(self) -> str:
        return self.order.function

    @property
    def versions(self) -> Mapping[str, str]:
        return {"fedsim": fedsim.__version__} | installed(LIBRARIES)

    @property
    def unjudged(self) -> Sequence[Row]:
        noise, off = self.noise, self.observation.noise_off is not None
        return self.observed(
            "measured" if off else "theory",
            self.attack,
            None if noise is None else noise.ratio,
            None if noise is None else noise.seen_below,
            "" if noise is not None else "the noise itself was not observed",
        )

    @property
    def details(self) -> LoopDetails:
        seen = self.observation
        return LoopDetails(
            data=self.order.data,
            target=self.order.target,
            worlds=self.pair,
            neighbouring=seen.neighbouring,
            records=seen.records,
            runs=self.runs,
            provable=self.provable,
            noise=self.noise,
            missed_below=None if self.noise is None else self.noise.missed_below,
            influence=seen.influence,
            decisions=self.decisions,
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
    workers: int = 1,
    strict: bool = False,
    log: Log = None,
    progress: Callable[[int], None] = lambda done: None,
) -> LoopAudit:
    check_numbers(trials, confidence, seed, time_limit)
    if target not in ("crafted", "real"):
        raise InputError(f"--target is '{target}'; give crafted or real")
    order = LoopOrder(function, data, records, target, neighbouring.value, seed)
    module = "fedsim.audits.loop.running"
    with ExitStack() as processes:
        channels = [
            processes.enter_context(started(module, "loop", time_limit, order, log=log))
            for _ in range(places.processes(workers))
        ]
        loops = [channel.served(LoopTrials) for channel in channels]
        found = audited(loops, order, trials, claim, confidence, progress)
        return replace(found, strict=strict)


def audited(
    loops: Sequence[LoopTrials],
    order: LoopOrder,
    trials: int,
    claim: Claim | None,
    confidence: float,
    progress: Callable[[int], None] = lambda done: None,
) -> LoopAudit:
    runs = _Runs(loops, order.seed)
    pair = runs.choose_pair()
    observation = runs.observed(pair)
    claim = claim or _claim_of(observation)
    delta = ASSUMED if claim is None else claim.delta
    runs.share_directions()
    pilots = runs.measured(loops, pair, max(40, trials // 4))
    worlds, features = runs.measured(loops, pair, trials, progress)
    while not runs.noise.enough(confidence):  # these runs only measure the noise
        runs.measured(loops, pair, BATCH)
    varies = any(len(np.unique(features[worlds == world], axis=0)) > 1 for world in (0, 1))
    observation = replace(observation, more=runs.noise, varies=varies)
    score = best_score(*pilots, delta)
    scores = score.of(features)
    # The curve holds for one unknown scale of all the noise.
    composed = theory.mechanism(observation) if observation.one_scale else None
    curve = None
    if composed is not None:
        curve = score_of_steps(*pilots).of(features), noise_family(composed)
    stated, sure = (
        _bounds(worlds, scores, curve, delta, level) for level in (confidence, ALARM_CONFIDENCE)
    )
    won = np.where(worlds, 1.0, -1.0)  # an attack that wins all trials
    return LoopAudit(
        order=order,
        observation=observation,
        claim=claim,
        delta=delta,
        epsilon=theory.epsilon(observation, delta) if observation.steps else None,
        noise=findings.measured(observation, delta, confidence),
        advantage=estimators.advantage(worlds, scores, confidence),
        lower_bounds=stated,
        proven=largest(sure),
        provable=largest(_bounds(worlds, won, None, delta, ALARM_CONFIDENCE)).epsilon,
        confidence=confidence,
        objections=findings.findings(observation),
        pair=loops[0].names[pair],
        score=score.name,
        trials=trials,
        runs=sum(each.runs for each in loops),
        seed=order.seed,
    )


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
    """Runs of an audit's processes, each with its own seed; `noise`: that of all attacked runs."""

    def __init__(self, loops: Sequence[LoopTrials], seed: int) -> None:
        self._loops, self._seed, self._begun = loops, seed, 0
        self.noise = NoiseSums()

    def choose_pair(self) -> int:
        """Return the pair of worlds that pilots tell apart best."""
        loop, apart = self._loops[0], list[float]()
        for pair in range(len(loop.names)):
            distance = loop.pilot(pair, self._seeds(PILOTS))
            if len(loop.names) == 1:
                return pair
            measured = separation(*self.measured([loop], pair, CHOOSING))
            # The largest of several features exceeds 0 by chance, which must not choose the pair.
            apart.append(max(distance, measured - CHANCE))
        return int(np.argmax(apart))

    def share_directions(self) -> None:
        """Make all processes measure as the first one, whose pilots they do not repeat."""
        with TemporaryDirectory() as folder:
            file = Path(folder, "directions")
            for place, loop in enumerate(self._loops):
                loop.take(file) if place else loop.keep(file)

    def observed(self, pair: int) -> LoopObservation:
        found = self._loops[0].honest(pair, self._seeds(HONEST))
        if len(found.runs) != HONEST + 3 * WITHOUT:
            raise AppFailedError(NO_MEASUREMENT.format("loop"))
        return found

    def measured(
        self,
        loops: Sequence[LoopTrials],
        pair: int,
        count: int,
        progress: Callable[[int], None] = lambda done: None,
    ) -> tuple[Bools, Floats]:
        """Return the worlds and features of runs, and add their noise.

        The processes take turns at the requests, and their answers count in the order of the runs.
        """
        drawn = generator(self._seed, StreamRole.WORLD, trial=self._begun)
        worlds, seeds = drawn.permutation(np.arange(count) % 2 == 0), self._seeds(count)
        rows, idle = list[Features](), SimpleQueue[LoopTrials]()
        for loop in loops:
            idle.put(loop)

        def features(start: int) -> tuple[tuple[Features, ...], NoiseSums]:
            loop, part = idle.get(), slice(start, start + BATCH)
            try:
                return loop.features(pair, worlds[part].tolist(), seeds[part])
            finally:
                idle.put(loop)

        threads, starts = ThreadPoolExecutor(len(loops)), range(0, count, BATCH)
        try:
            for start, (answered, noise) in zip(starts, threads.map(features, starts), strict=True):
                if len(answered) != min(BATCH, count - start):
                    raise AppFailedError(NO_MEASUREMENT.format("loop"))
                rows += answered
                self.noise += noise
                progress(len(rows))
        finally:  # an interrupted audit does not wait for answers
            threads.shutdown(wait=False, cancel_futures=True)
        return worlds, np.array(rows)

    def _seeds(self, count: int) -> list[int]:
        numbers = range(self._begun, self._begun + count)
        self._begun += count
        streams = (generator(self._seed, StreamRole.NOISE, trial=each) for each in numbers)
        return [int(stream.integers(2**32)) for stream in streams]


def _claim_of(observation: LoopObservation) -> Claim | None:
    answer = observation.present[0].statement
    if answer is None or not math.isfinite(answer.epsilon):
        return None
    source = "the loop's accountant, at the end of the run"
    return Claim(answer.epsilon, answer.delta, source, unit="record")
