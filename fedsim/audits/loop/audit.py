"""The audit of a training loop: what it claims, what theory says of it, what an attack proves."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import fedsim
from adversaries.errors import InputError
from adversaries.statistics import estimators, lower_bounds
from adversaries.statistics.intervals import ALARM_CONFIDENCE, LowerBound
from adversaries.statistics.rate_bounds import NoiseFamily, trade_off_bound
from fedsim.audits.app.audit import LONGEST_TIME, check
from fedsim.audits.judgement.claim import Claim, Scope
from fedsim.audits.judgement.judge import Evidence, Judgement, judge
from fedsim.audits.judgement.report import Judged, largest
from fedsim.audits.loop import guarantee, scoring
from fedsim.audits.loop.guarantee import Observation
from fedsim.audits.loop.measurement import Features, Learnt
from fedsim.audits.loop.power import Power, power
from fedsim.audits.loop.process import LoopProcess, Order
from fedsim.audits.loop.rules import findings
from fedsim.audits.loop.support import MeasuredNoise, measured, not_judged
from fedsim.audits.measurements.noise_family import noise_family
from fedsim.audits.sandbox.channel import started
from fedsim.common.installation import installed
from fedsim.common.randomness import Role, generator
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring

BOUNDS = ("clopper_pearson", "clopper_pearson_split")
"""The lower bounds that know nothing of the mechanism."""

TRADE_OFF = "trade_off"
"""The one beside them that knows the mechanism but for its noise, where theory knows it."""

LIBRARIES = ("torch", "opacus", "numpy")
"""What a loop's numbers depend on, as far as it is installed."""

TRIALS, RECORDS = 400, 59
"""Judged runs, and records of D, by default.

59 and half of 58 are prime numbers. So Opacus's divisor and rate do not follow the data at any size
of a batch below 59, except 1, 2, 29 and 58.
"""

HONEST, WITHOUT = 6, 2
"""Watched runs with the target, and in each other world."""

PILOTS, CHOOSING = 10, 16
"""Seeds that a pair's direction is learnt from, and runs by which the pair is chosen."""

CHANCE = 1.5
"""Standard deviations that so few runs are apart by chance, in one of six features."""

BATCH = 25
"""Runs that are asked for at a time."""

Runs = tuple[scoring.Bools, scoring.Floats]
"""Worlds [T] and features [T, features]."""


@dataclass(frozen=True, kw_only=True)
class LoopAudit(Judged):
    """The outcome.

    Attributes:
        target: "crafted" or "real".
        noise: as measured; None where no step of Opacus's optimizer with noise was watched.
        provable: the largest that `proven` could be: an attack that wins all trials.
        power: what the attack would have seen; None without a claim, or where noise was watched.
        pair: the name of the pair of worlds that betrayed the loop most.
        score: what decided, as pilots chose it, of the counting bounds.
    """

    loop: str
    data: str
    target: str
    observation: Observation
    noise: MeasuredNoise | None
    provable: float
    power: Power | None = None
    pair: str
    score: str
    runs: int

    @property
    def judgement(self) -> Judgement:
        if self.claim is None:
            return judge(None, Evidence())
        # Right as it is configured; what was really added is measured.
        sure = None if self.noise is None else self.noise.epsilon
        unsure = sure is None or not self.claim.allows(sure)
        why = ""
        if self.epsilon is None or unsure:
            seen, claimed = self.observation, self.claim.epsilon
            why = not_judged(seen, self.epsilon, self.noise, claimed, self.trials)
        evidence = Evidence(
            refuted=self.proven.epsilon > self.claim.epsilon,
            broken=self.alarms > 0,
            unknown=[why] if self.epsilon is None else [],
            exceeded=not self.allowed,
            unsure=[why] if unsure else [],
        )
        return judge(self.claim, evidence)

    def as_json(self) -> dict[str, Any]:
        seen, steps = self.observation, self.observation.steps
        return self._document(
            "loop audit",
            {"at_measured_noise": seen.noise_off is not None},
            {"provable": self.provable},
            loop=self.loop,
            judged={"delta": self.delta, "scope": Scope.RUN.value},
            noise=None if self.noise is None else self.noise.as_json(),
            power=None if self.power is None else self.power.as_json(),
            watched={
                "steps": len(steps),
                "first": asdict(steps[0]) if steps else None,
                "sampler": seen.present[0].samplers,
                "explained": seen.explained,
                "changed": seen.changed,
                "beside": seen.beside,
            },
            data=self.data,
            target=self.target,
            worlds=self.pair,
            decided_by=self.score,
            neighbouring=seen.neighbouring.value,
            records=seen.records,
            runs=self.runs,
            versions={"fedsim": fedsim.__version__} | installed(LIBRARIES),
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
    show: Callable[[str], None] = lambda line: None,
    progress: Callable[[int], None] = lambda done: None,
) -> LoopAudit:
    """Return the audit of a training function, whose code runs in a process of its own.

    Args:
        function: "module:function" or "file.py:function", as `contract` says.
        data: a bundled data set, or an NPZ file with features and labels.
        target: "crafted" for the worst of three crafted pairs, "real" for a record of the data.
        trials: judged runs; a fourth as many come before them to learn from.
        claim: what is claimed; None for the accountant's last word.
        time_limit: seconds that a request of up to `BATCH` runs may take.
    """
    check(trials, confidence, seed)
    if target not in ("crafted", "real"):
        raise InputError(f"--target is '{target}'; give crafted or real")
    if not 0 < time_limit <= LONGEST_TIME:
        raise InputError(
            f"{time_limit:g} s is no time limit; give one above 0, of {LONGEST_TIME:.0f} s at most"
        )
    order = Order(function, data, records, target, neighbouring.value, seed)
    with started("fedsim.audits.loop.running", "loop", time_limit, show) as channel:
        return audited(
            LoopProcess(order, channel), order, trials, claim, neighbouring, confidence, progress
        )


def audited(
    loop: LoopProcess,
    order: Order,
    trials: int,
    claim: Claim | None,
    neighbouring: Neighbouring,
    confidence: float,
    progress: Callable[[int], None],
) -> LoopAudit:
    """Return the audit of a training function that is loaded.

    Args:
        trials: as in `audit_loop`, like the parameters after it.
    """
    seeds = _Seeds(order.seed)
    pair, learnt = _betraying(loop, seeds)
    honest = seeds.next(HONEST)
    observation = Observation(
        present=loop.observed(pair, "present", honest),
        absent=loop.observed(pair, "absent", honest[:WITHOUT]),
        twin=loop.observed(pair, "twin", honest[:WITHOUT]),
        stranger=loop.observed(pair, "stranger", honest[:WITHOUT]),
        records=order.records,
        neighbouring=neighbouring,
        changed=loop.changed(pair, honest[0]),
    )
    claim = claim or _said(observation)
    delta = ASSUMED if claim is None else claim.delta
    learning = max(40, trials // 4)
    pilots = _measured(loop, pair, learning, seeds, lambda done: None)
    judged = _measured(loop, pair, trials, seeds, progress)
    while not loop.noise.enough:  # these runs are for their noise alone
        _measured(loop, pair, BATCH, seeds, lambda done: None)
    varies = any(len(np.unique(judged[1][judged[0] == world], axis=0)) > 1 for world in (0, 1))
    observation = replace(observation, more=loop.noise, varies=varies)
    score = scoring.learnt(*pilots, delta)
    worlds, features = judged
    scores = score.of(features)
    # The curve knows a mechanism up to one scale of all its noise.
    known = guarantee.mechanism(observation) if observation.one_scale else None
    curve = None
    if known is not None:
        curve = scoring.learnt_of_steps(*pilots).of(features), noise_family(known)
    given = worlds, scores, curve, delta
    shown, sure = _bounds(*given, confidence), _bounds(*given, ALARM_CONFIDENCE)
    noise = measured(observation, delta, confidence, None if claim is None else claim.epsilon)
    seen = None
    if claim is not None and noise is None:
        apart = scoring.apart(worlds, features)
        seen = power(learnt, apart, trials, claim, neighbouring)
    return LoopAudit(
        loop=loop.name,
        data=order.data,
        target=order.target,
        observation=observation,
        claim=claim,
        delta=delta,
        epsilon=guarantee.epsilon(observation, delta) if observation.steps else None,
        noise=noise,
        advantage=estimators.advantage(worlds, scores, confidence),
        lower_bounds=shown,
        proven=largest(sure),
        provable=largest(
            _bounds(worlds, np.where(worlds, 1.0, -1.0), None, delta, ALARM_CONFIDENCE)
        ).epsilon,
        power=seen,
        confidence=confidence,
        findings=findings(observation),
        pair=loop.pairs[pair],
        score=score.name,
        trials=trials,
        runs=loop.runs,
        seed=order.seed,
    )


def _bounds(
    worlds: scoring.Bools,
    scores: scoring.Floats,
    curve: tuple[scoring.Floats, NoiseFamily] | None,
    delta: float,
    confidence: float,
) -> dict[str, LowerBound]:
    """Return the lower bounds that judged runs prove, all of them together with `confidence`.

    A known mechanism's trade-off curve has a score and threshold of its own: counts prove most
    epsilon far in the tails, where they prove little of a curve.
    """
    level = 1 - (1 - confidence) / (len(BOUNDS) + (curve is not None))
    other = lower_bounds.MechanismKind.OTHER
    found = lower_bounds.lower_bounds(worlds, scores, delta, level, other, names=BOUNDS)
    if curve is not None:
        of_steps, family = curve
        found[TRADE_OFF] = trade_off_bound(worlds, of_steps, delta, level, family)
    return found


class _Seeds:
    """Seeds of runs, each of which is given out once."""

    def __init__(self, seed: int) -> None:
        self.seed, self.count = seed, 0

    def next(self, count: int) -> list[int]:
        """Return as many more."""
        numbers = range(self.count, self.count + count)
        self.count += count
        return [
            int(generator(self.seed, Role.NOISE, trial=each).integers(2**32)) for each in numbers
        ]

    def worlds(self, count: int) -> scoring.Bools:
        """Return fair worlds, half of each, for the next runs."""
        drawn = generator(self.seed, Role.WORLD, trial=self.count)
        return drawn.permutation(np.arange(count) % 2 == 0)


def _betraying(loop: LoopProcess, seeds: _Seeds) -> tuple[int, Learnt]:
    """Return the pair of worlds that pilots tell apart best, and what they learnt of it."""
    apart, learnt = [], []
    for pair in range(len(loop.pairs)):
        learnt.append(loop.pilot(pair, seeds.next(PILOTS)))
        if len(loop.pairs) == 1:
            return pair, learnt[0]
        measured = scoring.separation(*_measured(loop, pair, CHOOSING, seeds, lambda _: None))
        apart.append(max(learnt[-1].distance, measured - CHANCE))
    best = int(np.argmax(apart))
    return best, learnt[best]


def _measured(
    loop: LoopProcess, pair: int, count: int, seeds: _Seeds, progress: Callable[[int], None]
) -> Runs:
    """Return worlds [T] and features [T, features] of so many new runs."""
    found: list[Features] = []
    worlds, numbers = seeds.worlds(count), seeds.next(count)
    for start in range(0, count, BATCH):
        part = slice(start, start + BATCH)
        found += loop.features(pair, list(worlds[part]), numbers[part])
        progress(min(start + BATCH, count))
    return worlds, np.array(found)


def _said(observation: Observation) -> Claim | None:
    """Return the last word of the loop's accountant, None if it was not asked."""
    said = observation.present[0].statement
    if said is None or not math.isfinite(said.epsilon):
        return None
    source = "the loop's accountant, at its end"
    return Claim(said.epsilon, said.delta, Scope.RUN, source, unit="record")
