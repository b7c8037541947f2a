"""Running a loop in either world, and measuring what it released along the target's direction.

The direction is learnt from pilots: pairs of runs with one seed, with the target and with another
record in its place. They draw the same numbers, so that most of what they release cancels. Whatever
the direction is, what is decided of other runs by it is valid.

`python -m fedsim.audits.loop.running DESCRIPTOR` is the process that a function is audited in, with
a socket to `fedsim.audits.loop.process`.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.audits.loop import contract
from fedsim.audits.loop.contract import Function, carried, loaded, tensors
from fedsim.audits.loop.measurement import FULL, Features, Form, Learnt, Seen
from fedsim.audits.loop.noise import NoiseSums, summed, total
from fedsim.audits.loop.process import ORDER, REQUEST, Answer, Request
from fedsim.audits.loop.watching import Watch, wrap
from fedsim.audits.loop.worlds import Data, Pair, drawn, pairs
from fedsim.audits.sandbox import channel
from fedsim.audits.sandbox.channel import AppFailedError, set_seeds
from fedsim.privacy.mechanism import Neighbouring

Floats = npt.NDArray[np.float64]

LARGEST = 50.0
"""The largest log-likelihood ratio of a step that is counted."""

FRESH = 2.0
"""How many times the noise of any step the first model varies by, if each run draws its own."""

ALIKE = 0.25
"""How much the noise of a step may differ from that of most and count as the same."""

GROWTH = 1.5
"""How much more the target moves the later half of rows than the earlier, if they are models."""


@dataclass(frozen=True)
class Direction:
    """What pilots learnt of a pair.

    Attributes:
        unit: [P], along which the target moves what is released.
        middle: [k], how far the runs without the target moved along it, step by step.
        std: of that, in a step.
        influence: how far the target moves a step it takes part in.
        rate: the share of steps that it takes part in, in (0, 1].
        scales: [k], where the rows are models: what their differences are divided by; else None.
    """

    unit: Floats
    middle: Floats
    std: float
    influence: float
    rate: float
    scales: Floats | None = None

    @property
    def distance(self) -> float:
        """How far apart the worlds are, about, in standard deviations of the best score of steps.

        By the central limit theorem of sampled Gaussian steps.

        Source:
            Bu et al., "Deep learning with Gaussian differential privacy", 2020, Theorem 5.
        """
        signal, steps = self.influence / self.std, len(self.middle)
        each = math.expm1(min(signal**2, LARGEST)) if self.rate < FULL else signal**2
        return self.rate * math.sqrt(steps * each)

    def features(self, released: Floats) -> Features:
        """Return what is measured of a run, in the order of `FEATURES`.

        Args:
            released: [k, P], every step.
        """
        energy = float(np.log(max(np.square(released).sum(), 1e-300)))
        if released.shape[1] != len(self.unit):  # another model: that alone tells
            return (0.0, 0.0, 0.0, 0.0, energy, -1.0)
        if self.scales is not None:
            released = differences(released, self.scales)
        size = min(len(released), len(self.middle))
        apart = (released[:size] @ self.unit - self.middle[:size]) / self.std
        signal = self.influence / self.std
        ratios = np.clip(signal * apart - signal**2 / 2, -LARGEST, LARGEST)
        sampled = np.log1p(self.rate * np.expm1(ratios)) if self.rate < 1 else ratios
        last, largest = apart[-1], apart.max()
        parts = sampled.sum(), apart.sum(), last, largest, energy, len(released)
        return tuple(float(each) for each in parts)


def learnt(
    present: Sequence[Floats], twin: Sequence[Floats], models: bool | None = False
) -> Direction:
    """Return the direction of pilots.

    Args:
        present: what runs with the target released, each [k, P].
        models: whether each row is a model, of which the differences are the steps; None to find
            that out from the rows.
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
    influence = float(np.quantile(moved, 0.9))
    influence = influence if influence > 0 else float(np.abs(moved).max()) or 1.0
    rate = float(np.clip(moved.mean() / influence, 0.01, 1))
    return Direction(unit, middle, max(spread, 1e-9 * influence), influence, rate, scales)


def differences(models: Floats, scales: Floats) -> Floats:
    """Return the steps between models, each divided by its scale.

    Args:
        models: [k, P]; rows beyond the scales are left out.
        scales: [k]; inf first where the first model tells nothing, which is then left out too.
    """
    rows = models[: len(scales)]
    steps: Floats = np.diff(rows, axis=0, prepend=0.0) / scales[: len(rows), None]
    return steps[1:] if np.isinf(scales[0]) else steps


def _are_models(with_it: Floats, without: Floats) -> bool:
    """Whether rows [pilots, k, P] add up: their noise and what the target did stay in later ones.

    Independent noise is further apart from row to row than it is long, and noise that adds up is
    nearer. So is what else a run keeps, such as its first model: then what the target does must
    grow too.
    """
    noise = without - without.mean(axis=0)
    adds_up = np.square(np.diff(noise, axis=1)).sum() < np.square(noise[:, 1:]).sum()
    moved = np.square((with_it - without).mean(axis=0)).sum(axis=1)
    half = len(moved) // 2
    return bool(adds_up and moved[-half:].mean() > GROWTH * moved[:half].mean())


def _scales(models: Floats) -> Floats:
    """Return the standard deviation of the noise in each difference [k], of models [pilots, k, P].

    inf for a first model that is drawn anew in each run, so that the first step is not seen.
    """
    steps = np.diff(models, axis=1, prepend=0.0)
    stds: Floats = np.sqrt(np.square(steps - steps.mean(axis=0)).mean(axis=(0, 2)))
    middle = float(np.median(stds[1:]))
    stds = np.maximum(stds, 1e-3 * middle) if middle > 0 else np.ones(len(stds))
    fresh = stds[0] > FRESH * stds[1:].max()
    alike = np.abs(stds / middle - 1) < ALIKE if middle > 0 else np.zeros(len(stds), bool)
    stds[alike] = middle  # what so few runs measure differs by chance
    stds[0] = np.inf if fresh else stds[0]
    return stds


class Loop:
    """A loop, with what sees it.

    Attributes:
        many: whether it trains a model for each of several seeds at once.
        models: whether the rows of the last run were models; None for an array that may be either.
    """

    def __init__(self, function: Function, watch: Watch) -> None:
        self._function, self._watch = function, watch
        self.many = function.many
        self.models: bool | None = None

    def observed(self, data: Data, seed: int) -> Seen:
        """Return what one run showed.

        Args:
            seed: of all global generators, and the function's own argument.
        """
        returned = self._called(data, [seed])
        released = self._released(returned, 1)[0]
        model = None if returned is None else contract.array(returned).ravel()
        return self._watch.seen(model, released, carried(returned))

    def changed(self, present: Data, others: Sequence[Data], seed: int) -> tuple[str, ...] | None:
        """Return what of the model follows the data while every released step stays the same.

        A run on other data is given the gradients that the run on `present` released. Whatever then
        ends otherwise was changed by something else than these. A model that averages, projects or
        decays its weights ends as it did.

        Returns:
            Names of tensors; None where the loop ends otherwise on the same data too.
        """
        if self._function.many:
            return ()
        first = self._ended(present, seed)
        steps = tuple(self._watch.released)
        if not steps:
            return ()
        if _unlike(first, self._ended(present, seed, steps)):
            return None
        found = [_unlike(first, self._ended(each, seed, steps)) for each in others]
        return tuple(dict.fromkeys(name for each in found for name in each))

    def _ended(self, data: Data, seed: int, replayed: tuple[Floats, ...] = ()) -> dict[str, Floats]:
        """Return the tensors that a run ends with: those that it returns, or the parameters."""
        returned = self._called(data, [seed], replayed)
        if returned is not None:
            return tensors(returned)
        state = self._watch.state
        return {} if state is None else {"of the optimizer's parameters": state}

    def released(self, data: Data, seeds: Sequence[int]) -> list[Floats]:
        """Return what a run for each seed released, each [k, P]."""
        if self._function.many:
            return self._released(self._called(data, seeds), len(seeds))
        return [self._released(self._called(data, [seed]), 1)[0] for seed in seeds]

    @property
    def watched(self) -> bool:
        """Whether steps of Opacus's optimizer are what the last run released."""
        return bool(self._watch.released) and not self.many

    @property
    def noise(self) -> NoiseSums:
        """The noise of the steps of the last run; nothing of several models at once."""
        return NoiseSums() if self._function.many else summed(self._watch.steps)

    def _called(self, data: Data, seeds: Sequence[int], replayed: tuple[Floats, ...] = ()) -> Any:
        import torch  # noqa: PLC0415

        wrap(self._watch)
        self._watch.clear(replayed)
        set_seeds(seeds[0])
        features, labels = torch.tensor(data.features), torch.tensor(data.labels)
        given = list(seeds) if self._function.many else seeds[0]
        try:
            returned = self._function.call(features, labels, given)
        except Exception as error:
            raise AppFailedError(f"the loop failed: {type(error).__name__}: {error}") from error
        # A function that imports Opacus itself has run unwatched by now.
        return self._called(data, seeds, replayed) if wrap(self._watch) else returned

    def _released(self, returned: Any, runs: int) -> list[Floats]:
        """Return [k, P] of each run: the steps that were watched, else what was returned."""
        if self.watched:
            steps = self._watch.released
            if len({each.size for each in steps}) > 1:
                raise AppFailedError("the loop trains models of several sizes; audit one at a time")
            self.models = False
            return [np.array(steps)]
        if returned is None:
            raise AppFailedError(
                "the loop returned nothing, and no step of Opacus's optimizer was seen; return the "
                "model, or an array [k, P] of released steps"
            )
        found = contract.array(returned)
        self.models = True if contract.several(returned) else None
        if not self._function.many:
            found = found[None]
        if len(found) != runs or found.ndim not in (2, 3):
            raise AppFailedError(
                f"the loop returned {found.shape}; give a model [P] or steps [k, P] for each seed"
            )
        return list(found if found.ndim == 3 else found[:, None])


def _unlike(first: dict[str, Floats], other: dict[str, Floats]) -> list[str]:
    """Return the names of tensors that differ by more than float32 rounds."""
    shared = [name for name in first if name in other and first[name].shape == other[name].shape]
    alike = {name for name in shared if np.allclose(first[name], other[name], rtol=1e-5, atol=0)}
    return sorted((first.keys() | other.keys()) - alike)


class Trials:
    """Pairs of worlds.

    Attributes:
        directions: by the places of pairs, of those whose pilots ran.
        learnt: what the audit learns of these pairs.
        noise: of the runs that the last call of `features` measured.
    """

    def __init__(self, loop: Loop, pairs: Sequence[Pair]) -> None:
        self._loop, self._pairs = loop, pairs
        self.directions: dict[int, Direction] = {}
        self.learnt: dict[int, Learnt] = {}
        self.noise = NoiseSums()

    def pilot(self, pair: int, seeds: Sequence[int]) -> float:
        """Learn the direction of a pair, and return how far apart that puts its worlds."""
        here = self._pairs[pair]
        present, twin = [], []
        for number, seed in enumerate(seeds):
            present += self._loop.released(here.present, [seed])
            twin += self._loop.released(here.twin(number), [seed])
        found = self.directions[pair] = learnt(present, twin, self._loop.models)
        form: Form = "models" if found.scales is not None else "steps"
        if self._loop.watched:
            form = "watched"
        elif len(found.middle) == 1:
            form = "model"
        self.learnt[pair] = Learnt(found.distance, form, len(found.middle), found.rate)
        return found.distance

    def features(self, pair: int, worlds: Sequence[bool], seeds: Sequence[int]) -> list[Features]:
        """Return what is measured of runs."""
        here, direction = self._pairs[pair], self.directions[pair]
        found, noises = dict[int, Features](), list[NoiseSums]()
        together = len(worlds) if self._loop.many else 1
        for world, data in ((True, here.present), (False, here.absent)):
            chosen = [place for place, each in enumerate(worlds) if bool(each) is world]
            for start in range(0, len(chosen), together):
                part = chosen[start : start + together]
                released = self._loop.released(data, [seeds[place] for place in part])
                noises.append(self._loop.noise)
                parts = (direction.features(each) for each in released)
                found |= dict(zip(part, parts, strict=True))
        self.noise = total(noises)
        return [found[place] for place in range(len(worlds))]


def answers(first: bytes, asked: Iterator[bytes]) -> Iterator[Answer]:
    """Yield the answer to an order, then that to every request.

    Args:
        asked: requests, each a line of JSON.
    """
    order = ORDER.validate_json(first, strict=True)
    # Opacus warns in every run of what a rule says once.
    warnings.simplefilter("ignore")
    function = loaded(order.function)
    data = drawn(order.data, order.records, order.seed)
    worlds = pairs(data, order.target, Neighbouring(order.neighbouring), order.seed)
    loop = Loop(function, Watch())
    trials = Trials(loop, worlds)
    yield Answer(pairs=tuple(each.name for each in worlds), many=function.many)
    for each in asked:
        yield _answer(REQUEST.validate_json(each, strict=True), loop, trials, worlds)


def _answer(request: Request, loop: Loop, trials: Trials, worlds: tuple[Pair, ...]) -> Answer:
    if request.kind == "observe":
        here = worlds[request.pair]
        made = {"twin": here.twin, "stranger": here.stranger}.get(request.world)
        data = getattr(here, request.world) if made is None else made()
        return Answer(seen=tuple(loop.observed(data, seed) for seed in request.seeds))
    if request.kind == "replay":
        here, (seed,) = worlds[request.pair], request.seeds
        return Answer(changed=loop.changed(here.present, [here.twin(), here.stranger()], seed))
    if request.kind == "pilots":
        trials.pilot(request.pair, request.seeds)
        return Answer(learnt=trials.learnt[request.pair])
    features = tuple(trials.features(request.pair, request.worlds, request.seeds))
    return Answer(features=features, noise=trials.noise)


if __name__ == "__main__":
    channel.serve(answers)
