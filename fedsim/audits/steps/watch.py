"""The watcher of Opacus: what an optimizer clips, sums, noises and releases in every step.

A recorder attaches it to one optimizer. An audit that runs the code attaches it to Opacus's classes
(`fedsim.audits.steps.classes`). The watcher changes no behaviour.
"""

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.judgement.claim import Claim
from fedsim.common.opacus_clipping import (
    adds_opacus_noise,
    clipped_sums,
    clipped_to,
    flat,
    gradient_norms,
    sensitivities,
)
from fedsim.federation.transcripts.records import ObservedRound, Scalar
from fedsim.privacy.trust import Vantage

log = logging.getLogger("flwr")

POISSON, OWN_CODE = "poisson", "own code"
ROUNDED = 1e-5
"""Relative difference of a measured divisor from Opacus's own that rounding explains."""

_LOGGED: set[str] = set()
"""Failures that this process has logged; each is logged once, or they would flood the log."""


def log_failure(subject: str, error: Exception) -> None:
    if subject not in _LOGGED:
        _LOGGED.add(subject)
        log.error(
            "fedsim: RECORDING FAILED, the transcript is incomplete; the app goes on (%s: %s: %s)",
            subject,
            type(error).__name__,
            error,
        )


def safely(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function; None if it fails, which the transcript then shows."""
    try:
        return function(*arguments)
    except Exception as error:
        log_failure(function.__name__, error)
        return None


@dataclass(frozen=True)
class Accounted:
    """An accountant's record, this step included.

    Attributes:
        sample_rate: q of this step, in (0, 1].
        steps: number of steps in all; fewer than were taken if the accountant was begun anew.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    kind: str = ""

    @property
    def facts(self) -> dict[str, Scalar]:
        """The same by the names of a transcript's mechanism."""
        return {
            "accountant": self.kind,
            "accountant_noise_multiplier": self.noise_multiplier,
            "accountant_sample_rate": self.sample_rate,
            "accountant_steps": self.steps,
        }


Drawn = tuple[tuple[int, ...], dict[str, Scalar]]
"""Indices that a loader drew for a step, and facts of its sampler and data set."""


@dataclass(frozen=True)
class WatchedStep:
    """A step, with its arrays.

    Attributes:
        noised: the same with noise, before it is divided.
        limit: C, the largest norm of a record's clipped gradient.
        facts: by the names of a transcript's mechanism.
    """

    optimizer: Any
    summed: list[Any]
    noised: list[Any]
    divisor: float
    members: tuple[int, ...] | None
    limit: float
    norms: Floats | None
    facts: dict[str, Scalar]

    @property
    def rows(self) -> int | None:
        """Number of summed gradients; None where they are not visible."""
        return None if self.norms is None else int(self.norms.shape[1])

    @cached_property
    def clipped(self) -> Floats:
        """Clipped sum [P]."""
        return flat(self.summed)

    @property
    def noise(self) -> Floats:
        return flat(self.noised) - flat(self.summed)


@dataclass(frozen=True)
class _Part:
    """Gradients that an optimizer is about to clip: those of a batch, or of a part of it.

    Attributes:
        expected: their clipped sum [clippings, P]; None where it is not visible.
        limits: largest L2 norm of a clipped gradient [clippings].
        norms: as in `WatchedStep`.
    """

    expected: Floats | None
    limits: Floats
    norms: Floats | None

    def after(self, before: "_Part | None") -> "_Part":
        """Return this part together with the earlier ones of its batch."""
        if before is None:
            return self
        sums, norms = (before.expected, self.expected), (before.norms, self.norms)
        return _Part(
            None if any(each is None for each in sums) else sum(sums),  # type: ignore[arg-type]
            self.limits,
            None if any(each is None for each in norms) else np.concatenate(norms, 1),  # type: ignore[arg-type]
        )


@dataclass
class Watch:
    """Watches the steps of optimizers.

    Attributes:
        ghost: gradient [P] that ghost clipping made last, and its clipping norm, by optimizer.
    """

    accountants: list[Any] = field(default_factory=list)
    ghost: dict[int, tuple[Floats, float]] = field(default_factory=dict)
    parts: dict[int, _Part] = field(default_factory=dict)
    within: bool = False

    def take(self, step: WatchedStep) -> None:
        """Use a step."""

    def drawn(self, batches: int) -> Drawn | None:
        """Return the records of a step that combines some batches; None if unknown."""

    def guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call one of the watcher's own functions."""
        return function(*arguments)

    def replay(self, parameters: list[Any]) -> None:
        """Replace gradients that a step has released."""

    def step(self, optimizer: Any, original: Callable[..., Any], *arguments: Any) -> Any:
        """Make an optimizer's `pre_step`, which clips, adds noise and scales; and take it."""
        if self.within:  # a call to the class above, inside an observed step
            return original(*arguments)
        before = self.guard(self._before, optimizer)
        seen: dict[str, list[Any]] = {}
        add_noise, scale_grad = optimizer.add_noise, optimizer.scale_grad

        def noise() -> None:
            seen["summed"] = self.guard(_copied, optimizer.params, "summed_grad")
            add_noise()
            seen["noised"] = self.guard(_copied, optimizer.params, "grad")

        def scale() -> None:
            scale_grad()
            seen["released"] = self.guard(_copied, optimizer.params, "grad")
            self.replay(optimizer.params)

        self.within = True
        try:
            with instead(optimizer, add_noise=noise, scale_grad=scale):
                result = original(*arguments)
        finally:
            self.within = False
        self.guard(self._after, optimizer, before, seen)
        return result

    def know(self, accountant: Any) -> None:
        if not any(each is accountant for each in self.accountants):
            self.accountants.append(accountant)

    def _before(self, optimizer: Any) -> "_Before":
        # Before the call, which moves an adaptive norm and uses the gradients up.
        if (accountant := _accountant(optimizer)) is not None:
            self.know(accountant)
        part = self._part(optimizer).after(self.parts.pop(id(optimizer), None))
        counted = {id(each): _steps(each) for each in self.accountants}
        accumulated = self.guard(getattr, optimizer, "accumulated_iterations") or 1
        return part, accumulated, counted, _facts(optimizer)

    def _part(self, optimizer: Any) -> _Part:
        norms = self.guard(gradient_norms, optimizer)
        ghost = self.ghost.pop(id(optimizer), None)
        if ghost is None:
            return _Part(self.guard(clipped_sums, optimizer), sensitivities(optimizer), norms)
        gradient, limit = ghost
        return _Part(gradient[None], np.array([limit]), norms)

    def _after(self, optimizer: Any, before: "_Before", seen: dict[str, list[Any]]) -> None:
        part, accumulated, counted, facts = before
        if "released" not in seen:  # one of several parts of a batch
            self.parts[id(optimizer)] = part
            return
        # Without gradients of single records, nothing shows whether the sum was clipped.
        limit = float(part.limits[0])
        if part.expected is not None:
            longest = clipped_to(part.expected, flat(seen["summed"]), part.limits)
            facts["clipped"] = longest is not None
            if longest is not None and "adaptive" not in facts:
                # The noise stays the same, and so does z C.
                facts["noise_multiplier"] *= facts["clipping_norm"] / longest  # type: ignore
                facts["clipping_norm"] = limit = longest
        drawn = self.drawn(accumulated)
        members, of_loader = (None, {}) if drawn is None else drawn
        divisor = _divisor(optimizer, accumulated, seen)
        self.take(
            WatchedStep(
                optimizer,
                seen["summed"],
                seen["noised"],
                divisor,
                members,
                limit,
                part.norms,
                facts | self._accounted(counted) | of_loader | {"accumulated": accumulated},
            )
        )

    def _accounted(self, before: Mapping[int, int]) -> dict[str, Scalar]:
        """Return what accountants recorded since their numbers of steps were read."""
        for accountant in reversed(self.accountants):
            steps = _steps(accountant)
            if steps > before.get(id(accountant), 0):
                multiplier, rate, *_ = accountant.history[-1]
                kind = str(accountant.mechanism())
                return Accounted(float(multiplier), min(1.0, float(rate)), steps, kind).facts
        return {}


_Before = tuple[_Part, int, Mapping[int, int], dict[str, Scalar]]
"""Gradients before a step, batches in it, each accountant's number of steps, and settings."""


@contextmanager
def instead(owner: Any, **methods: Callable[[], None]) -> Iterator[None]:
    """Give an object other methods in the block, and then what it had, its own code's included."""
    had = {name: vars(owner)[name] for name in methods if name in vars(owner)}
    vars(owner).update(methods)
    try:
        yield
    finally:
        for name, method in methods.items():
            if vars(owner).get(name) is method:  # else the code has set another one meanwhile
                del vars(owner)[name]
                vars(owner).update({name: had[name]} if name in had else {})


def _copied(parameters: list[Any], name: str) -> list[Any]:
    return [getattr(each, name).detach().clone() for each in parameters]


def _divisor(optimizer: Any, accumulated: int, seen: Mapping[str, list[Any]]) -> float:
    """Return the divisor of the noised sum, as measured; Opacus's own where it agrees."""
    noised, released = (
        sum(float(each.double().norm()) ** 2 for each in seen[name])
        for name in ("noised", "released")
    )
    # Opacus divides the whole noised sum by one number, which is the quotient of the lengths.
    measured = (noised / released) ** 0.5 if released else 1.0
    mean = optimizer.loss_reduction == "mean" and optimizer.expected_batch_size
    own = float(optimizer.expected_batch_size * accumulated) if mean else 1.0
    return own if abs(measured - own) <= ROUNDED * own else measured


def _facts(optimizer: Any) -> dict[str, Scalar]:
    """Return an optimizer's settings, by the names of a transcript's mechanism."""
    multiplier, norm = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
    drawn = "default" if optimizer.generator is None else "generator"
    drawn = "secure" if optimizer.secure_mode else drawn
    facts: dict[str, Scalar] = {
        "clipping_norm": norm,
        "noise_multiplier": multiplier,
        "optimizer": type(optimizer).__name__,
        "randomness": drawn if adds_opacus_noise(optimizer) else OWN_CODE,
    }
    if own := _own_noise(optimizer):
        facts["own_noise"] = own
    count = getattr(optimizer, "unclipped_num_std", None)
    if count is not None:
        # The count has a part of the budget: this multiplier is left for the sum.
        facts["adaptive"] = True
        if multiplier:
            facts["noise_multiplier"] = (multiplier**-2 - (2 * count) ** -2) ** -0.5
    adjusted = getattr(optimizer, "_adjusted_noise_multiplier", None)
    if adjusted is not None:
        facts |= {"adaptive": True, "noise_multiplier": float(adjusted)}
    return facts


def _own_noise(optimizer: Any) -> str:
    """Return what draws the noise if it is not Opacus itself; "" if it is."""
    by_opacus = type(optimizer).add_noise.__module__.startswith("opacus.")
    if "add_noise" in vars(optimizer) or not by_opacus:
        return "add_noise"
    return "" if optimizer.generator is None or optimizer.secure_mode else "generator"


def _accountant(optimizer: Any) -> Any:
    """Return the accountant that an optimizer's hook has as a free variable; None without one."""
    if optimizer.step_hook is None:
        return None
    accountant = inspect.getclosurevars(optimizer.step_hook).nonlocals.get("self")
    return accountant if hasattr(accountant, "history") else None


def _steps(accountant: Any) -> int:
    # The history has one entry for equal steps, with their number at its end.
    return sum(int(entry[-1]) for entry in accountant.history)


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
