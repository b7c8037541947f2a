"""Runs a loop in either world, and measures its releases along the target's direction.

The direction is learnt from pilots: pairs of runs with one seed, with the target and with another
record in its place. Both draw the same random numbers, so that most of their releases cancels. The
decisions about other runs are valid for any direction.

`python -m fedsim.audits.loop.running DESCRIPTOR` is the process in which a function is audited. It
talks over a socket to `fedsim.audits.loop.measurement`.
"""

import base64
import io
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.child_process import channel
from fedsim.audits.child_process.channel import AppFailedError, set_seeds
from fedsim.audits.loop import contract
from fedsim.audits.loop.contract import (
    Data,
    Function,
    Neighbours,
    carried,
    drawn,
    loaded,
    pairs,
    tensors,
)
from fedsim.audits.loop.first_network import same_first_network
from fedsim.audits.loop.influence import NO_STEPS, Training, influence
from fedsim.audits.loop.loader_records import contents, source
from fedsim.audits.loop.measurement import (
    FULL,
    ORDER,
    REQUEST,
    Features,
    Form,
    Learnt,
    LoopAnswer,
    LoopRequest,
    ObservedRun,
)
from fedsim.audits.loop.step_sums import Influence
from fedsim.audits.loop.watching import LoopWatch
from fedsim.audits.steps.classes import wrap
from fedsim.audits.steps.noise import LONGEST_NOISE, NoiseSums, echo_p_value, summed, total
from fedsim.privacy.mechanism import Neighbouring

LARGEST = 50.0
"""Largest log-likelihood ratio of a step that counts."""

FRESH = 2.0
"""Ratio of the first model's spread to any step's noise, above which each run draws its own."""

ALIKE = 0.25
"""Relative difference of a step's noise from most steps' up to which they count as equal."""

GROWTH = 1.5
"""Ratio of the target's effect on the later half of rows to the earlier, if rows are models."""


@dataclass(frozen=True)
class Direction:
    """The direction of a pair, learnt from pilots.

    Attributes:
        unit: [P], along which the target moves the releases.
        middle: [k], mean shift of the runs without the target, by step.
        std: standard deviation of that shift in a step.
        influence: shift by the target in a step in which it takes part.
        rate: share of steps in which it takes part, in (0, 1].
        scales: [k], divisors of the differences where rows are models; else None.
    """

    unit: Floats
    middle: Floats
    std: float
    influence: float
    rate: float
    scales: Floats | None = None

    def packed(self) -> str:
        """Return the direction as text, from which `unpacked` makes an equal one."""
        arrays = {name: array for name, array in vars(self).items() if array is not None}
        file = io.BytesIO()
        np.savez(file, **arrays)
        return base64.b64encode(file.getvalue()).decode("ascii")

    @classmethod
    def unpacked(cls, text: str) -> Self:
        arrays = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
        values: dict[str, Any] = {
            name: array if array.ndim else float(array) for name, array in arrays.items()
        }
        return cls(**values)

    @property
    def distance(self) -> float:
        """Approximate distance of the worlds, in standard deviations of the best score of steps.

        By the central limit theorem of sampled Gaussian steps (Bu et al., "Deep learning with
        Gaussian differential privacy", 2020, Theorem 5).
        """
        signal, steps = self.influence / self.std, len(self.middle)
        each = math.expm1(min(signal**2, LARGEST)) if self.rate < FULL else signal**2
        return self.rate * math.sqrt(steps * each)

    def features(self, released: Floats) -> Features:
        energy = float(np.log(max(np.square(released).sum(), 1e-300)))
        if released.shape[1] != len(self.unit):  # a model of another size reveals the world
            return (0.0, 0.0, 0.0, 0.0, energy, -1.0)
        if self.scales is not None:
            released = differences(released, self.scales)
        size = min(len(released), len(self.middle))
        # The shift along the direction, in standard deviations of a step without the target.
        apart = (released[:size] @ self.unit - self.middle[:size]) / self.std
        signal = self.influence / self.std
        # log N(x; signal, 1) - log N(x; 0, 1), then the mixture over whether the target joins.
        ratios = np.clip(signal * apart - signal**2 / 2, -LARGEST, LARGEST)
        sampled = np.log1p(self.rate * np.expm1(ratios)) if self.rate < 1 else ratios
        last, largest = apart[-1], apart.max()
        parts = sampled.sum(), apart.sum(), last, largest, energy, len(released)
        return tuple(float(each) for each in parts)


def learnt(
    present: Sequence[Floats], twin: Sequence[Floats], models: bool | None = False
) -> Direction:
    """Return the direction that the pilots show.

    Args:
        present: releases of the runs with the target, each [k, P].
        twin: releases with another record in its place.
        models: whether each row is a model, so that differences are the steps; None: the rows tell.
    """
    size = min(len(each) for each in (*present, *twin))
    width = min(each.shape[1] for each in (*present, *twin))
    with_it = np.array([each[:size, :width] for each in present])  # [pilots, k, P]
    without = np.array([each[:size, :width] for each in twin])
    scales = None
    if size > 1 and (_are_models(with_it, without) if models is None else models):
        scales = _scales(without)
        with_it = np.array([differences(each, scales) for each in with_it])
        without = np.array([differences(each, scales) for each in without])
    moved_by = with_it - without
    mean = moved_by.mean(axis=(0, 1))
    length = np.linalg.norm(mean)
    unit = mean / length if length > 0 else np.full(width, width**-0.5)
    moved = moved_by @ unit  # [pilots, k]
    base = without @ unit
    middle = base.mean(axis=0)
    # The middle is fitted to the same runs, which takes one degree of freedom of each step.
    spread = float(np.sqrt(np.square(base - middle).sum() / max(1, base.size - middle.size)))
    # The target may join a few steps only: a high quantile is its shift in a step that it joins.
    influence = float(np.quantile(moved, 0.9))
    influence = influence if influence > 0 else float(np.abs(moved).max()) or 1.0
    # The mean shift is the rate times the shift of a joined step.
    rate = float(np.clip(moved.mean() / influence, 0.01, 1))
    return Direction(unit, middle, max(spread, 1e-9 * influence), influence, rate, scales)


def differences(models: Floats, scales: Floats) -> Floats:
    """Return the steps between models [k, P], each divided by its scale [k].

    Rows beyond the scales are left out, and the first step where its scale is inf.
    """
    rows = models[: len(scales)]
    steps: Floats = np.diff(rows, axis=0, prepend=0.0) / scales[: len(rows), None]
    return steps[1:] if np.isinf(scales[0]) else steps


def _are_models(with_it: Floats, without: Floats) -> bool:
    """Return whether rows [pilots, k, P] add up, so that noise and the target's effect persist.

    Independent noise differs between rows by more than its length, and noise that adds up by less.
    The same holds if rows share a first model. So the target's effect must grow as well.
    """
    noise = without - without.mean(axis=0)
    adds_up = np.square(np.diff(noise, axis=1)).sum() < np.square(noise[:, 1:]).sum()
    moved = np.square((with_it - without).mean(axis=0)).sum(axis=1)
    half = len(moved) // 2
    return bool(adds_up and moved[-half:].mean() > GROWTH * moved[:half].mean())


def _scales(models: Floats) -> Floats:
    """Return the standard deviation of the noise in each difference [k], of models [pilots, k, P].

    It is inf for a first model that each run draws anew, which hides the first step.
    """
    steps = np.diff(models, axis=1, prepend=0.0)
    stds: Floats = np.sqrt(np.square(steps - steps.mean(axis=0)).mean(axis=(0, 2)))
    middle = float(np.median(stds[1:]))
    # A row that shows no noise by chance must not dominate the direction.
    stds = np.maximum(stds, 1e-3 * middle) if middle > 0 else np.ones(len(stds))
    fresh = stds[0] > FRESH * stds[1:].max()
    alike = np.abs(stds / middle - 1) < ALIKE if middle > 0 else np.zeros(len(stds), bool)
    stds[alike] = middle  # with so few runs these differ by chance
    stds[0] = np.inf if fresh else stds[0]
    return stds


class Loop:
    """A loop, and the watch that observes it.

    Attributes:
        many: whether it trains a model for each of several seeds at once.
        models: whether the rows of the last run were models; None for an array that may be either.
    """

    def __init__(self, function: Function, watch: LoopWatch) -> None:
        self._function, self._watch = function, watch
        self.many = function.many
        self.models: bool | None = None

    def observed(self, data: Data, seed: int) -> ObservedRun:
        returned = self._called(data, [seed])
        released = self._released(returned, 1)[0]
        # Of a list of models the last is what the steps made; the replay compares all of them.
        last = returned[-1] if contract.several(returned) else returned
        model = None if last is None else contract.array(last).ravel()
        given = data.features, data.labels
        return self._watch.seen(model, released, carried(returned), given)

    def changed(self, present: Data, others: Sequence[Data], seed: int) -> tuple[str, ...] | None:
        """Return the tensors that depend on the data while every released step stays the same.

        A run on other data gets the gradients that the run on `present` released. Any tensor that
        then ends differently was changed by something else. A model that averages, projects or
        decays its weights ends the same. None where the loop ends differently on equal data too.
        """
        if self._function.many:
            return ()
        first = self._ended(present, seed)
        steps = tuple(self._watch.released)
        if not steps:
            return ()
        if _unlike(first, self._ended(present, seed, steps)):
            return None
        names = [_unlike(first, self._ended(each, seed, steps)) for each in others]
        return tuple(dict.fromkeys(name for each in names for name in each))

    def influence(self, data: Data, target: str, seed: int) -> tuple[Influence, int]:
        """Return what one replaced record changes in the steps, and the number of runs."""
        if self._function.many:
            return Influence(unseen=NO_STEPS), 0
        runs, released = 0, tuple[Floats, ...]()

        def run(other: Data) -> Training:
            nonlocal runs
            runs += 1
            self._called(other, [seed], released)
            loader = self._watch.batches.dataset
            given = other.features, other.labels
            items = None if loader is None else contents(loader, given)
            return Training(tuple(self._watch.sums), items)

        first = run(data)
        released, dataset = tuple(self._watch.released), self._watch.batches.dataset

        def source_of(item: int) -> int:
            return source(dataset, item, len(data))

        return influence(first, run, data, source_of, target, seed), runs

    def _ended(self, data: Data, seed: int, replayed: tuple[Floats, ...] = ()) -> dict[str, Floats]:
        returned = self._called(data, [seed], replayed)
        if returned is not None:
            return tensors(returned)
        state = self._watch.state
        return {} if state is None else {"of the optimizer's parameters": state}

    def released(self, data: Data, seeds: Sequence[int]) -> list[Floats]:
        """Return what attacked runs release; all of them begin with the same network."""
        if self._function.many:
            return self._released(self._called(data, seeds), len(seeds))
        released = []
        for seed in seeds:
            with same_first_network():
                released += self._released(self._called(data, [seed]), 1)
        return released

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

    @property
    def watched(self) -> bool:
        return bool(self._watch.released) and not self.many

    @property
    def noise(self) -> NoiseSums:
        return NoiseSums() if self._function.many else summed(self._watch.steps)

    def _called(self, data: Data, seeds: Sequence[int], replayed: tuple[Floats, ...] = ()) -> Any:
        import torch  # noqa: PLC0415

        wrap(self._watch)
        self._watch.clear(replayed)
        set_seeds(seeds[0])
        features, labels = torch.tensor(data.features), torch.tensor(data.labels)
        argument = list(seeds) if self._function.many else seeds[0]
        try:
            returned = self._function.call(features, labels, argument)
        except Exception as error:
            raise AppFailedError(f"the loop failed: {type(error).__name__}: {error}") from error
        # A function that imports Opacus itself has run unobserved: run it again.
        return self._called(data, seeds, replayed) if wrap(self._watch) else returned

    def _released(self, returned: Any, runs: int) -> list[Floats]:
        if self.watched:
            steps = self._watch.released
            if len({each.size for each in steps}) > 1:
                raise AppFailedError("the loop trains models of several sizes; audit one at a time")
            self.models = False
            return [np.array(steps)]
        if returned is None:
            raise AppFailedError(
                "the loop returned nothing, and took no step of Opacus's optimizer; return the "
                "model, or an array [k, P] of released steps"
            )
        rows = contract.array(returned)
        self.models = True if contract.several(returned) else None
        if not self._function.many:
            rows = rows[None]
        if len(rows) != runs or rows.ndim not in (2, 3):
            raise AppFailedError(
                f"the loop returned an array of shape {rows.shape}; return a model [P] or steps "
                "[k, P] for each seed"
            )
        return list(rows if rows.ndim == 3 else rows[:, None])


def _unlike(first: dict[str, Floats], other: dict[str, Floats]) -> list[str]:
    """Return the names of tensors that differ by more than float32 rounding."""
    shared = [name for name in first if name in other and first[name].shape == other[name].shape]
    alike = {name for name in shared if np.allclose(first[name], other[name], rtol=1e-5, atol=0)}
    return sorted((first.keys() | other.keys()) - alike)


class LoopTrials:
    def __init__(
        self, loop: Loop, pairs: Sequence[Neighbours], data: Data | None = None, target: str = ""
    ) -> None:
        self._loop, self._pairs = loop, pairs
        self.data, self.target = data or pairs[0].present, target
        self.directions: dict[int, Direction] = {}
        self.learnt: dict[int, Learnt] = {}
        self.noise = NoiseSums()

    def pilot(self, pair: int, seeds: Sequence[int]) -> float:
        worlds = self._pairs[pair]
        present, twin = [], []
        for number, seed in enumerate(seeds):
            present += self._loop.released(worlds.present, [seed])
            twin += self._loop.released(worlds.twin(number), [seed])
        direction = self.directions[pair] = learnt(present, twin, self._loop.models)
        form: Form = "models" if direction.scales is not None else "steps"
        if self._loop.watched:
            form = "watched"
        elif len(direction.middle) == 1:
            form = "model"
        rows = len(direction.middle)
        self.learnt[pair] = Learnt(direction.distance, form, rows, direction.rate)
        return direction.distance

    def features(self, pair: int, worlds: Sequence[bool], seeds: Sequence[int]) -> list[Features]:
        data_of, direction = self._pairs[pair], self.directions[pair]
        measured, noises = dict[int, Features](), list[NoiseSums]()
        together = len(worlds) if self._loop.many else 1
        for world, data in ((True, data_of.present), (False, data_of.absent)):
            chosen = [place for place, each in enumerate(worlds) if bool(each) is world]
            for start in range(0, len(chosen), together):
                part = chosen[start : start + together]
                released = self._loop.released(data, [seeds[place] for place in part])
                noises.append(self._loop.noise)
                parts = (direction.features(each) for each in released)
                measured |= dict(zip(part, parts, strict=True))
        self.noise = total(noises)
        return [measured[place] for place in range(len(worlds))]


def answers(first: bytes, later: Iterator[bytes]) -> Iterator[LoopAnswer]:
    order = ORDER.validate_json(first, strict=True)
    # Opacus repeats in every run a warning that a rule reports once.
    warnings.simplefilter("ignore")
    function = loaded(order.function)
    data = drawn(order.data, order.records, order.seed)
    worlds = pairs(data, order.target, Neighbouring(order.neighbouring), order.seed)
    loop = Loop(function, LoopWatch())
    trials = LoopTrials(loop, worlds, data, order.target)
    yield LoopAnswer(pairs=tuple(each.name for each in worlds), many=function.many)
    for each in later:
        yield _answer(REQUEST.validate_json(each, strict=True), loop, trials, worlds)


def _answer(
    request: LoopRequest, loop: Loop, trials: LoopTrials, worlds: tuple[Neighbours, ...]
) -> LoopAnswer:
    pair = worlds[request.pair]
    if request.kind == "observe":
        made = {"twin": pair.twin, "stranger": pair.stranger}.get(request.world)
        data = getattr(pair, request.world) if made is None else made()
        runs, echo = loop.observed_runs(data, request.seeds)
        return LoopAnswer(runs=runs, echo=echo)
    if request.kind == "replay":
        (seed,) = request.seeds
        return LoopAnswer(changed=loop.changed(pair.present, [pair.twin(), pair.stranger()], seed))
    if request.kind == "replace":
        (seed,) = request.seeds
        influence, count = loop.influence(trials.data, trials.target, seed)
        return LoopAnswer(influence=influence, runs_made=count)
    return _of_pilots(request, trials)


def _of_pilots(request: LoopRequest, trials: LoopTrials) -> LoopAnswer:
    if request.kind == "share":
        return LoopAnswer(direction=trials.directions[request.pair].packed())
    if request.kind == "take":
        trials.directions[request.pair] = Direction.unpacked(request.direction)
        return LoopAnswer()
    if request.kind == "pilots":
        trials.pilot(request.pair, request.seeds)
        return LoopAnswer(learnt=trials.learnt[request.pair])
    features = tuple(trials.features(request.pair, request.worlds, request.seeds))
    return LoopAnswer(features=features, noise=trials.noise)


if __name__ == "__main__":
    channel.serve(answers)
