"""Watching Opacus: what its optimizers release, its loaders draw and its accountants are told.

Methods of its classes are wrapped for as long as the process lives; nothing that they do changes.
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
import numpy.typing as npt

from fedsim.audits.loop.measurement import SHOWN, Seen, Statement, StepSeen
from fedsim.common.opacus_clipping import clipped_sums, clipped_to, flat, sensitivities

Floats = npt.NDArray[np.float64]

ORIGINAL = "_fedsim_original"
"""The attribute of a wrapped method that holds what it wraps."""

MAP = 0
"""PyTorch's kind of data sets that have places."""

SAMPLERS = {
    "UniformWithReplacementSampler": "poisson",
    "WeightedRandomSampler": "weighted",
    "SequentialSampler": "in order",
}
"""Names of samplers' classes -> what they do."""


@dataclass
class Watch:
    """What has been seen since `clear`.

    Attributes:
        steps: of Opacus's optimizers.
        released: of each step, [P].
        accountants: that were told of a step.
        told: noise multiplier and sampling rate, each time.
        statement: what an accountant said last.
        ahead: batches that an iterator drew and did not yield yet, by iterator.
        drawn: batches since the last step, each the pass over the data that it is of, and places.
        loader: the data set that they were drawn from.
        kind: of their sampler, and its rate.
        counts: how often each place was drawn for a step.
        passes: how many places each pass over the data gave to steps.
        begun: passes over any data.
        passing: the number of each iterator's pass.
        records: n, that they were drawn from.
        expected: of a batch in parts, the sum of clipped gradients so far, by optimizer.
        optimizer: Opacus's, that noised last.
        due: whether its noised gradients are still to be stepped along.
        unnoised: steps of other optimizers on the same parameters, since the first.
        state: the model [P] after the last step.
        start: the model before the first.
        moved: whether it changed between steps.
        within: whether an optimizer's step is being watched.
        wrapped: whether Opacus's classes are.
        replayed: gradients [P] that take the place of what is released, step by step.
    """

    steps: list[StepSeen] = field(default_factory=list)
    released: list[Floats] = field(default_factory=list)
    accountants: list[Any] = field(default_factory=list)
    told: list[tuple[float, float]] = field(default_factory=list)
    statement: Statement | None = None
    ahead: WeakKeyDictionary[Any, deque[list[int]]] = field(default_factory=WeakKeyDictionary)
    drawn: list[Any] = field(default_factory=list)
    loader: Any = None
    kind: tuple[str, float] = ("", 0.0)
    counts: Counter[int] = field(default_factory=Counter)
    passes: Counter[int] = field(default_factory=Counter)
    begun: int = 0
    passing: WeakKeyDictionary[Any, int] = field(default_factory=WeakKeyDictionary)
    records: int = 0
    expected: dict[int, Any] = field(default_factory=dict)
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
        """Forget everything.

        Args:
            replayed: what the next run is given in place of what its steps release.
        """
        self.__dict__.update(Watch(wrapped=self.wrapped, replayed=replayed).__dict__)

    def seen(
        self, model: Floats | None, released: Floats, beside: tuple[tuple[str, str], ...]
    ) -> Seen:
        """Return what the run showed.

        Args:
            model: that the loop returned, None for none.
        """
        made = np.empty(0) if self.state is None else self.state
        rest = _rest(made if model is None else model, made)
        start = made if self.start is None else self.start
        return Seen(
            steps=tuple(self.steps),
            statement=self.statement,
            counts=tuple(self.counts[place] for place in range(self.records)),
            records=tuple(sorted(_checksums(self.loader))),
            explained=bool(self.steps) and rest is not None and not self.moved,
            # A sampler of more places than there are records goes through them several times.
            epochs=sum(-(-places // max(1, self.records)) for places in self.passes.values()),
            beside=beside,
            unnoised=self.unnoised,
            start=_checksum(start if rest is None else np.append(start, rest)),
            released=_checksum(released),
            values=len(np.unique(released)),
        )


def _checksums(dataset: Any) -> list[str]:
    """Return the checksum of each record's tensors, [] of a data set that makes its records."""
    name = type(dataset).__name__
    if name == "Subset":
        whole = _checksums(dataset.dataset)
        return [whole[place] for place in dataset.indices] if whole else []
    if name != "TensorDataset":
        return []
    tensors = [each.detach().cpu().numpy() for each in dataset.tensors]
    records = (b"".join(row.tobytes() for row in rows) for rows in zip(*tensors, strict=True))
    return [hashlib.sha256(each).hexdigest()[:16] for each in records]


def _checksum(values: Floats) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def _rest(model: Floats, made: Floats) -> Floats | None:
    """Return the numbers of a model that no step made, such as those of frozen layers, in order.

    Returns:
        Them; None unless all that steps made is in the model, in whichever order.
    """
    values, counts = np.unique(model, return_counts=True)
    wanted, times = np.unique(made, return_counts=True)
    places = np.searchsorted(values, wanted)
    if len(wanted) and (places[-1] >= len(values) or (values[places] != wanted).any()):
        return None
    counts[places] -= times
    return None if (counts < 0).any() else np.repeat(values, counts)


_HOOKS: list[Any] = []
"""PyTorch's hook that sees the steps of ordinary optimizers: at most one in a process."""

Wrapper = Callable[[Watch, Callable[..., Any]], Callable[..., Any]]


def wrap(seer: Watch) -> bool:
    """Wrap what is there of Opacus and of PyTorch's loaders, once it has been imported.

    Returns:
        Whether it was not wrapped before.
    """
    if seer.wrapped or "opacus" not in sys.modules:
        return False
    seer.wrapped = True
    accountants = importlib.import_module("opacus.accountants")
    optimizers = importlib.import_module("opacus.optimizers")
    loaders = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
    for found in [*vars(optimizers).values()]:
        if isinstance(found, type) and hasattr(found, "pre_step"):
            _replace(found, seer, pre_step=_step)
    for found in [*vars(accountants).values()]:
        if isinstance(found, type) and hasattr(found, "get_epsilon"):
            _replace(found, seer, step=_told, get_epsilon=_asked)
    _replace(loaders, seer, _next_index=_drawn, __next__=_taken)
    hooks = importlib.import_module("torch.optim.optimizer")
    while _HOOKS:  # of several that were to see it, the last one sees it
        _HOOKS.pop().remove()
    hook = hooks.register_optimizer_step_post_hook(lambda optimizer, *_: _moved(seer, optimizer))
    _HOOKS.append(hook)
    return True


def _replace(owner: type, seer: Watch, **wrappers: Wrapper) -> None:
    for name, wrapper in wrappers.items():
        if name in vars(owner):
            method = vars(owner)[name]
            # Of several that were to see it, the last one sees it.
            original = getattr(method, ORIGINAL, method)
            wrapped = wrapper(seer, original)
            setattr(wrapped, ORIGINAL, original)
            setattr(owner, name, wrapped)


def _step(seer: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an optimizer's `pre_step`: clip, add noise, divide."""

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if seer.within:  # of a subclass, which is being watched
            return original(self, *args, **kwargs)
        here = flat(self.params)
        seer.start = here if seer.start is None else seer.start
        seer.moved |= seer.state is not None and not np.array_equal(here, seer.state)
        seer.state = here
        expected, limits = clipped_sums(self), sensitivities(self)
        before = seer.expected.pop(id(self), None)
        if expected is not None and before is not None:
            expected = expected + before
        found: dict[str, Any] = {"told": len(seer.told), "norm": float(self.max_grad_norm)}
        add_noise, scale_grad = self.add_noise, self.scale_grad

        def noise() -> None:
            found["sum"] = flat([each.summed_grad for each in self.params])
            add_noise()
            found["noised"] = flat([each.grad for each in self.params])

        def scale() -> None:
            scale_grad()
            found["released"] = flat([each.grad for each in self.params])
            _replay(seer, self.params)

        self.add_noise, self.scale_grad, seer.within = noise, scale, True
        try:
            done = original(self, *args, **kwargs)
        finally:
            del self.add_noise, self.scale_grad
            seer.within = False
        if "released" in found:
            _record(seer, self, found, expected, limits)
            seer.optimizer, seer.due = self, True
        else:  # one of several parts of a batch
            seer.expected[id(self)] = expected
        return done

    return wrapped


def _replay(seer: Watch, params: list[Any]) -> None:
    """Put the gradient that another run released in the place of this run's, where there is one."""
    place = len(seer.released)
    sizes = [each.numel() for each in params]
    if place < len(seer.replayed) and seer.replayed[place].size == sum(sizes):
        parts = np.split(seer.replayed[place], np.cumsum(sizes)[:-1])
        for each, part in zip(params, parts, strict=True):
            each.grad = each.grad.new_tensor(part).reshape(each.grad.shape)


def _record(
    seer: Watch, optimizer: Any, found: dict[str, Any], expected: Any, limits: Floats
) -> None:
    drawn = Counter(place for _, batch in seer.drawn for place in batch)
    seer.counts.update(drawn)
    for number, batch in seer.drawn:
        seer.passes[number] += len(batch)
    batches, seer.drawn = len(seer.drawn), []
    sampler, rate = "", 0.0
    if batches and seer.records in (0, len(seer.loader)):
        seer.records, (sampler, rate) = len(seer.loader), seer.kind
    told = seer.told[found["told"] :]
    lengths = np.linalg.norm(found["released"]), np.linalg.norm(found["noised"])
    clipped, limit = None, float(limits[0])
    if expected is not None:
        longest = clipped_to(expected, found["sum"], limits)
        clipped, limit = longest is not None, limit if longest is None else longest
    noise = found["noised"] - found["sum"]
    sizes = tuple(each.numel() for each in optimizer.params)
    ends = np.cumsum(sizes)[:-1]
    seer.released.append(found["released"])
    seer.steps.append(
        StepSeen(
            optimizer=type(optimizer).__name__,
            noise_multiplier=float(optimizer.noise_multiplier),
            noise_norm=found["norm"],
            sensitivity=limit,
            divisor=float(lengths[1] / lengths[0]) if lengths[0] else 1.0,
            sizes=sizes,
            noise_energies=tuple(float(each @ each) for each in np.split(noise, ends)),
            noise=tuple(map(float, noise[:SHOWN])),
            clipped=clipped,
            records=sum(drawn.values()) if batches else -1,
            repeated=max(drawn.values(), default=0),
            sampler=sampler,
            rate=rate,
            told=bool(told),
            told_rate=told[-1][1] if told else 0.0,
            told_multiplier=told[-1][0] if told else 0.0,
            adaptive=hasattr(optimizer, "target_unclipped_quantile"),
            secure=bool(getattr(optimizer, "secure_mode", False)),
        )
    )


def _moved(seer: Watch, optimizer: Any) -> None:
    """See a step of an ordinary optimizer: along noised gradients once, else without noise."""
    if seer.optimizer is None:
        return
    own = {id(each) for each in seer.optimizer.params}
    if not any(id(each) in own for group in optimizer.param_groups for each in group["params"]):
        return
    if seer.due:
        seer.state, seer.due = flat(seer.optimizer.params), False
    # The hook runs once more for a step that calls the one of the class above.
    elif seer.state is None or (flat(seer.optimizer.params) != seer.state).any():
        seer.unnoised += 1


def _told(seer: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapped(self: Any, *, noise_multiplier: float, sample_rate: float) -> Any:
        if not any(each is self for each in seer.accountants):
            seer.accountants.append(self)
        seer.told.append((float(noise_multiplier), float(sample_rate)))
        return original(self, noise_multiplier=noise_multiplier, sample_rate=sample_rate)

    return wrapped


def _asked(seer: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `get_epsilon`; calibration asks accountants that no step was told to.

    One without a history is none of those: its hook was forgotten, and it says 0.

    Answers are remembered: an accountant takes ten times as long as the training of a small model,
    and is asked the same after every run. It answers from its history alone.
    """
    answers: dict[Any, Any] = {}

    def answer(self: Any, delta: float, *args: Any, **kwargs: Any) -> Any:
        history = tuple(tuple(each) for each in self.history)
        question = type(self), history, delta, args, tuple(sorted(kwargs.items()))
        try:
            known = question in answers
        except TypeError:  # a list of orders, of which there is no hash
            return original(self, delta, *args, **kwargs)
        if not known:
            answers[question] = original(self, delta, *args, **kwargs)
        return answers[question]

    @functools.wraps(original)
    def wrapped(self: Any, delta: float, *args: Any, **kwargs: Any) -> Any:
        epsilon = answer(self, delta, *args, **kwargs)
        forgotten = bool(seer.steps) and not self.history
        if forgotten or any(each is self for each in seer.accountants):
            counted = sum(int(steps) for *_, steps in self.history)
            seer.statement = Statement(float(epsilon), float(delta), counted)
        return epsilon

    return wrapped


def _drawn(seer: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what an iterator of a loader asks for the places of a batch, with workers some ahead."""

    @functools.wraps(original)
    def wrapped(self: Any) -> Any:
        places = original(self)
        if self._dataset_kind == MAP:  # what is iterated over has no places
            batch = [places] if isinstance(places, int) else list(places)
            seer.ahead.setdefault(self, deque()).append(batch)
        return places

    return wrapped


def _taken(seer: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what an iterator of a loader yields: the first of the batches that it drew ahead."""

    @functools.wraps(original)
    def wrapped(self: Any) -> Any:
        if self._num_yielded == 0:  # a loader may keep its iterator for all passes
            seer.begun += 1
            seer.passing[self] = seer.begun
        yielded = original(self)
        if seer.ahead.get(self):
            if self._dataset is not seer.loader:  # what another loader drew, no step took
                seer.loader, seer.drawn = self._dataset, []
            seer.drawn.append((seer.passing[self], seer.ahead[self].popleft()))
            seer.kind = _kind(self._index_sampler)
        return yielded

    return wrapped


def _kind(sampler: Any) -> tuple[str, float]:
    """Return what a sampler of batches does, and the rate of a Poisson one."""
    while hasattr(sampler, "sampler") and type(sampler).__name__ not in SAMPLERS:
        sampler = sampler.sampler
    name = type(sampler).__name__
    if name == "RandomSampler":
        return ("with replacement" if sampler.replacement else "shuffled"), 0.0
    kind = SAMPLERS.get(name, name)
    return kind, float(sampler.sample_rate) if kind == "poisson" else 0.0
