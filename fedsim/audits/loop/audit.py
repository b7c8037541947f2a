"""The audit of a training loop: its claim, what theory says about it, and what an attack proves."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.bounds.lower_bounds import clopper_pearson_bound, clopper_pearson_split
from adversaries.bounds.rate_bounds import NoiseFamily, trade_off_bound
from adversaries.errors import InputError
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.child_process.channel import NO_MEASUREMENT, AppFailedError, Log, started
from fedsim.audits.judgement.claim import Claim, Evidence, Judgement, Scope, alarms, judge
from fedsim.audits.judgement.options import check_numbers
from fedsim.audits.judgement.report import Decisions, Judged, largest
from fedsim.audits.loop import guarantee, support
from fedsim.audits.loop.guarantee import LoopObservation
from fedsim.audits.loop.measurement import Features, Influence, LoopOrder, ObservedRun, World
from fedsim.audits.loop.rules import findings
from fedsim.audits.loop.running import LoopTrials
from fedsim.audits.loop.score import best_score, learnt_of_steps, separation, steps_apart
from fedsim.audits.loop.support import MeasuredNoise, Power
from fedsim.audits.results.rows import Row
from fedsim.audits.steps.noise import NoiseSums
from fedsim.audits.steps.step import Step
from fedsim.common.installation import installed
from fedsim.common.randomness import StreamRole, generator
from fedsim.federation.runtimes import places
from fedsim.game.mechanisms.noise_family import noise_family
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring

BOUNDS = {
    "clopper_pearson": clopper_pearson_bound,
    "clopper_pearson_split": clopper_pearson_split,
}
TRADE_OFF = "trade_off"
"""A further lower bound, for a known mechanism with noise of unknown size."""

LIBRARIES = ("torch", "opacus", "numpy")
TRIALS, RECORDS = 400, 59
"""Default number of judged runs, and of records in D.

59 and half of 58 are prime numbers. Opacus's divisor and rate therefore do not depend on the data
at any batch size below 59, except 1, 2, 29 and 58.
"""

HONEST, WITHOUT = 6, 2
"""Observed runs with the target, and in each other world."""

PILOTS, CHOOSING = 10, 16
"""Seeds that a pair's direction is learnt from, and runs that choose the pair."""

CHANCE = 1.5
"""Standard deviations that so few runs differ by chance in one of six features."""

BATCH = 25
"""Runs of one request."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class LoopDetails:
    """What the audit of a training loop alone has."""

    data: str
    """Data that the loop trained on."""
    target: str
    """The target: "crafted" or "real"."""
    worlds: str
    """Name of the pair of worlds that the pilots told apart best."""
    decided_by: str
    """Score of the counting bounds, chosen by the pilots."""
    neighbouring: Neighbouring
    """How D' differs from D."""
    records: int
    """Number of records in D."""
    runs: int
    """Number of all runs of the loop."""
    provable: float
    """Largest lower bound that so many trials could prove, at the confidence of an alarm."""
    noise: MeasuredNoise | None
    """Measured noise of all steps; None where no step with noise was observed."""
    missed_below: float | None
    """Share of trainings without noise that all runs may have missed; None without such runs."""
    power: Power | None
    """What the attack could detect; None without a claim, or where noise was observed."""
    steps: int
    """Observed steps of Opacus's optimizer in one run."""
    first: Step | None
    """The first of them."""
    sampler: str
    """Samplers of the observed run."""
    explained: bool
    """Whether the observed steps explain all that the loop returned."""
    changed: list[str] | None
    """Tensors that depend on the data beside the released steps; None where it cannot be told."""
    beside: list[str]
    """Numbers beside the weights that differ between honest runs."""
    influence: Influence
    """What one replaced record changes in the steps."""
    decisions: Decisions
    """What the attack decided."""


@dataclass(frozen=True, kw_only=True)
class LoopAudit(Judged):
    """The outcome of the audit of a loop.

    Attributes:
        noise: measured noise; None where no step of Opacus's optimizer with noise was observed.
        provable: the largest possible `proven`, from an attack that wins all trials.
        power: what the attack could detect; None without a claim, or where noise was observed.
        pair: name of the pair of worlds that the pilots told apart best.
        score: score of the counting bounds, chosen by the pilots.
        strict: whether a supported claim must hold at the measured noise, not at the configured.
    """

    kind = "loop audit"

    loop: str
    data: str
    target: str
    observation: LoopObservation
    noise: MeasuredNoise | None
    provable: float
    power: Power | None = None
    pair: str
    score: str
    runs: int
    strict: bool = False

    @property
    def judgement(self) -> Judgement:
        if self.claim is None:
            return judge(None, Evidence())
        claim, seen = self.claim, self.observation
        unsure = [*support.doubts(seen), *support.short(self.noise, claim, self.strict)]
        against, refuting = [], []
        if self.lower_bound.epsilon > claim.epsilon:
            bound = self.lower_bound.epsilon
            against = [support.ABOVE.format(bound, claim.epsilon, self.confidence)]
        if guarantee.refuted(seen, self.delta, claim.epsilon):
            refuting = [support.MOVED.format(seen.influence.always)]
        in_favour = []
        if not unsure and self.noise is not None:
            rare = int(1 / self.noise.missed_below)
            in_favour = [support.SUPPORTED.format(self.noise, rare, seen.influence)]
        evidence = Evidence(
            refuted=self.proven.epsilon > claim.epsilon or bool(refuting),
            refuting=refuting,
            broken=alarms(self.objections) > 0 or bool(against),
            unknown=support.unknown(seen, self.epsilon),
            exceeded=not self.allowed,
            unsure=unsure,
            against=against,
            in_favour=in_favour,
        )
        return judge(claim, evidence)

    @property
    def name(self) -> str:
        return self.loop

    @property
    def unit(self) -> str:
        return "record"

    @property
    def vantage(self) -> str:
        return "loop"

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
        observation, steps = self.observation, self.observation.steps
        return LoopDetails(
            data=self.data,
            target=self.target,
            worlds=self.pair,
            decided_by=self.score,
            neighbouring=observation.neighbouring,
            records=observation.records,
            runs=self.runs,
            provable=self.provable,
            noise=self.noise,
            missed_below=None if self.noise is None else self.noise.missed_below,
            power=self.power,
            steps=len(steps),
            first=steps[0] if steps else None,
            sampler=observation.present[0].samplers,
            explained=observation.explained,
            changed=None if observation.changed is None else list(observation.changed),
            beside=list(observation.beside),
            influence=observation.influence,
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
        found = audited(loops, order, trials, claim, neighbouring, confidence, progress)
        return replace(found, strict=strict)


def audited(
    loops: Sequence[LoopTrials],
    order: LoopOrder,
    trials: int,
    claim: Claim | None,
    neighbouring: Neighbouring,
    confidence: float,
    progress: Callable[[int], None],
) -> LoopAudit:
    runs = _Runs(loops, order.seed)
    pair = runs.choose_pair()
    observation = runs.observed(pair, order.records, neighbouring)
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
    composed = guarantee.mechanism(observation) if observation.one_scale else None
    curve = None
    if composed is not None:
        curve = learnt_of_steps(*pilots).of(features), noise_family(composed)
    stated, sure = (
        _bounds(worlds, scores, curve, delta, level) for level in (confidence, ALARM_CONFIDENCE)
    )
    won = np.where(worlds, 1.0, -1.0)  # an attack that wins all trials
    noise = support.measured(observation, delta, confidence)
    power = None
    if claim is not None and noise is None:
        needed = support.least_apart(trials, claim.epsilon, claim.delta)
        power = Power(steps_apart(worlds, features), needed)
    return LoopAudit(
        loop=order.function,
        data=order.data,
        target=order.target,
        observation=observation,
        claim=claim,
        delta=delta,
        epsilon=guarantee.epsilon(observation, delta) if observation.steps else None,
        noise=noise,
        advantage=estimators.advantage(worlds, scores, confidence),
        lower_bounds=stated,
        proven=largest(sure),
        provable=largest(_bounds(worlds, won, None, delta, ALARM_CONFIDENCE)).epsilon,
        power=power,
        confidence=confidence,
        objections=findings(observation),
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
    level = 1 - (1 - confidence) / (len(BOUNDS) + (curve is not None))
    bounds = {name: bound(worlds, scores, delta, level) for name, bound in BOUNDS.items()}
    if curve is not None:
        of_steps, family = curve
        bounds[TRADE_OFF] = trade_off_bound(worlds, of_steps, delta, level, family)
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
        if len(self._loops) == 1:
            return
        with TemporaryDirectory() as folder:
            file = Path(folder, "directions")
            self._loops[0].keep(file)
            for other in self._loops[1:]:
                other.take(file)

    def observed(self, pair: int, records: int, neighbouring: Neighbouring) -> LoopObservation:
        """Return what honest runs, a replay and replaced records show."""
        loop, seeds = self._loops[0], self._seeds(HONEST)

        def runs(world: World, count: int = WITHOUT) -> tuple[tuple[ObservedRun, ...], float]:
            seen, echo = loop.observed(pair, world, seeds[:count])
            return _all_of(seen, count), echo

        present, echo = runs("present", HONEST)
        return LoopObservation(
            present=present,
            absent=runs("absent")[0],
            twin=runs("twin")[0],
            stranger=runs("stranger")[0],
            echo=echo,
            records=records,
            neighbouring=neighbouring,
            changed=loop.changed(pair, seeds[0]),
            influence=loop.influence(seeds[0]),
        )

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
                rows += _all_of(answered, min(BATCH, count - start))
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


def _all_of(answers: tuple[Answer, ...], count: int) -> tuple[Answer, ...]:
    if len(answers) != count:
        raise AppFailedError(NO_MEASUREMENT.format("loop"))
    return answers


def _claim_of(observation: LoopObservation) -> Claim | None:
    answer = observation.present[0].statement
    if answer is None or not math.isfinite(answer.epsilon):
        return None
    source = "the loop's accountant, at the end of the run"
    return Claim(answer.epsilon, answer.delta, Scope.RUN, source, unit="record")
