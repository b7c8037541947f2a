"""The recorder of Opacus: every step of a DPOptimizer, with one line after it was made.

    optimizer = fedsim.recording.opacus(optimizer, "steps.fedt")            # after make_private
    engine = fedsim.recording.opacus(PrivacyEngine(), "steps.fedt")         # or before it

An optimizer gives the clipped sum, the noise, the divisor and the accountant's records. An engine
also gives the number of records, those of each batch, and the divisor and sampling rate for a data
set with one record fewer.
"""

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from adversaries.errors import InputError
from fedsim.audits.recording.loop import PARAMETERS, Accounted, Recorder, Sink, safely
from fedsim.common.opacus_clipping import (
    adds_opacus_noise,
    clipped_sums,
    clipped_to,
    flat,
    sensitivities,
)
from fedsim.federation.transcripts.records import Scalar

Recorded = TypeVar("Recorded")
MISSING = "Opacus is not installed; install it with pip install opacus"

NOT_OPACUS = (
    "{} is neither an Opacus optimizer nor a PrivacyEngine; give the optimizer that make_private "
    "returned, or the engine before make_private"
)

DISTRIBUTED = (
    "{} sums over several processes, each of which sees a part of the noise; record a training in "
    "one process"
)

UNRECORDED = "the model took a step with gradients that no recorded step released"
CHANGED = "the model took a step along gradients that differ from the recorded ones"
POISSON, OWN_BATCHES = "poisson", "the loop itself, which trains on other records than the loader's"
_OPEN: dict[str, Recorder] = {}
"""Recorders of this process by path: an engine that is built anew continues the same file."""


def opacus(
    recorded: Recorded,
    to: str | Path | Sink,
    *,
    records: int | None = None,
    unit: str = "record",
    resume: bool = False,
    app: str = "",
    parameters: int | None = PARAMETERS,
    size_public: bool = False,
) -> Recorded:
    """Record every step of an Opacus optimizer, or of all optimizers that an engine makes.

    Args:
        recorded: a DPOptimizer that `make_private` returned, or a PrivacyEngine before that.
        to: file of the transcript, which must not exist unless `resume`; or a function to call with
            every step.
        records: N; read off the data loader where an engine is recorded.
        resume: whether to continue a transcript. If an engine is built anew in every round of a
            federation, all of its steps belong to one training.
        parameters: approximate number that a step keeps of a larger model; None for all.
        size_public: whether N is public, so that a divisor computed from N reveals nothing.

    Returns:
        The same optimizer or engine. The transcript ends with the optimizer, or with the process.

    Raises:
        InputError: Opacus is not installed, this is not one of its optimizers or engines, the file
            exists or cannot be written, or a value is out of range.
    """
    try:
        from opacus import PrivacyEngine  # noqa: PLC0415  (an optional package)
        from opacus.optimizers import DPOptimizer  # noqa: PLC0415
    except ImportError:
        raise InputError(MISSING) from None
    if not isinstance(recorded, PrivacyEngine | DPOptimizer):
        raise InputError(NOT_OPACUS.format(type(recorded).__name__))
    if isinstance(recorded, DPOptimizer):
        _check(recorded)
    key = "" if callable(to) else str(Path(to).absolute())
    if resume and key in _OPEN:
        _OPEN.pop(key).close()

    def begun(size: int | None) -> Recorder:
        return Recorder(
            to,
            records=size if records is None else records,
            unit=unit,
            resume=resume,
            app=app,
            parameters=parameters,
            recorder="fedsim.recording.opacus",
            packages=("torch", "opacus"),
        )

    if isinstance(recorded, PrivacyEngine):
        _attach_engine(recorded, begun, key, size_public)
    else:
        _OpacusSteps(recorded, begun(None), key)
    return recorded


class _OpacusSteps:
    """Replaces an optimizer's `pre_step`, which clips, adds noise and scales.

    It holds the optimizer by a weak reference, so that both end with the training.
    """

    def __init__(
        self, optimizer: Any, recorder: Recorder, key: str, batches: "_Batches | None" = None
    ) -> None:
        self._of, self._recorder, self._batches = weakref.ref(optimizer), recorder, batches
        self._size: int | None = 0
        self._expected: Any = 0.0
        self._released: list[Any] = []
        set_on_it = vars(optimizer).get("pre_step")  # by the loop's own code, or another recorder
        recorded = isinstance(getattr(set_on_it, "__self__", None), _OpacusSteps)
        self._own_step = None if recorded else set_on_it
        optimizer.pre_step = self._pre_step
        optimizer.original_optimizer.register_step_post_hook(self._stepped)
        if key:
            _OPEN[key] = recorder
        weakref.finalize(optimizer, recorder.close)

    def _pre_step(self, closure: Callable[[], float] | None = None) -> Any:
        optimizer = self._of()
        assert optimizer is not None  # it is being called
        # Before the call, which moves an adaptive norm and uses the gradients up.
        size, accumulated = safely(_batch_size, optimizer), safely(_accumulated, optimizer)
        self._size = None if size is None or self._size is None else self._size + size
        before = safely(_noise, optimizer) or {}
        limits, part = sensitivities(optimizer), safely(clipped_sums, optimizer)
        self._expected = None if part is None or self._expected is None else self._expected + part
        step = self._own_step or partial(type(optimizer).pre_step, optimizer)
        result = step(closure)
        if result and not optimizer._is_last_step_skipped and optimizer.params:
            if self._expected is not None:
                summed = flat([each.summed_grad for each in optimizer.params])
                longest = clipped_to(self._expected, summed, limits)
                before["clipped"] = longest is not None
                if longest is not None and "adaptive" not in before:
                    before["noise_multiplier"] *= limits[0] / longest
                    before["clipping_norm"] = longest
            self._record(optimizer, accumulated or 1, before)
            self._size, self._expected = 0, 0.0
            self._released = [each.grad.detach().clone() for each in optimizer.params]
        return result

    def _stepped(self, *_: Any) -> None:
        """Check that the model steps along the recorded gradients, and once along each."""
        optimizer, released, self._released = self._of(), self._released, []
        if optimizer is None:
            return
        if not released:
            self._recorder.fail(UNRECORDED)
            return
        pairs = zip(released, optimizer.params, strict=False)
        if not all(each.grad is not None and bool((one == each.grad).all()) for one, each in pairs):
            self._recorder.fail(CHANGED)

    def _record(self, optimizer: Any, accumulated: int, before: dict[str, Scalar]) -> None:
        names = [str(place) for place in range(len(optimizer.params))]
        drawn = "default" if optimizer.generator is None else "generator"
        drawn = "secure" if optimizer.secure_mode else drawn
        mean = optimizer.loss_reduction == "mean"
        batch: Any = self._size
        if self._batches is not None:
            batch = self._batches.of_step(accumulated, self._size)
            before |= self._batches.facts
            if isinstance(batch, int):  # the loop trained on other records than those drawn
                before["sampling"] = OWN_BATCHES
        accounted = _accounted(optimizer, accumulated)
        if own := _own_noise(optimizer):
            before["own_noise"] = own
        if accounted is not None and before.get("sampling", POISSON) == POISSON:
            before["sample_rate"] = accounted.sample_rate
        self._recorder.step(
            {name: p.grad for name, p in zip(names, optimizer.params, strict=True)},
            {name: p.summed_grad for name, p in zip(names, optimizer.params, strict=True)},
            divisor=optimizer.expected_batch_size * accumulated if mean else 1.0,
            batch=batch,
            accounted=accounted,
            accumulated=accumulated,
            optimizer=type(optimizer).__name__,
            randomness=drawn if adds_opacus_noise(optimizer) else "own code",
            **before,  # type: ignore[arg-type]  # scalars by name
        )


class _Batches:
    def __init__(self, loader: Any, rate: float) -> None:
        from opacus.data_loader import DPDataLoader  # noqa: PLC0415  (an extra)

        self._drawn: deque[tuple[int, ...]] = deque()
        self._sampler = loader.batch_sampler
        poisson = isinstance(loader, DPDataLoader)
        self.facts: dict[str, Scalar] = {
            "sampling": POISSON if poisson else type(self._sampler).__name__,
            "declared_rate": rate,
        }
        # A loader that has begun refuses a new sampler, but not if it is set in this way.
        object.__setattr__(loader, "batch_sampler", self)

    def __iter__(self) -> Iterator[Any]:
        self._drawn.clear()
        for indices in self._sampler:
            self._drawn.append(tuple(map(int, indices)))
            yield indices

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def of_step(self, batches: int, size: int | None) -> Any:
        """Return the records of a step, or its size if it differs from theirs."""
        members: list[int] = []
        for _ in range(min(batches, len(self._drawn))):
            members += self._drawn.popleft()
        return members if size is None or len(members) == size else size


def _attach_engine(
    engine: Any, begun: Callable[[int | None], Recorder], key: str, size_public: bool
) -> None:
    make = engine.make_private

    def make_private(*arguments: Any, **named: Any) -> Any:
        loaded = inspect.signature(make).bind(*arguments, **named).arguments["data_loader"]
        made = make(*arguments, **named)
        optimizer, loader = made[1], made[-1]
        _check(optimizer)
        records = len(loaded.dataset)
        batches = _Batches(loader, 1 / len(loaded))
        if not size_public:
            batches.facts |= _with_one_fewer(loaded, records)
        _OpacusSteps(optimizer, begun(records), key, batches)
        return made

    engine.make_private = make_private


def _with_one_fewer(loader: Any, records: int) -> dict[str, Scalar]:
    """Return Opacus's divisor and rate for a data set with one record fewer.

    Its rate is 1 over the number of batches, and its divisor int(N rate).
    """
    size = loader.batch_size
    if not size or records < 2:
        return {}
    fewer = records - 1
    number = fewer // size if loader.drop_last else -(-fewer // size)
    if not number:
        return {}
    return {"neighbour_sample_rate": 1 / number, "neighbour_divisor": int(fewer * (1 / number))}


def _check(optimizer: Any) -> None:
    kinds = {kind.__name__ for kind in type(optimizer).__mro__}
    if any("Distributed" in name or "FSDP" in name for name in kinds):
        raise InputError(DISTRIBUTED.format(type(optimizer).__name__))


def _batch_size(optimizer: Any) -> int | None:
    """Return the number of gradients about to be clipped; None under ghost clipping."""
    samples = optimizer.params[0].grad_sample if optimizer.params else None
    if samples is None:
        return None
    listed = samples if isinstance(samples, list) else [samples]
    return sum(len(each) for each in listed)


def _accumulated(optimizer: Any) -> int:
    return int(optimizer.accumulated_iterations)


def _noise(optimizer: Any) -> dict[str, Scalar]:
    multiplier, norm = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
    keys: dict[str, Scalar] = {"clipping_norm": norm, "noise_multiplier": multiplier}
    if optimizer.expected_batch_size:
        keys["expected_batch_size"] = float(optimizer.expected_batch_size)
    count = getattr(optimizer, "unclipped_num_std", None)
    if count is not None:
        # The count has a part of the budget: this multiplier is left for the sum.
        keys |= {"adaptive": True, "clipped_count_std": float(count)}
        if multiplier:
            keys["noise_multiplier"] = (multiplier**-2 - (2 * count) ** -2) ** -0.5
    adjusted = getattr(optimizer, "_adjusted_noise_multiplier", None)
    if adjusted is not None:
        keys |= {"adaptive": True, "noise_multiplier": float(adjusted)}
    return keys


def _own_noise(optimizer: Any) -> str:
    """Return what draws the noise if it is not Opacus itself; "" if it is."""
    by_opacus = type(optimizer).add_noise.__module__.startswith("opacus.")
    if "add_noise" in vars(optimizer) or not by_opacus:
        return "add_noise"
    return "" if optimizer.generator is None or optimizer.secure_mode else "generator"


def _accounted(optimizer: Any, accumulated: int) -> Accounted | None:
    """Return the accountant's record; the accountant is a free variable of the optimizer's hook."""
    if optimizer.step_hook is None:
        return None
    inner = inspect.getclosurevars(optimizer.step_hook).nonlocals
    accountant, rate = inner.get("self"), inner.get("sample_rate")
    if accountant is None or rate is None:
        return None
    return Accounted(
        float(optimizer.noise_multiplier),
        min(1.0, float(rate) * accumulated),
        # The history has one entry for equal steps, with their number at its end.
        sum(int(entry[-1]) for entry in accountant.history),
        str(accountant.mechanism()),
    )
