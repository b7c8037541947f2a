"""One step of DP-SGD, as a transcript or the watcher has it, in believable numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.steps.watch import POISSON, Accounted, WatchedStep
from fedsim.federation.transcripts.records import ObservedRound
from fedsim.privacy.trust import Vantage

CONFIGURED = 1e-30, 1e30
"""Range of believed numbers other than 0, in which squares do not overflow."""

SHOWN = 4
"""Coordinates of a step's noise by which two noises are compared."""


def number(mechanism: Mapping[str, Any], name: str) -> float | None:
    value = mechanism.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if unbelievable(value) else float(value)


def unbelievable(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    smallest, largest = CONFIGURED
    return not (value == 0 or smallest <= value <= largest)


@dataclass(frozen=True)
class Statement:
    """The last answer of a training's accountant; `steps`: the releases that it counts."""

    epsilon: float
    delta: float
    steps: int

    def claim(self, source: str, unit: str, vantage: Vantage | None = None) -> Claim:
        return Claim(self.epsilon, self.delta, source, vantage, unit)


@dataclass(frozen=True)
class Step:
    """One step of DP-SGD; None where a value is unknown.

    Attributes:
        noise_multiplier: z; the noise has the standard deviation z C.
        sample_rate: q, if batches are declared Poisson samples; 1 for all records.
        batch: number of records drawn for it, with repetitions.
        sum_length: |S| of the whole clipped sum.
        sampling: kind of sampler; "" if unknown, or if the data had another length before.
        adaptive: whether the clipping norm follows the gradients, whose count is released too.
        neighbour_divisor: d with one record fewer.
        clipped: whether the sum is that of clipped gradients.
        noise_energies: squared length of the noise added to each of them.
        noise: first coordinates of the noise.
    """

    place: int
    engine: str
    divisor: float
    clipping_norm: float | None
    noise_multiplier: float | None
    sample_rate: float | None
    batch: int | None
    members: tuple[int, ...] | None
    records: int | None
    sum_length: float | None
    accumulated: int
    sampling: str
    adaptive: bool
    neighbour_divisor: float | None
    charged: Accounted | None
    clipped: bool | None = None
    rows: int | None = None
    randomness: str = ""
    sizes: tuple[int, ...] = ()
    noise_energies: tuple[float, ...] = ()
    noise: tuple[float, ...] = ()

    @property
    def std(self) -> float:
        """Configured standard deviation of the noise; 0 where it is unknown."""
        return (self.noise_multiplier or 0.0) * (self.clipping_norm or 0.0)

    @property
    def repeated(self) -> int:
        """How often the record was drawn that was drawn most."""
        return max(Counter(self.members).values(), default=0) if self.members else 0

    @property
    def charged_rate(self) -> float:
        return 0.0 if self.charged is None else self.charged.sample_rate


def step_of(place: int, observed: ObservedRound) -> Step | None:
    """Return a recorded step; None if its divisor is not a number above 0."""
    reply = next(iter(observed.replies.values()), None)
    size = None if reply is None else reply.num_examples
    batch = None if size is None or not 0 <= size < 2**53 else int(size)
    return _step(place, observed.mechanism, batch, observed.participants)


def watched_step(place: int, step: WatchedStep) -> Step:
    """Return a step of code that an audit runs; its rate is the sampler's own."""
    facts = step.facts | {"divisor": step.divisor, "accumulated": 1}
    if facts.get("sampling") == POISSON:
        facts["sample_rate"] = facts["declared_rate"]
    members, noise = step.members, step.noise
    made = _step(place, facts, None if members is None else len(members), members)
    assert made is not None  # a measured divisor is above 0
    sizes = tuple(each.numel() for each in step.optimizer.params)
    parts = np.split(noise, np.cumsum(sizes)[:-1])
    return replace(
        made,
        rows=step.rows,
        sizes=sizes,
        noise_energies=tuple(float(each @ each) for each in parts),
        noise=tuple(map(float, noise[:SHOWN])),
    )


def _step(
    place: int, mechanism: Mapping[str, Any], batch: int | None, members: Iterable[int] | None
) -> Step | None:
    divisor = 1.0 if "divisor" not in mechanism else number(mechanism, "divisor")
    if not divisor or divisor < 0:
        return None
    rate, accumulated = number(mechanism, "sample_rate"), number(mechanism, "accumulated")
    clipped = mechanism.get("clipped")
    return Step(
        place=place,
        engine=str(mechanism.get("engine", "")),
        divisor=divisor,
        clipping_norm=number(mechanism, "clipping_norm"),
        noise_multiplier=number(mechanism, "noise_multiplier"),
        sample_rate=rate if rate is not None and 0 < rate <= 1 else None,
        batch=batch,
        members=None if members is None else tuple(members),
        records=int(number(mechanism, "records") or 0) or None,
        sum_length=number(mechanism, "sum_length"),
        accumulated=max(1, int(accumulated or 1)),
        sampling=str(mechanism.get("sampling", "")),
        adaptive=mechanism.get("adaptive") is True,
        neighbour_divisor=number(mechanism, "neighbour_divisor") or None,
        charged=_charge(mechanism),
        clipped=clipped if isinstance(clipped, bool) else None,
        randomness=str(mechanism.get("randomness", "")),
    )


def _charge(mechanism: Mapping[str, Any]) -> Accounted | None:
    multiplier, rate, steps = (
        number(mechanism, f"accountant_{name}")
        for name in ("noise_multiplier", "sample_rate", "steps")
    )
    if multiplier is None or rate is None or not 0 < rate <= 1 or not steps:
        return None
    return Accounted(multiplier, rate, int(steps))
