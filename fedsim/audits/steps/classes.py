"""The watcher attached to Opacus's classes: every optimizer, loader and accountant of a process.

An audit that runs code uses it. Methods of the classes stay wrapped until `unwrap`.
"""

import functools
import importlib
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.steps.watch import (
    POISSON,
    Drawn,
    Statement,
    Step,
    Watch,
    WatchedStep,
    watched_step,
)
from fedsim.common.opacus_clipping import flat
from fedsim.federation.transcripts.records import Scalar

ORIGINAL = "_fedsim_original"  # attribute of a wrapper that holds the wrapped method

SAMPLERS = {
    "UniformWithReplacementSampler": POISSON,
    "WeightedRandomSampler": "weighted",
    "SequentialSampler": "in order",
}


@dataclass
class LoaderBatches:
    """The batches that loaders draw.

    Attributes:
        ahead: batches that an iterator drew and did not yield yet, by iterator.
        passing: number of each iterator's pass over the data, of `begun` passes.
        drawn: batches of `loader`, a data set, since the last step: pass and indices of each.
        dataset: data set of the batches of the last step; the first had `records` records.
    """

    ahead: WeakKeyDictionary[Any, deque[list[int]]] = field(default_factory=WeakKeyDictionary)
    passing: WeakKeyDictionary[Any, int] = field(default_factory=WeakKeyDictionary)
    begun: int = 0
    drawn: list[tuple[int, list[int]]] = field(default_factory=list)
    loader: Any = None
    kind: tuple[str, float] = ("", 0.0)
    dataset: Any = None
    records: int = 0
    passes: Counter[int] = field(default_factory=Counter)

    def draw(self, iterator: Any, places: Any) -> Any:
        """Note a batch's indices; workers draw several batches ahead."""
        if iterator._dataset_kind == 0:  # an iterable data set has no indices
            batch = [places] if isinstance(places, int) else list(places)
            self.ahead.setdefault(iterator, deque()).append(batch)
        return places

    def give(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """Give a loader's next batch: the first of those that were drawn ahead."""
        if iterator._num_yielded == 0:  # a loader may keep its iterator for all passes
            self.begun += 1
            self.passing[iterator] = self.begun
        yielded = original(iterator)
        if self.ahead.get(iterator):
            if iterator._dataset is not self.loader:  # no step used what another loader drew
                self.loader, self.drawn = iterator._dataset, []
            self.drawn.append((self.passing[iterator], self.ahead[iterator].popleft()))
            self.kind = _kind(iterator._index_sampler)
        return yielded

    def of_step(self) -> Drawn | None:
        """Return all that was drawn since the last step; None without a loader."""
        if not self.drawn:
            return None
        members = tuple(place for _, batch in self.drawn for place in batch)
        for number, batch in self.drawn:
            self.passes[number] += len(batch)
        self.drawn, self.dataset = [], self.loader
        facts: dict[str, Scalar] = {}
        if self.records in (0, len(self.loader)):
            self.records, (sampler, rate) = len(self.loader), self.kind
            facts = {"sampling": sampler, "records": self.records}
            facts |= {"declared_rate": rate} if rate else {}
        return members, facts

    @property
    def epochs(self) -> int:
        """Passes over the data that steps drew from, unfinished ones included."""
        # A sampler with more indices than there are records makes several passes.
        return sum(-(-places // max(1, self.records)) for places in self.passes.values())


def _kind(sampler: Any) -> tuple[str, float]:
    while hasattr(sampler, "sampler") and type(sampler).__name__ not in SAMPLERS:
        sampler = sampler.sampler
    name = type(sampler).__name__
    if name == "RandomSampler":
        return ("with replacement" if sampler.replacement else "shuffled"), 0.0
    kind = SAMPLERS.get(name, name)
    return kind, float(sampler.sample_rate) if kind == POISSON else 0.0


@dataclass
class LoopWatch(Watch):
    """Observations of all of Opacus since `clear`.

    Attributes:
        replayed: gradients [P] that replace the released ones, step by step.
        due: whether the step along its noised gradients is still to come.
        start: model [P] before the first step, and `state` after the last.
        moved: whether the model changed between steps.
        watched: steps with their arrays.
        noises: noise of each step, in configured standard deviations.
    """

    wrapped: bool = False
    replayed: tuple[Floats, ...] = ()
    released: list[Floats] = field(default_factory=list)
    statement: Statement | None = None
    batches: LoaderBatches = field(default_factory=LoaderBatches)
    optimizer: Any = None
    due: bool = False
    unnoised: int = 0
    start: Floats | None = None
    state: Floats | None = None
    moved: bool = False
    steps: list[Step] = field(default_factory=list)
    watched: list[WatchedStep] = field(default_factory=list)
    noises: list[Floats] = field(default_factory=list)

    def take(self, step: WatchedStep) -> None:
        seen = watched_step(len(self.steps) + 1, step)
        self.steps.append(seen)
        self.noises.append(step.noise / seen.std if seen.std > 0 else np.empty(0))
        self.watched.append(step)

    def clear(self, replayed: tuple[Floats, ...] = ()) -> None:
        """Forget all observations; `replayed` replaces the gradients that the next run releases."""
        self.__dict__.update(type(self)(wrapped=self.wrapped, replayed=replayed).__dict__)

    def drawn(self, batches: int) -> Drawn | None:
        return self.batches.of_step()

    def step(self, optimizer: Any, original: Callable[..., Any], *arguments: Any) -> Any:
        if not self.within:
            model = flat(optimizer.params)
            self.optimizer, self.due = optimizer, False
            self.start = model if self.start is None else self.start
            self.moved |= self.state is not None and not np.array_equal(model, self.state)
            self.state = model
        return super().step(optimizer, original, *arguments)

    def stepped(self, optimizer: Any) -> None:
        """Observe an ordinary optimizer: it steps once along noised gradients, else without."""
        if self.optimizer is None:
            return
        own = {id(each) for each in self.optimizer.params}
        if not any(id(each) in own for group in optimizer.param_groups for each in group["params"]):
            return
        if self.due:
            self.state, self.due = flat(self.optimizer.params), False
        # PyTorch calls the hook again for a step that calls the class above: no model moved.
        elif self.state is None or (flat(self.optimizer.params) != self.state).any():
            self.unnoised += 1

    def answered(self, accountant: Any, epsilon: float, delta: float) -> None:
        """Keep answers of accountants that recorded a step; calibration queries others.

        An accountant without a history counts: its hook was not attached, and it answers 0.
        """
        unattached = self.optimizer is not None and not accountant.history
        if unattached or any(each is accountant for each in self.accountants):
            counted = sum(int(steps) for *_, steps in accountant.history)
            self.statement = Statement(float(epsilon), float(delta), counted)

    def replay(self, parameters: list[Any]) -> None:
        self.due = True
        self.released.append(flat([each.grad for each in parameters]))
        place, sizes = len(self.released) - 1, [each.numel() for each in parameters]
        if place < len(self.replayed) and self.replayed[place].size == sum(sizes):
            parts = np.split(self.replayed[place], np.cumsum(sizes)[:-1])
            for each, part in zip(parameters, parts, strict=True):
                each.grad = each.grad.new_tensor(part).reshape(each.grad.shape)


def rest(model: Floats, made: Floats) -> Floats | None:
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

_WRAPPED: list[tuple[type, str, Any]] = []
"""Wrapped methods: owner, name and what was there before."""

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
    _replace(
        loaders,
        watch,
        _next_index=lambda watch, original: lambda it: watch.batches.draw(it, original(it)),
        __next__=lambda watch, original: lambda it: watch.batches.give(it, original),
    )
    _replace(ghosts.DPTensorFastGradientClipping, watch, backward=_ghost_clipped)
    hooks = importlib.import_module("torch.optim.optimizer")
    while _HOOKS:  # the last watch replaces earlier ones
        _HOOKS.pop().remove()
    hook = hooks.register_optimizer_step_post_hook(lambda optimizer, *_: watch.stepped(optimizer))
    _HOOKS.append(hook)
    return True


def unwrap() -> None:
    """Give all classes back their own methods."""
    while _WRAPPED:
        owner, name, original = _WRAPPED.pop()
        setattr(owner, name, original)
    while _HOOKS:
        _HOOKS.pop().remove()


def _replace(owner: type, watch: LoopWatch, **wrappers: Wrapper) -> None:
    for name, wrapper in wrappers.items():
        if name in vars(owner):
            method = vars(owner)[name]
            # The last watch replaces earlier ones.
            original = getattr(method, ORIGINAL, method)
            wrapped = functools.wraps(original)(wrapper(watch, original))
            setattr(wrapped, ORIGINAL, original)
            setattr(owner, name, wrapped)
            _WRAPPED.append((owner, name, original))


def _step(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        return watch.step(self, functools.partial(original, self, **named), *arguments)

    return wrapped


def _ghost_clipped(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the backward pass of ghost clipping, which leaves the clipped sum as the gradient."""

    def wrapped(self: Any) -> None:
        original(self)
        gradient = flat([each.grad for each in self.optimizer.params])
        watch.ghost[id(self.optimizer)] = gradient, float(self.module.max_grad_norm)

    return wrapped


def _accounted(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(self: Any, **named: Any) -> Any:
        watch.know(self)
        return original(self, **named)

    return wrapped


def _answered(watch: LoopWatch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `get_epsilon`, and keep its slow answers, which depend only on the history."""
    answers: dict[str, Any] = {}

    def wrapped(self: Any, delta: float, *arguments: Any, **named: Any) -> Any:
        question = repr((type(self), self.history, delta, arguments, sorted(named.items())))
        if question not in answers:
            answers[question] = original(self, delta, *arguments, **named)
        watch.answered(self, answers[question], delta)
        return answers[question]

    return wrapped
