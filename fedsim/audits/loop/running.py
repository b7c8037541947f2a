"""Runs a loop in either world, and measures its releases along the target's direction.

`python -m fedsim.audits.loop.running DESCRIPTOR` is the process in which a function is audited. It
serves `LoopTrials`.
"""

import functools
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.child_process import channel
from fedsim.audits.child_process.channel import AppFailedError, set_seeds
from fedsim.audits.loop import contract
from fedsim.audits.loop.contract import Function, Tensor, carried, loaded, tensors
from fedsim.audits.loop.direction import Direction, learnt
from fedsim.audits.loop.influence import Training, influence
from fedsim.audits.loop.loader_records import source
from fedsim.audits.loop.measurement import (
    Features,
    Influence,
    LoopOrder,
    ObservedRun,
    World,
)
from fedsim.audits.loop.watching import LoopWatch
from fedsim.audits.loop.worlds import Data, Neighbours, drawn, pairs
from fedsim.audits.steps.classes import wrap
from fedsim.audits.steps.noise import LONGEST_NOISE, NoiseSums, echo_p_value, summed, total
from fedsim.privacy.mechanism import Neighbouring

FIRST = 1 << 20
"""Seed of the first parameter that is drawn; the next ones have the next seeds."""


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


class Loop:
    """A loop, and the watch that observes it.

    Attributes:
        models: whether the rows of the last run were models.
        runs: number of runs until now.
    """

    def __init__(self, function: Function, watch: LoopWatch) -> None:
        self._function, self._watch = function, watch
        self.models, self.runs = False, 0

    def observed(self, data: Data, seed: int) -> ObservedRun:
        returned = self._called(data, seed)
        released = self._released(returned)
        # Of a list of models the last is what the steps made; the replay compares all of them.
        last = returned[-1] if contract.several(returned) else returned
        model = None if last is None else contract.array(last).ravel()
        beside = () if returned is None else carried(tensors(returned))
        return self._watch.seen(model, released, beside, (data.features, data.labels))

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
            items = self._watch.contents((other.features, other.labels))
            return Training(tuple(self._watch.watched), items)

        first = run(data)
        released, dataset = tuple(self._watch.released), self._watch.batches.dataset

        def source_of(item: int) -> int:
            return source(dataset, item, len(data))

        return influence(first, run, data, source_of, target, seed)

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
            return tensors(returned)
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
            raise AppFailedError(f"the loop failed: {type(error).__name__}: {error}") from error
        # A function that imports Opacus itself has run unobserved: run it again.
        return self._called(data, seed, replayed) if wrap(self._watch) else returned

    def _released(self, returned: Any) -> Floats:
        if steps := self._watch.released:
            if len({each.size for each in steps}) > 1:
                raise AppFailedError("the loop trains models of several sizes; audit one at a time")
            self.models = False
            return np.array(steps)
        if returned is None:
            raise AppFailedError(
                "the loop returned nothing, and took no step of Opacus's optimizer; return the "
                "model, or an array [k, P] of released steps"
            )
        rows = contract.array(returned)
        self.models = contract.several(returned)
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

    def observed(
        self, pair: int, world: World, seeds: Sequence[int]
    ) -> tuple[tuple[ObservedRun, ...], float]:
        """Return honest runs, and the p-value of their noise's repetition."""
        worlds = self._pairs[pair]
        made = {"twin": worlds.twin, "stranger": worlds.stranger}.get(world)
        return self._loop.observed_runs(made() if made else getattr(worlds, world), seeds)

    def changed(self, pair: int, seed: int) -> tuple[str, ...] | None:
        """Return names of tensors that depend on the data while every step stays the same."""
        worlds = self._pairs[pair]
        return self._loop.changed(worlds.present, [worlds.twin(), worlds.stranger()], seed)

    def influence(self, seed: int) -> Influence:
        """Return what a replaced record changes in the steps of a run with this seed."""
        return self._loop.influence(self.data, self.target, seed)

    def pilot(self, pair: int, seeds: Sequence[int]) -> float:
        """Learn a pair's direction from two runs a seed.

        Returns the approximate distance of the worlds, in standard deviations.
        """
        worlds = self._pairs[pair]
        present = [self._loop.released(worlds.present, seed) for seed in seeds]
        twin = [self._loop.released(worlds.twin(place), seed) for place, seed in enumerate(seeds)]
        direction = self.directions[pair] = learnt(present, twin, self._loop.models)
        return direction.distance

    def keep(self, file: Path) -> None:
        """Write the directions that were learnt, for `take` of another process."""
        file.write_bytes(pickle.dumps(self.directions))

    def take(self, file: Path) -> None:
        self.directions = pickle.loads(file.read_bytes())

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
    function = loaded(order.function)
    data = drawn(order.data, order.records, order.seed)
    worlds = pairs(data, order.target, Neighbouring(order.neighbouring), order.seed)
    yield LoopTrials(Loop(function, LoopWatch()), worlds, data, order.target)


if __name__ == "__main__":
    channel.serve(opened)
