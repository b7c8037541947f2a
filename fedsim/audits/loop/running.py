"""Runs a loop in either world, observes Opacus in it, and measures its releases.

`python -m fedsim.audits.loop.running DESCRIPTOR` is the process in which a function is audited. It
serves `LoopTrials`.
"""

import functools
import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.child_process import channel
from fedsim.audits.child_process.channel import AppFailedError, set_seeds
from fedsim.audits.loop import contract
from fedsim.audits.loop.attack import Direction, Features, learnt
from fedsim.audits.loop.contract import Data, Function, Neighbours, Tensor
from fedsim.audits.loop.influence import Training, contents, influence
from fedsim.audits.steps.classes import LoopWatch, rest, wrap
from fedsim.audits.steps.noise import LONGEST_NOISE, NoiseSums, echo_p_value, summed, total
from fedsim.audits.steps.observation import Influence, Observation, ObservedRun
from fedsim.audits.steps.watch import SHOWN
from fedsim.privacy.mechanism import Neighbouring

HONEST, WITHOUT = 6, 2
"""Observed runs with the target, and in each other world."""

FIRST = 1 << 20
"""Seed of the first parameter that is drawn; the next ones have the next seeds."""


@dataclass(frozen=True)
class LoopOrder:
    """What a process audits: a function as MODULE:NAME, and the data that it trains on."""

    function: str
    data: str
    records: int
    target: str
    neighbouring: str
    seed: int


def _checksum(values: Floats) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


@contextmanager
def same_first_network() -> Iterator[None]:
    """Let `torch.nn.init` fill the parameters with the same numbers in each such block.

    The claim must hold for each first network, which the adversary may know. A network that every
    run draws anew would hide the target behind its own randomness. The numbers that the loop draws
    elsewhere, such as its noise, do not depend on this.
    """
    from torch import default_generator, get_rng_state, set_rng_state  # noqa: PLC0415
    from torch.nn import Parameter, init  # noqa: PLC0415

    seeds = count(FIRST)

    def fixed(fill: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fill)
        def wrapped(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(tensor, Parameter):  # it may be noise
                return fill(tensor, *args, **kwargs)
            state = get_rng_state()
            default_generator.manual_seed(next(seeds))
            try:
                return fill(tensor, *args, **kwargs)
            finally:
                set_rng_state(state)

        return wrapped

    names = [name for name in vars(init) if name.endswith("_") and not name.startswith("_")]
    had = {name: getattr(init, name) for name in names}
    try:
        vars(init).update({name: fixed(fill) for name, fill in had.items()})
        yield
    finally:
        vars(init).update(had)


def observed_run(
    watch: LoopWatch,
    model: Floats | None,
    released: Floats,
    beside: tuple[tuple[str, str], ...],
    records: list[str] | None,
) -> ObservedRun:
    """Return the observations of a run.

    Args:
        watch: with the steps of the run.
        model: numbers of the returned model; None where the function returned nothing.
        released: everything that the run released.
        beside: the model's integer tensors, as `contract.carried` returns them.
        records: checksums of the loader's records; None where they are not known.
    """
    end = np.empty(0) if watch.state is None else watch.state
    start = end if watch.start is None else watch.start
    kept = rest(end if model is None else model, end)
    return ObservedRun(
        steps=tuple(watch.steps),
        statement=watch.statement,
        size=watch.batches.records,
        records=tuple(sorted(records or ())),
        computed=type(watch.batches.dataset).__name__ if records is None else "",
        explained=bool(watch.steps) and kept is not None and not watch.moved,
        epochs=watch.batches.epochs,
        beside=beside,
        unnoised=watch.unnoised,
        start=_checksum(start if kept is None else np.append(start, kept)),
        released=_checksum(released),
        few=len(np.unique(released)) < SHOWN,
    )


class Loop:
    """A loop, and the watch that observes it; `runs`: number of runs until now."""

    def __init__(self, function: Function, watch: LoopWatch) -> None:
        self._function, self._watch, self.runs = function, watch, 0

    def observed(self, data: Data, seed: int) -> ObservedRun:
        returned = self._called(data, seed)
        model = None if returned is None else contract.array(returned).ravel()
        beside = () if returned is None else contract.carried(contract.tensors(returned))
        released, records = self._released(returned), self._records(data)
        return observed_run(self._watch, model, released, beside, records)

    def _records(self, data: Data) -> list[str] | None:
        """Return checksums of the loader's records; [] without a loader, None if unknown."""
        dataset = self._watch.batches.dataset
        return [] if dataset is None else contents(dataset, (data.features, data.labels))

    def observed_runs(
        self, data: Data, seeds: Sequence[int]
    ) -> tuple[tuple[ObservedRun, ...], float]:
        """Return honest runs, and the p-value of their noise's repetition."""
        runs, noises = list[ObservedRun](), list[Floats]()
        for seed in seeds:
            runs.append(self.observed(data, seed))
            room = LONGEST_NOISE - sum(map(len, noises))
            noises.append(np.concatenate([*self._watch.noises, np.empty(0)])[:room])
        return tuple(runs), echo_p_value(np.concatenate(noises))

    def changed(self, present: Data, others: Sequence[Data], seed: int) -> tuple[str, ...] | None:
        """Return the tensors that depend on the data while every released step stays the same.

        A run on other data gets the gradients that the run on `present` released. Any tensor that
        then ends differently was changed by something else. A model that averages, projects or
        decays its weights ends the same. None where the loop ends differently on equal data too.
        """
        first = self._ended(present, seed)
        steps = tuple(self._watch.released)
        if not steps:
            return ()
        if _unlike(first, self._ended(present, seed, steps)):
            return None
        names = [_unlike(first, self._ended(each, seed, steps)) for each in others]
        return tuple(dict.fromkeys(name for each in names for name in each))

    def influence(self, data: Data, target: str, seed: int) -> Influence:
        """Return what one replaced record changes in the steps."""
        released = tuple[Floats, ...]()

        def run(other: Data) -> Training:
            self._called(other, seed, released)
            return Training(tuple(self._watch.watched), self._records(other) or [])

        first = run(data)
        released = tuple(self._watch.released)
        return influence(first, run, data, target, seed)

    def released(self, data: Data, seed: int) -> Floats:
        """Return what an attacked run releases, [k, P]; all begin with the same network."""
        with same_first_network():
            return self._released(self._called(data, seed))

    @property
    def noise(self) -> NoiseSums:
        return summed(self._watch.steps)

    def _ended(self, data: Data, seed: int, replayed: tuple[Floats, ...] = ()) -> dict[str, Tensor]:
        returned = self._called(data, seed, replayed)
        if returned is not None:
            return contract.tensors(returned)
        state = self._watch.state
        return {} if state is None else {"of the optimizer's parameters": state}

    def _called(self, data: Data, seed: int, replayed: tuple[Floats, ...] = ()) -> Any:
        import torch  # noqa: PLC0415

        wrap(self._watch)
        self._watch.clear(replayed)
        self.runs += 1
        set_seeds(seed)
        features, labels = torch.tensor(data.features), torch.tensor(data.labels)
        try:
            returned = self._function(features, labels, seed)
        except Exception as error:
            shape = list(features.shape[1:])
            ends = f"{labels.min()} to {labels.max()}" if len(labels) else "none"
            raise AppFailedError(
                f"the loop failed: {type(error).__name__}: {error} (its data were {len(features)} "
                f"records {shape} with labels {ends}; give others with --data)"
            ) from error
        # A function that imports Opacus itself has run unobserved: run it again.
        return self._called(data, seed, replayed) if wrap(self._watch) else returned

    def _released(self, returned: Any) -> Floats:
        if steps := self._watch.released:
            if len({each.size for each in steps}) > 1:
                raise AppFailedError("the loop trains models of several sizes; audit one at a time")
            return np.array(steps)
        if returned is None:
            raise AppFailedError(
                "the loop returned nothing, and took no step of Opacus's optimizer; return the "
                "model, or an array [k, P] of released steps"
            )
        rows = contract.array(returned)
        if rows.ndim not in (1, 2):
            raise AppFailedError(
                f"the loop returned an array of shape {rows.shape}; return a model [P] or steps "
                "[k, P]"
            )
        return np.atleast_2d(rows)


def _unlike(first: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors that differ by more than float32 rounding."""
    shared = [name for name in first if name in other and first[name].shape == other[name].shape]
    alike = {name for name in shared if np.allclose(first[name], other[name], rtol=1e-5, atol=0)}
    return sorted((first.keys() | other.keys()) - alike)


class LoopTrials:
    """Runs of a loop in this process, which an audit calls from another one."""

    def __init__(
        self, loop: Loop, pairs: Sequence[Neighbours], data: Data | None = None, target: str = ""
    ) -> None:
        self._loop, self._pairs = loop, pairs
        self.data, self.target = data or pairs[0].present, target
        self.directions: dict[int, Direction] = {}

    @property
    def runs(self) -> int:
        """Number of runs until now."""
        return self._loop.runs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the pairs of worlds."""
        return tuple(each.name for each in self._pairs)

    def honest(self, pair: int, seeds: Sequence[int]) -> Observation:
        """Return what honest runs with these seeds, a replay and replaced records show."""
        loop, worlds = self._loop, self._pairs[pair]
        twin, stranger = worlds.twin(), worlds.stranger()
        present, echo = loop.observed_runs(worlds.present, seeds)

        def runs(data: Data) -> tuple[ObservedRun, ...]:
            return tuple(loop.observed(data, seed) for seed in seeds[:WITHOUT])

        return Observation(
            present=present,
            absent=runs(worlds.absent),
            twin=runs(twin),
            stranger=runs(stranger),
            records=len(worlds.present),
            neighbouring=worlds.neighbouring,
            changed=loop.changed(worlds.present, [twin, stranger], seeds[0]),
            influence=loop.influence(self.data, self.target, seeds[0]),
            echo=echo,
        )

    def pilot(self, pair: int, seeds: Sequence[int]) -> float:
        """Learn a pair's direction from two runs a seed.

        Returns the approximate distance of the worlds, in standard deviations.
        """
        worlds = self._pairs[pair]
        present = [self._loop.released(worlds.present, seed) for seed in seeds]
        twin = [self._loop.released(worlds.twin(place), seed) for place, seed in enumerate(seeds)]
        direction = self.directions[pair] = learnt(present, twin)
        return direction.distance

    def features(
        self, pair: int, worlds: Sequence[bool], seeds: Sequence[int]
    ) -> tuple[tuple[Features, ...], NoiseSums]:
        """Return the features of each run, and the noise of their steps."""
        of, direction = self._pairs[pair], self.directions[pair]
        measured, noises = list[Features](), list[NoiseSums]()
        for world, seed in zip(worlds, seeds, strict=True):
            released = self._loop.released(of.present if world else of.absent, seed)
            measured.append(direction.features(released))
            noises.append(self._loop.noise)
        return tuple(measured), total(noises)


@contextmanager
def opened(order: LoopOrder) -> Iterator[LoopTrials]:
    # Opacus repeats in every run a warning that a rule reports once.
    warnings.simplefilter("ignore")
    function = contract.loaded(order.function)
    data = contract.drawn(order.data, order.records, order.seed)
    worlds = contract.pairs(data, order.target, Neighbouring(order.neighbouring), order.seed)
    yield LoopTrials(Loop(function, LoopWatch()), worlds, data, order.target)


if __name__ == "__main__":
    channel.serve(opened)
