"""Observes Opacus: releases of its optimizers, draws of its loaders, records of its accountants.

Methods of its classes stay wrapped while the process lives. The wrappers change no behaviour.
"""

import functools
import hashlib
import importlib
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.loop.loader_records import contents
from fedsim.audits.loop.measurement import SHOWN, LoopStatement, ObservedRun, StepSeen
from fedsim.audits.loop.step_sums import Part, StepSum, instead, part_of
from fedsim.common.opacus_clipping import adds_opacus_noise, clipped_to, flat

ORIGINAL = "_fedsim_original"
"""Attribute of a wrapper that holds the wrapped method."""

MAP = 0
"""PyTorch's kind of data sets whose records have indices."""

SAMPLERS = {
    "UniformWithReplacementSampler": "poisson",
    "WeightedRandomSampler": "weighted",
    "SequentialSampler": "in order",
}


@dataclass
class LoopWatch:
    """Observations since `clear`.

    Attributes:
        accounted: recorded noise multiplier and sampling rate of each step.
        ahead: batches that an iterator drew and did not yield yet, by iterator.
        drawn: batches since the last step, each with its pass over the data and its indices.
        loader: data set of these batches.
        dataset: data set of the batches of the last step.
        kind: kind of their sampler, and its rate.
        counts: how often each index was drawn for a step.
        passes: number of indices that each pass over the data gave to steps.
        begun: number of passes over any data.
        passing: number of each iterator's pass.
        records: n, the size of the data set.
        parts: gradients so far of a batch that comes in parts, by optimizer.
        ghost: gradient [P] that ghost clipping made last, and its clipping norm, by optimizer.
        sums: steps without their noise.
        noises: noise of each step, in configured standard deviations.
        optimizer: Opacus's optimizer that added noise last.
        due: whether the step along its noised gradients is still to come.
        unnoised: steps of other optimizers on the same parameters, after the first.
        state: model [P] after the last step.
        moved: whether the model changed between steps.
        within: whether the watch is inside an optimizer's step.
        replayed: gradients [P] that replace the released ones, step by step.
    """

    steps: list[StepSeen] = field(default_factory=list)
    released: list[Floats] = field(default_factory=list)
    accountants: list[Any] = field(default_factory=list)
    accounted: list[tuple[float, float]] = field(default_factory=list)
    statement: LoopStatement | None = None
    ahead: WeakKeyDictionary[Any, deque[list[int]]] = field(default_factory=WeakKeyDictionary)
    drawn: list[Any] = field(default_factory=list)
    loader: Any = None
    dataset: Any = None
    kind: tuple[str, float] = ("", 0.0)
    counts: Counter[int] = field(default_factory=Counter)
    passes: Counter[int] = field(default_factory=Counter)
    begun: int = 0
    passing: WeakKeyDictionary[Any, int] = field(default_factory=WeakKeyDictionary)
    records: int = 0
    parts: dict[int, Part] = field(default_factory=dict)
    ghost: dict[int, tuple[Floats, float]] = field(default_factory=dict)
    sums: list[StepSum] = field(default_factory=list)
    noises: list[Floats] = field(default_factory=list)
    optimizer: Any = None
    due: bool = False
    unnoised: int = 0
    state: Floats | None = None
    start: Floats | None = None
    moved: bool = False
    within: bool = False
    wrapped: bool = False
    replayed: tuple[Floats, ...] = ()

    def clear(self, replayed: tuple[Floats, ...] = ()) -> None:
        """Forget all observations; `replayed` replaces the gradients that the next run releases."""
        self.__dict__.update(LoopWatch(wrapped=self.wrapped, replayed=replayed).__dict__)

    def seen(
        self,
        model: Floats | None,
        released: Floats,
        beside: tuple[tuple[str, str], ...],
        given: tuple[Any, Any],
    ) -> ObservedRun:
        """Return the observations of a run.

        Args:
            model: numbers of the returned model; None where the function returned nothing.
            released: everything that the run released.
            beside: the model's integer tensors, as `contract.carried` returns them.
            given: the records' features [n, ...] and labels [n].
        """
        records = [] if self.dataset is None else contents(self.dataset, given)
        made = np.empty(0) if self.state is None else self.state
        rest = _rest(made if model is None else model, made)
        start = made if self.start is None else self.start
        return ObservedRun(
            steps=tuple(self.steps),
            statement=self.statement,
            counts=tuple(self.counts[place] for place in range(self.records)),
            records=tuple(sorted(records or ())),
            computed=type(self.dataset).__name__ if records is None else "",
            explained=bool(self.steps) and rest is not None and not self.moved,
            # A sampler with more indices than there are records makes several passes.
            epochs=sum(-(-places // max(1, self.records)) for places in self.passes.values()),
            beside=beside,
            unnoised=self.unnoised,
            start=_checksum(start if rest is None else np.append(start, rest)),
            released=_checksum(released),
            values=len(np.unique(released)),
        )


def _checksum(values: Floats) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def _rest(model: Floats, made: Floats) -> Floats | None:
    """Return the model's numbers that no step made, such as those of frozen layers, in order.

    None unless all numbers that steps made are in the model, in any order.
    """
    values, counts = np.unique(model, return_counts=True)
    wanted, times = np.unique(made, return_counts=True)
    places = np.searchsorted(values, wanted)
    if len(wanted) and (places[-1] >= len(values) or (values[places] != wanted).any()):
        return None
    # Numbers are compared as multisets, since a state dict may have another order.
    counts[places] -= times
    return None if (counts < 0).any() else np.repeat(values, counts)


_HOOKS: list[Any] = []
"""PyTorch's hook that observes ordinary optimizers: at most one in a process."""

Wrapper = Callable[[LoopWatch, Callable[..., Any]], Callable[..., Any]]


def wrap(watch: LoopWatch) -> bool:
    """Wrap Opacus and PyTorch's loaders once Opacus is imported; return whether this did it."""
    if watch.wrapped or "opacus" not in sys.modules:
        return False
    watch.wrapped = True
    accountants = importlib.import_module("opacus.accountants")
    optimizers = importlib.import_module("opacus.optimizers")
    loaders = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
    ghosts = importlib.import_module("opacus.utils.fast_gradient_clipping_utils")
    for kind in [*vars(optimizers).values()]:
        if isinstance(kind, type) and hasattr(kind, "pre_step"):
            _replace(kind, watch, pre_step=_step)
    for kind in [*vars(accountants).values()]:
        if isinstance(kind, type) and hasattr(kind, "get_epsilon"):
            _replace(kind, watch, step=_accounted, get_epsilon=_answered)
    _replace(loaders, watch, _next_index=_drawn, __next__=_taken)
    _replace(ghosts.DPTensorFastGradientClipping, watch, backward=_ghost_clipped)
    hooks = importlib.import_module("torch.optim.optimizer")
    while _HOOKS:  # the last watch replaces earlier ones
        _HOOKS.pop().remove()
    hook = hooks.register_optimizer_step_post_hook(lambda optimizer, *_: _moved(watch, optimizer))
    _HOOKS.append(hook)
    return True


def _replace(owner: type, watch: LoopWatch, **wrappers: Wrapper) -> None:
    for name, wrapper in wrappers.items():
        if name in vars(owner):
            method = vars(owner)[name]
            # The last watch replaces earlier ones.
            original = getattr(method, ORIGINAL, method)
            wrapped = wrapper(watch, original)
            setattr(wrapped, ORIGINAL, original)
            setattr(owner, name, wrapped)


def _step(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if watch.within:  # a call to the class above, inside an observed step
            return original(self, *args, **kwargs)
        model = flat(self.params)
        watch.start = model if watch.start is None else watch.start
        watch.moved |= watch.state is not None and not np.array_equal(model, watch.state)
        watch.state = model
        part = part_of(self, watch.ghost.pop(id(self), None))
        part = part.after(watch.parts.pop(id(self), None))
        seen: dict[str, Any] = {
            "recorded": len(watch.accounted),
            "norm": float(self.max_grad_norm),
            "own": adds_opacus_noise(self),
        }
        add_noise, scale_grad = self.add_noise, self.scale_grad

        def noise() -> None:
            seen["sum"] = flat([each.summed_grad for each in self.params])
            add_noise()
            seen["noised"] = flat([each.grad for each in self.params])

        def scale() -> None:
            scale_grad()
            seen["released"] = flat([each.grad for each in self.params])
            _replay(watch, self.params)

        watch.within = True
        try:
            with instead(self, add_noise=noise, scale_grad=scale):
                done = original(self, *args, **kwargs)
        finally:
            watch.within = False
        if "released" in seen:
            _record(watch, self, seen, part)
            watch.optimizer, watch.due = self, True
        else:  # one of several parts of a batch
            watch.parts[id(self)] = part
        return done

    return wrapped


def _ghost_clipped(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the backward pass of ghost clipping, which leaves the clipped sum as the gradient."""

    @functools.wraps(original)
    def wrapped(self: Any) -> None:
        original(self)
        gradient = flat([each.grad for each in self.optimizer.params])
        watch.ghost[id(self.optimizer)] = gradient, float(self.module.max_grad_norm)

    return wrapped


def _replay(watch: LoopWatch, params: list[Any]) -> None:
    place = len(watch.released)
    sizes = [each.numel() for each in params]
    if place < len(watch.replayed) and watch.replayed[place].size == sum(sizes):
        parts = np.split(watch.replayed[place], np.cumsum(sizes)[:-1])
        for each, part in zip(params, parts, strict=True):
            each.grad = each.grad.new_tensor(part).reshape(each.grad.shape)


def _record(watch: LoopWatch, optimizer: Any, parts: dict[str, Any], part: Part) -> None:
    members = tuple(place for _, batch in watch.drawn for place in batch)
    drawn = Counter(members)
    watch.counts.update(drawn)
    for number, batch in watch.drawn:
        watch.passes[number] += len(batch)
    batches, watch.drawn = len(watch.drawn), []
    watch.dataset = watch.loader if batches else watch.dataset
    sampler, rate = "", 0.0
    if batches and watch.records in (0, len(watch.loader)):
        watch.records, (sampler, rate) = len(watch.loader), watch.kind
    recorded = watch.accounted[parts["recorded"] :]
    # Opacus divides the whole noised sum by one number, which is the quotient of the lengths.
    lengths = np.linalg.norm(parts["released"]), np.linalg.norm(parts["noised"])
    # Without gradients of single records, nothing shows whether the sum was clipped.
    clipped, limit = None, float(part.limits[0])
    if part.expected is not None:
        longest = clipped_to(part.expected, parts["sum"], part.limits)
        clipped, limit = longest is not None, limit if longest is None else longest
    noise = parts["noised"] - parts["sum"]
    sizes = tuple(each.numel() for each in optimizer.params)
    ends = np.cumsum(sizes)[:-1]
    std = float(optimizer.noise_multiplier) * parts["norm"]
    watch.noises.append(noise / std if std > 0 else noise[:0])
    watch.released.append(parts["released"])
    watch.sums.append(StepSum(parts["sum"], limit, members, part.norms))
    watch.steps.append(
        StepSeen(
            optimizer=type(optimizer).__name__,
            noise_multiplier=float(optimizer.noise_multiplier),
            noise_norm=parts["norm"],
            sensitivity=limit,
            divisor=float(lengths[1] / lengths[0]) if lengths[0] else 1.0,
            sizes=sizes,
            noise_energies=tuple(float(each @ each) for each in np.split(noise, ends)),
            noise=tuple(map(float, noise[:SHOWN])),
            clipped=clipped,
            records=sum(drawn.values()) if batches else -1,
            repeated=max(drawn.values(), default=0),
            rows=watch.sums[-1].rows,
            own=parts["own"],
            sampler=sampler,
            rate=rate,
            told=bool(recorded),
            told_rate=recorded[-1][1] if recorded else 0.0,
            told_multiplier=recorded[-1][0] if recorded else 0.0,
            adaptive=hasattr(optimizer, "target_unclipped_quantile"),
            secure=bool(getattr(optimizer, "secure_mode", False)),
        )
    )


def _moved(watch: LoopWatch, optimizer: Any) -> None:
    """Observe an ordinary optimizer: it steps once along noised gradients, else without noise."""
    if watch.optimizer is None:
        return
    own = {id(each) for each in watch.optimizer.params}
    if not any(id(each) in own for group in optimizer.param_groups for each in group["params"]):
        return
    if watch.due:
        watch.state, watch.due = flat(watch.optimizer.params), False
    # PyTorch calls the hook again for a step that calls the class above: the model did not move.
    elif watch.state is None or (flat(watch.optimizer.params) != watch.state).any():
        watch.unnoised += 1


def _accounted(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapped(self: Any, *, noise_multiplier: float, sample_rate: float) -> Any:
        if not any(each is self for each in watch.accountants):
            watch.accountants.append(self)
        watch.accounted.append((float(noise_multiplier), float(sample_rate)))
        return original(self, noise_multiplier=noise_multiplier, sample_rate=sample_rate)

    return wrapped


def _answered(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `get_epsilon`, and keep answers of accountants that recorded a step.

    Calibration queries other accountants, which do not count. An accountant without a history
    counts: its hook was not attached, and it answers 0. Answers are cached, since an accountant
    takes ten times as long as training a small model, and every run repeats the query. An answer
    depends only on the history.
    """
    answers: dict[Any, Any] = {}

    def answer(self: Any, delta: float, *args: Any, **kwargs: Any) -> Any:
        history = tuple(tuple(each) for each in self.history)
        question = type(self), history, delta, args, tuple(sorted(kwargs.items()))
        try:
            cached = question in answers
        except TypeError:  # a list of orders is not hashable
            return original(self, delta, *args, **kwargs)
        if not cached:
            answers[question] = original(self, delta, *args, **kwargs)
        return answers[question]

    @functools.wraps(original)
    def wrapped(self: Any, delta: float, *args: Any, **kwargs: Any) -> Any:
        epsilon = answer(self, delta, *args, **kwargs)
        unattached = bool(watch.steps) and not self.history
        if unattached or any(each is self for each in watch.accountants):
            counted = sum(int(steps) for *_, steps in self.history)
            watch.statement = LoopStatement(float(epsilon), float(delta), counted)
        return epsilon

    return wrapped


def _drawn(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a loader's draw of a batch's indices; workers draw several batches ahead."""

    @functools.wraps(original)
    def wrapped(self: Any) -> Any:
        places = original(self)
        if self._dataset_kind == MAP:  # an iterable data set has no indices
            batch = [places] if isinstance(places, int) else list(places)
            watch.ahead.setdefault(self, deque()).append(batch)
        return places

    return wrapped


def _taken(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a loader's next batch: it is the first of those that were drawn ahead."""

    @functools.wraps(original)
    def wrapped(self: Any) -> Any:
        if self._num_yielded == 0:  # a loader may keep its iterator for all passes
            watch.begun += 1
            watch.passing[self] = watch.begun
        yielded = original(self)
        if watch.ahead.get(self):
            if self._dataset is not watch.loader:  # no step used what another loader drew
                watch.loader, watch.drawn = self._dataset, []
            watch.drawn.append((watch.passing[self], watch.ahead[self].popleft()))
            watch.kind = _kind(self._index_sampler)
        return yielded

    return wrapped


def _kind(sampler: Any) -> tuple[str, float]:
    while hasattr(sampler, "sampler") and type(sampler).__name__ not in SAMPLERS:
        sampler = sampler.sampler
    name = type(sampler).__name__
    if name == "RandomSampler":
        return ("with replacement" if sampler.replacement else "shuffled"), 0.0
    kind = SAMPLERS.get(name, name)
    return kind, float(sampler.sample_rate) if kind == "poisson" else 0.0
