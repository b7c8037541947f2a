"""The recorder of Opacus: every step of a DPOptimizer, with one line after it was made.

    optimizer = fedsim.recording.opacus(optimizer, "steps.fedt")            # after make_private
    engine = fedsim.recording.opacus(PrivacyEngine(), "steps.fedt")         # or before it

An optimizer gives the clipped sum, the noise, the divisor and the accountant's records. An engine
also gives the number of records, those of each batch, and the divisor for a data set with one
record fewer.
"""

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from adversaries.errors import InputError
from fedsim.audits.recording.loop import PARAMETERS, Recorder, Sink
from fedsim.audits.steps.watch import POISSON, Drawn, Watch, WatchedStep, safely
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
OWN_BATCHES = "the loop itself, which trains on other records than the loader's"
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
        to: folder of the transcript, which must not exist unless `resume`; or a function to call
            with every step.
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


class _OpacusSteps(Watch):
    """Records an optimizer's `pre_step`, which clips, adds noise and scales.

    It holds the optimizer by a weak reference, so that both end with the training.
    """

    def __init__(
        self, optimizer: Any, recorder: Recorder, key: str, batches: "_Batches | None" = None
    ) -> None:
        super().__init__()
        self._of, self._recorder, self._batches = weakref.ref(optimizer), recorder, batches
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
        step = self._own_step or partial(type(optimizer).pre_step, optimizer)
        return self.step(optimizer, step, closure)

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

    def guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return safely(function, *arguments)

    def drawn(self, batches: int) -> Drawn | None:
        return None if self._batches is None else self._batches.of_step(batches)

    def take(self, step: WatchedStep) -> None:
        """Record a step; its rate is the accountant's, where batches are Poisson samples."""
        batch: tuple[int, ...] | int | None = step.rows if step.members is None else step.members
        facts = dict(step.facts)
        if step.members is not None and step.rows not in (None, len(step.members)):
            batch, facts["sampling"] = step.rows, OWN_BATCHES
        if "accountant" in facts and facts.get("sampling", POISSON) == POISSON:
            facts["sample_rate"] = facts["accountant_sample_rate"]
        gradients = [each.grad for each in step.optimizer.params]
        self._recorder.step(
            gradients,
            step.summed,
            divisor=step.divisor,
            batch=batch,
            **facts,  # type: ignore
        )
        self._released = [each.detach().clone() for each in gradients]


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

    def of_step(self, batches: int) -> Drawn:
        members: list[int] = []
        for _ in range(min(batches, len(self._drawn))):
            members += self._drawn.popleft()
        return tuple(members), self.facts


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
        _OpacusSteps(optimizer, begun(records), key, batches).know(engine.accountant)
        return made

    engine.make_private = make_private


def _with_one_fewer(loader: Any, records: int) -> dict[str, Scalar]:
    """Return Opacus's divisor for a data set with one record fewer.

    Its rate is 1 over the number of batches, and its divisor int(N rate).
    """
    size = loader.batch_size
    if not size or records < 2:
        return {}
    fewer = records - 1
    number = fewer // size if loader.drop_last else -(-fewer // size)
    if not number:
        return {}
    return {"neighbour_divisor": int(fewer * (1 / number))}


def _check(optimizer: Any) -> None:
    kinds = {kind.__name__ for kind in type(optimizer).__mro__}
    if any("Distributed" in name or "FSDP" in name for name in kinds):
        raise InputError(DISTRIBUTED.format(type(optimizer).__name__))
