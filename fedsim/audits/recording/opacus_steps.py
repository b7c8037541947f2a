"""Recording Opacus: every step of a DPOptimizer, with one line after it was made.

    optimizer = fedsim.recording.opacus(optimizer, "steps.fedt")            # after make_private
    engine = fedsim.recording.opacus(PrivacyEngine(), "steps.fedt")         # or before it

From an optimiser it reads the clipped sum, the noise, the divisor and what its accountant is told.
From an engine also how many records there are and which of them are in each batch, and what the
divisor and the sampling rate would be with one record fewer.
"""

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from adversaries.errors import InputError
from fedsim.audits.recording.loop import PARAMETERS, Accounted, Recorder
from fedsim.audits.recording.recorder_sink import Sink, safely
from fedsim.common.opacus_clipping import clipped_sums, clipped_to, flat, sensitivities
from fedsim.federation.transcripts.records import Scalar

Recorded = TypeVar("Recorded")

MISSING = "Opacus is not installed, which is to be recorded here: pip install opacus"

NOT_OPACUS = (
    "{} is neither an Opacus optimiser nor a PrivacyEngine; give the optimizer that make_private "
    "returned, or the engine before make_private"
)

DISTRIBUTED = (
    "{} sums over several processes, each of which sees a part of the noise; record a training in "
    "one process"
)

UNRECORDED = "the model was stepped with gradients that no recorded step released"

CHANGED = "the gradients that the model was stepped along are others than those recorded"

POISSON, OWN_BATCHES = "poisson", "the loop itself, which trains on others than the loader drew"

_OPEN: dict[str, Recorder] = {}
"""Recorders of this process by path: an engine that is built anew goes on in the same file."""


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
    """Record every step of an optimiser of Opacus, or of all that an engine makes.

    Args:
        recorded: a DPOptimizer as `make_private` returned it, or a PrivacyEngine before that.
        to: file of the transcript, which must not exist unless `resume`; or a function to call with
            every step.
        records: N; read off the data loader where an engine is recorded.
        resume: whether to continue a transcript: where an engine is built anew in every round of a
            federation, all of its steps are of one training.
        parameters: about how many a step keeps of a larger model; None for all.
        size_public: whether N is no secret: neighbours then differ in a record that is there or
            adds nothing, and a divisor that is worked out from N gives nothing away.

    Returns:
        The same optimiser or engine. The transcript ends with the optimiser, or with the process.

    Raises:
        InputError: Opacus is not installed, or this is none of its optimisers or engines; or as of
            `Recorder`.
    """
    try:
        from opacus import PrivacyEngine  # noqa: PLC0415  (an extra, which others do without)
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
        _Steps(recorded, begun(None), key)
    return recorded


class _Steps:
    """Stands in the place of an optimiser's `pre_step`: clipping, noise and scaling.

    It knows the optimiser by a weak reference alone, so that both end with the training.
    """

    def __init__(
        self, optimizer: Any, recorder: Recorder, key: str, batches: "_Batches | None" = None
    ) -> None:
        self._of, self._recorder, self._batches = weakref.ref(optimizer), recorder, batches
        self._size: int | None = 0
        self._expected: Any = 0.0
        self._released: list[Any] = []
        optimizer.pre_step = self._pre_step
        optimizer.original_optimizer.register_step_post_hook(self._stepped)
        if key:
            _OPEN[key] = recorder
        weakref.finalize(optimizer, recorder.close)

    def _pre_step(self, closure: Callable[[], float] | None = None) -> Any:
        optimizer = self._of()
        assert optimizer is not None  # it is being called
        # Before the call, after which adaptive clipping has moved on and gradients are spent.
        size, accumulated = safely(_batch_size, optimizer), safely(_accumulated, optimizer)
        self._size = None if size is None or self._size is None else self._size + size
        before = safely(_noise, optimizer) or {}
        limits, part = sensitivities(optimizer), safely(clipped_sums, optimizer)
        self._expected = None if part is None or self._expected is None else self._expected + part
        result = type(optimizer).pre_step(optimizer, closure)
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
        """See the model step: along the gradients that were recorded, once each."""
        optimizer, released, self._released = self._of(), self._released, []
        if optimizer is None:
            return
        if not released:
            self._recorder.fail(UNRECORDED)
        elif not all(map(_same, released, optimizer.params)):
            self._recorder.fail(CHANGED)

    def _record(self, optimizer: Any, accumulated: int, before: dict[str, Scalar]) -> None:
        names = [str(place) for place in range(len(optimizer.params))]
        mean = optimizer.loss_reduction == "mean"
        batch: Any = self._size
        if self._batches is not None:
            batch = self._batches.of_step(accumulated, self._size)
            before |= self._batches.facts
            if isinstance(batch, int):  # the loop trained on others than those that were drawn
                before["sampling"] = OWN_BATCHES
        accounted = _accounted(optimizer, accumulated)
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
            randomness=_randomness(optimizer),
            **before,  # type: ignore[arg-type]  # scalars by name
        )


class _Batches:
    """Which records are in the batches of a data loader, in the order in which it draws them."""

    def __init__(self, loader: Any, rate: float) -> None:
        from opacus.data_loader import DPDataLoader  # noqa: PLC0415  (an extra)

        self._drawn: deque[tuple[int, ...]] = deque()
        self._sampler = loader.batch_sampler
        poisson = isinstance(loader, DPDataLoader)
        self.facts: dict[str, Scalar] = {
            "sampling": POISSON if poisson else type(self._sampler).__name__,
            "declared_rate": rate,
        }
        # A loader that has begun refuses to change its sampler, but not in this way.
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
        """Return the records of a step, or its size where the two do not agree.

        Args:
            size: as the optimiser saw it, None where it did not.
        """
        found: list[int] = []
        for _ in range(min(batches, len(self._drawn))):
            found += self._drawn.popleft()
        return found if size is None or len(found) == size else size


def _attach_engine(
    engine: Any, begun: Callable[[int | None], Recorder], key: str, size_public: bool
) -> None:
    """Record every optimiser that an engine makes from now on."""
    make = engine.make_private

    def make_private(*arguments: Any, **named: Any) -> Any:
        given = inspect.signature(make).bind(*arguments, **named).arguments["data_loader"]
        made = make(*arguments, **named)
        optimizer, loader = made[1], made[-1]
        _check(optimizer)
        records = len(given.dataset)
        batches = _Batches(loader, 1 / len(given))
        if not size_public:
            batches.facts |= _with_one_fewer(given, records)
        _Steps(optimizer, begun(records), key, batches)
        return made

    engine.make_private = make_private


def _with_one_fewer(loader: Any, records: int) -> dict[str, Scalar]:
    """Return the divisor and the rate that Opacus works out for a data set of one record less.

    Its own code: the rate is 1 over the number of batches, the divisor int(N rate).
    """
    size = loader.batch_size
    if not size or records < 2:
        return {}
    fewer = records - 1
    number = fewer // size if loader.drop_last else -(-fewer // size)
    if not number:
        return {}
    return {"neighbour_sample_rate": 1 / number, "neighbour_divisor": int(fewer * (1 / number))}


def _same(released: Any, parameter: Any) -> bool:
    return parameter.grad is not None and bool((released == parameter.grad).all())


def _check(optimizer: Any) -> None:
    kinds = {kind.__name__ for kind in type(optimizer).__mro__}
    if any("Distributed" in name or "FSDP" in name for name in kinds):
        raise InputError(DISTRIBUTED.format(type(optimizer).__name__))


def _batch_size(optimizer: Any) -> int | None:
    """Return how many gradients are about to be clipped; None under ghost clipping."""
    samples = optimizer.params[0].grad_sample if optimizer.params else None
    if samples is None:
        return None
    listed = samples if isinstance(samples, list) else [samples]
    return sum(len(each) for each in listed)


def _accumulated(optimizer: Any) -> int:
    return int(optimizer.accumulated_iterations)


def _noise(optimizer: Any) -> dict[str, Scalar]:
    """Return clipping and noise of the next step, as they are configured."""
    multiplier, norm = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
    found: dict[str, Scalar] = {"clipping_norm": norm, "noise_multiplier": multiplier}
    if optimizer.expected_batch_size:
        found["expected_batch_size"] = float(optimizer.expected_batch_size)
    count = getattr(optimizer, "unclipped_num_std", None)
    if count is not None:
        # A part of the budget is the count's: what is left for the sum.
        found |= {"adaptive": True, "clipped_count_std": float(count)}
        if multiplier:
            found["noise_multiplier"] = (multiplier**-2 - (2 * count) ** -2) ** -0.5
    adjusted = getattr(optimizer, "_adjusted_noise_multiplier", None)
    if adjusted is not None:
        found |= {"adaptive": True, "noise_multiplier": float(adjusted)}
    return found


def _accounted(optimizer: Any, accumulated: int) -> Accounted | None:
    """Return what the accountant was told; it is a free variable of the hook that tells it."""
    if optimizer.step_hook is None:
        return None
    inner = inspect.getclosurevars(optimizer.step_hook).nonlocals
    accountant, rate = inner.get("self"), inner.get("sample_rate")
    if accountant is None or rate is None:
        return None
    return Accounted(
        float(optimizer.noise_multiplier),
        min(1.0, float(rate) * accumulated),
        # Its length is that of the history, in which steps alike are one entry.
        sum(int(entry[-1]) for entry in accountant.history),
        str(accountant.mechanism()),
    )


def _randomness(optimizer: Any) -> str:
    if optimizer.secure_mode:
        return "secure"
    return "default" if optimizer.generator is None else "generator"
